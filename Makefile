# On a machine with only Python 3.11+ and make:
#   make demo        read chapters of a novel in a small pot and answer questions about them
#   make test        lint, types, architecture, tests of every module: under ten minutes on two cores
#   make figures     every number of the documentation, computed again from the raw files
#   make test-long   what waits, kills or opens: real models, Ray, browsers, pages of the docs, load
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
ORACLE ?= .oracle
LONG   := model or slow or browser or ray
QUICK  := not ($(LONG) or gpu)
PYTEST  = $(BIN)/python -m pytest
# One process a core and one thread a process: toy models are too small to share.
SPREAD := -n logical --maxprocesses 8 --dist loadfile

.PHONY: setup demo test test-long test-no-bfloat16 test-gpu chromium lint types figures bench docs oracle clean

setup: $(STAMP)

# torch first and pinned: asked for by another package it may come in another version and a larger build.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade -c constraints.txt pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/infinipot demo

test: setup lint types figures
	$(PYTEST) $(SPREAD) -m '$(QUICK)'

# Coverage is measured here, since it costs time: in all at least `fail_under`, and something of every module.
test-no-bfloat16: setup  ## the same tests, as on a processor without bfloat16 instructions
	INFINIPOT_NO_BFLOAT16=1 $(PYTEST) $(SPREAD) -m '$(QUICK)' --cov --cov-report=term:skip-covered
	$(BIN)/python tests/house/coverage_of_modules.py

test-long: setup chromium
	$(PYTEST) $(SPREAD) -m 'slow and not (model or browser or ray)'
	OMP_NUM_THREADS=2 $(PYTEST) -m 'model or browser or ray'

test-gpu: setup  ## on a machine with a card; without pytest there: python tests/gpu/run.py
	$(PYTEST) -m gpu tests/gpu

chromium:  ## pages are tested in a real Chromium, the system's own
	@command -v chromium || command -v chromium-browser || command -v google-chrome || \
	{ apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } || \
	echo "no Chromium, and none could be installed: the tests of the pages will be skipped"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup
	$(BIN)/mypy

figures: setup  ## fails where README or docs print another number than docs/results says
	$(BIN)/python benchmarks/figures.py

bench: setup  ## speed and memory on this machine
	$(BIN)/python benchmarks/bench.py --chunk 2048+2048 --peers transformers
	$(BIN)/python benchmarks/memory.py

docs: setup  ## the documentation, into site/; a warning is an error
	$(BIN)/mkdocs build --strict --site-dir site

$(ORACLE)/.ready: oracle/requirements.txt
	$(PYTHON) -m venv $(ORACLE)
	$(ORACLE)/bin/python -m pip install --quiet -r oracle/requirements.txt
	touch $@

oracle: setup $(ORACLE)/.ready  ## do we keep what kvpress keeps? needs its own environment, 1.4 GB
	$(BIN)/python oracle/compare.py --kvpress $(ORACLE)/bin/python --out docs/results/kvpress-agreement.json

clean:
	rm -rf $(VENV) $(ORACLE)
