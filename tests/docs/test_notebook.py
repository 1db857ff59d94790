"""The example notebook, run from its first cell to its last beside a small run of the demo."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import nbclient
import nbformat
import pytest

import synthstream

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "evictions"


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """The demo in a folder of its own, up to the ninth month."""
    text = (EXAMPLE / "stream.toml").read_text()
    assert "until = 2016-01-02" in text
    text = text.replace("until = 2016-01-02", "until = 2011-10-01")
    text = text.replace('path = "../data/', f'path = "{ROOT}/examples/data/')
    (tmp_path / "stream.toml").write_text(text)
    shutil.copy(EXAMPLE / "crosswalk.csv", tmp_path)
    with synthstream.open(tmp_path / "stream.toml") as stream:
        assert len(list(stream.run())) == 39
    shutil.rmtree(tmp_path / "state")  # readers do not have it
    return tmp_path


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of what runs notebooks
def test_the_notebook_runs(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("IPYTHONDIR", str(demo / "ipython"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(EXAMPLE / "explore.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    place = {"metadata": {"path": str(demo)}}
    # A fresh checkout compiles in the first cell, and the machine may have other work.
    done = nbclient.NotebookClient(notebook, timeout=900, startup_timeout=300, resources=place).execute()
    outputs = [output for cell in done.cells for output in cell.get("outputs", [])]
    kinds = [set(output.get("data", {})) for output in outputs]
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert sum("image/png" in kind for kind in kinds) == 2
    shown = "".join(output.get("data", {}).get("text/html", "") for output in outputs)
    assert "sf-evictions</strong> &middot; tick 38, events before 2011-10-01" in shown
    assert "beyond_noise" in shown


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = json.loads((EXAMPLE / "explore.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 8
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
