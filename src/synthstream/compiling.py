"""Where compiled loops are kept: beside the package, in the user's cache, or, where neither can be written, nowhere."""

import os
from pathlib import Path


def use_a_writable_cache() -> None:
    """Give Numba a folder of this process's own if there is no other, as for a service user of an installed package.

    Loops are then compiled again by each process. ``NUMBA_CACHE_DIR`` names a better place.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if any(_writable(Path(place)) for place in (Path(__file__).parent / "__pycache__", home)):
        return
    import atexit
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="synthstream-")  # its owner's alone: what lies there is executed
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = folder


def _writable(place: Path) -> bool:
    """Whether a folder can be written, or made."""
    while not place.exists() and place != place.parent:
        place = place.parent
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)
