# Two commands do everything on a fresh machine: `make demo` and `make test`.
# They need Python 3.11 or newer, make, and a package registry that pip can reach.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check
CI     ?=
# One more than two cores: some tests mostly wait, for servers and for nodes that are gone.
WORKERS ?= 3
# In the order of the files: by default those with few tests come last, which are the longest ones.
ORDER  := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
RUNS   ?= 20

.PHONY: demo test check lint types unit slow docs dist stable bench soak coverage minimum audit quick clean

demo: $(VENV)/.demo
	$(BIN)/fedwise demo

test: $(VENV)/.test lint types docs unit

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

# Workers share the cores already; more threads in each only wait for one another.
unit slow stable: export OMP_NUM_THREADS = 1
unit slow stable: export OPENBLAS_NUM_THREADS = 1

unit: $(VENV)/.test
	$(BIN)/pytest $(ORDER) -m "not soak and not slow"

# Tests that start nodes and browsers, attack many releases, or repeat a whole evaluation. CI runs them after `make test`.
slow: $(VENV)/.test
	$(BIN)/pytest $(ORDER) -m "slow and not soak"

# The documentation site, in build/site; a broken link or a page that is not in the navigation is an error.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(VENV)/.test
	$(BIN)/mkdocs build --strict --quiet

# A wheel and a source archive, in dist/.
dist: $(VENV)/.test
	$(BIN)/python -m hatchling build --directory dist

# The whole suite again and again; ends at the first run with a failure.
stable: $(VENV)/.test
	for run in $$(seq 1 $(RUNS)); do \
	  echo "run $$run of $(RUNS)"; $(BIN)/pytest -q $(ORDER) || exit 1; done

bench: $(VENV)/.test
	$(BIN)/python benchmarks/counting.py
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/regret.py
	$(BIN)/python benchmarks/train.py
	$(BIN)/python benchmarks/private.py
	$(BIN)/python benchmarks/load.py

# The paper's evaluation in small.
quick: $(VENV)/.test
	$(BIN)/python experiments/paper.py --quick

# Branches that tests take, over all of src: at least 90%. Compiled kernels are left out, as no tracer sees into them.
coverage: export OMP_NUM_THREADS = 1
coverage: export OPENBLAS_NUM_THREADS = 1
coverage: $(VENV)/.test
	mkdir -p build
	$(BIN)/pytest -q $(ORDER) --cov=fedwise --cov-branch --cov-report=json:build/coverage.json
	$(BIN)/python tools/branches.py build/coverage.json --least 90

# The core at the lowest versions its ranges allow, in an environment of its own.
minimum: $(VENV)/.test
	$(BIN)/python tools/minimum.py --test $(PYTHON)

# Pins, versions, licences, installed files; known vulnerabilities where a database can be reached.
audit: $(VENV)/.test
	$(BIN)/python tools/supply_chain.py --hashes

soak: $(VENV)/.test
	$(BIN)/pytest -m soak -n 2 --override-ini "addopts=-ra --import-mode=importlib" tests

# The stamps carry the inputs: a second run with nothing changed starts at once.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable ".[train,explore]"
	touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable ".[all,test,docs]"
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
