# Two commands do everything on a machine with only Python 3.11+ and make:
#   make demo   read a long text in a small pot and answer questions about it
#   make test   lint, types, architecture, tests
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
ORACLE ?= .oracle

.PHONY: setup demo test browser lint types fast bench docs oracle clean

setup: $(STAMP)

# torch first and pinned: a looser requirement would pull gigabytes of CUDA packages.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade -c constraints.txt pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/infinipot demo

test: setup lint types browser
	$(BIN)/python -m pytest --cov --cov-report=term:skip-covered

browser:  ## pages are tested in a real Chromium, the system's own
	@command -v chromium || command -v chromium-browser || command -v google-chrome || \
	{ apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } || \
	{ echo "no Chromium here: install one (apt-get install chromium) for the tests of the pages"; exit 1; }

fast: setup  ## the tests that need no model
	$(BIN)/python -m pytest -m 'not real_model'

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup
	$(BIN)/mypy

bench: setup  ## the figures of the README that need no GPU
	$(BIN)/infinipot bench --chunk 2048+2048 --peers transformers
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
