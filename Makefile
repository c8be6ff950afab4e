# Two commands do everything on a fresh machine: `make demo` and `make test`.
# They need Python 3.11 or newer, make, and a package registry that pip can reach.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check
CI     ?=

.PHONY: demo test check lint types unit bench soak clean

demo: $(VENV)/.demo
	$(BIN)/fedwise demo

test: $(VENV)/.test lint types unit

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

unit: $(VENV)/.test
	$(BIN)/pytest -n 2 --dist loadfile

bench: $(VENV)/.test
	$(BIN)/python benchmarks/counting.py
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/regret.py
	$(BIN)/python benchmarks/train.py

soak: $(VENV)/.test
	$(BIN)/pytest -m soak --override-ini "addopts=-ra --import-mode=importlib" tests

# The stamps carry the inputs: a second run with nothing changed starts at once.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable ".[train,explore]"
	touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable ".[all,test]"
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
