# Two commands do everything on a machine with only Python 3.11+ and make:
#   make demo   read a long text in a small pot and answer questions about it
#   make test   lint, types, architecture, tests
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

.PHONY: setup demo test lint types fast bench clean

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

test: setup lint types
	$(BIN)/python -m pytest --cov --cov-report=term:skip-covered

fast: setup  ## the tests that need no model
	$(BIN)/python -m pytest -m 'not real_model'

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup
	$(BIN)/mypy

bench: setup  ## the figures of the README that need no GPU
	$(BIN)/python benchmarks/reading.py
	$(BIN)/python benchmarks/memory.py

clean:
	rm -rf $(VENV)
