# Everything sets itself up: `make quickstart` and `make test` need nothing but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# One process more than two cores, as some tests wait for browsers and other processes. Each takes whole files: tests compile
# much, and those of a file share what they compiled.
# In the order and the groups of tests/conftest.py: what takes longest first.
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test test-all test-attacks test-package test-ecosystem check format docs site serve clean

help:
	@echo "make quickstart   set up, then train a small agent on the CPU and show what it does"
	@echo "make test         set up, then run the tests (seven and a half minutes on two cores, less when repeated)"
	@echo "make test-all     the same with the slow tests"
	@echo "make test-attacks bad input through every command and call, the slow ones included"
	@echo "make test-package build the package, install it into an empty environment and use it there"
	@echo "make test-ecosystem  environments in the agents of other libraries, in a virtual environment of their own"
	@echo "make check        formatter, linter, type checker"
	@echo "make coverage     the fast tests with line coverage, in htmlcov/"
	@echo "make docs         make the generated parts of docs/ again and the site from them, in site/"
	@echo "make site         the site from docs/ as it is"
	@echo "make serve        show the site on this machine and follow changes"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'Homing needs Python 3.11 or newer: make PYTHON=python3.11 ...')"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(READY)

quickstart: $(READY)
	$(BIN)/homing quickstart

test: $(READY)
	$(PYTEST) -m "not slow"

test-all: $(READY)
	$(PYTEST)

test-attacks: $(READY)
	$(PYTEST) tests/attacks --hypothesis-profile=explore

# On a machine with a GPU, with whatever Python has homing and jax[cuda13] there: make test-gpu GPU_PYTHON=python3
GPU_PYTHON := $(BIN)/python
test-gpu:
	HOMING_TEST_GPU=1 $(GPU_PYTHON) -m pytest tests/gpu

test-package: $(READY)
	$(BIN)/python -m pytest tests/test_packaging.py tests/test_infrastructure.py

# Other libraries bring torch and much else: they have a virtual environment of their own.
ECOSYSTEM := .venv-ecosystem
# OGBench's agents are in its source distribution and in no wheel.
OGBENCH := $(ECOSYSTEM)/ogbench

$(ECOSYSTEM)/.ready: pyproject.toml constraints-ecosystem.txt
	$(PYTHON) -m venv $(ECOSYSTEM)
	$(ECOSYSTEM)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-ecosystem.txt -e '.[ecosystem]'
	rm -rf $(OGBENCH) && mkdir $(OGBENCH)
	$(ECOSYSTEM)/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary ogbench \
		-c constraints-ecosystem.txt -d $(OGBENCH) ogbench
	tar -xzf $(OGBENCH)/ogbench-*.tar.gz --strip-components 1 -C $(OGBENCH)
	@touch $@

# The pages about them are run there too: in the other one those that need such a library are skipped.
test-ecosystem: $(ECOSYSTEM)/.ready
	OGBENCH_REPO=$(CURDIR)/$(OGBENCH) $(ECOSYSTEM)/bin/python -m pytest -n 3 --dist loadfile -m "not slow" -k "adapters or ecosystem" \
		tests/adapters tests/ecosystem tests/test_docs_code.py

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

.PHONY: coverage
coverage: $(READY)
	$(PYTEST) -m "not slow" --cov=homing --cov-report=term:skip-covered --cov-report=html

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The theme announces its successor at every build.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

docs: $(READY)
	$(BIN)/python tools/make_docs.py
	$(MKDOCS) build --strict

site: $(READY)
	$(MKDOCS) build --strict

serve: $(READY)
	$(MKDOCS) serve --dev-addr 127.0.0.1:8643

clean:
	rm -rf $(VENV) $(ECOSYSTEM) .cache build dist site htmlcov .coverage
