# make demo: the main job on shipped real data.   make test: the tests.   Both build their own environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo demo-points test test-slow soak bench bench-tables bench-points check clean

$(VENV)/ready: pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit("Synthstream needs Python 3.11 or newer; say make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable '.[dev]'
	touch $@

demo: $(VENV)/ready
	$(BIN)/synthstream run examples/evictions/stream.toml

demo-points: $(VENV)/ready
	$(BIN)/synthstream run examples/earthquakes/stream.toml
	$(BIN)/python -m synthstream.evaluate.density examples/earthquakes/stream.toml -o examples/earthquakes/state/density.png

test: $(VENV)/ready
	$(BIN)/python -m pytest -n 2

test-slow: $(VENV)/ready
	$(BIN)/python -m pytest -n 2 -m slow

soak: $(VENV)/ready
	$(BIN)/python -m pytest -m soak -s

bench: $(VENV)/ready
	$(BIN)/python -m benchmarks

bench-tables: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.tables

bench-points: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.points_report

check: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) examples/evictions/state* examples/evictions/releases* examples/earthquakes/state* examples/earthquakes/releases*
