# Two commands on a machine with Python 3.10 to 3.12 and make:
#   make demo   the main job on real data        make test   every check        make docs   the site
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test docs package install install-dev format clean

VENV := .venv
BIN := $(VENV)/bin
OUTPUT ?= demo-output
WORKERS ?= 2

# Candidates are run, not only looked up: a version manager's shim may exist for a version that is not
# installed, and some systems ship Python without the parts that make an environment.
PYTHON ?= $(shell for candidate in python3.12 python3.11 python3.10 python3 python; do \
	"$$candidate" -c 'import ensurepip, sys, venv; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 13))' \
		>/dev/null 2>&1 && { echo "$$candidate"; break; }; done)

help:
	@echo "make demo      one layer and two on real data, numbers and classes: table and figures in $(OUTPUT)/ (3 minutes)"
	@echo "make test      formatter check, linter, type checker, tests and notebooks (20 to 25 minutes on 2 cores)"
	@echo "make docs      the site, in docs/_build/html (under a minute once its tools are installed)"
	@echo "make package   source distribution and wheel in dist/, checked in an environment of their own (5 minutes)"
	@echo "make format    format the code and repair what the linter can repair"
	@echo "make install   create $(VENV) and install the package, without the tools for developers"
	@echo "make clean     remove the environment, caches and outputs"
	@echo "Variables: PYTHON=<interpreter> for the environment, OUTPUT=<folder> of the demo, WORKERS=<n> for the tests."

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "No usable Python found: Python 3.10, 3.11 or 3.12 with the modules venv and ensurepip is needed." >&2; \
		echo "Install one (on Debian and Ubuntu: python3 and python3-venv), or name it: make PYTHON=/path/to/python" >&2; \
		exit 1; \
	fi
	@echo "==> Creating the environment $(VENV) with $$($(PYTHON) --version) (seconds)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: setup.cfg setup.py | $(BIN)/python
	@echo "==> Installing gpflow_deep and what it needs (TensorFlow is about 600 MB: 1 to 5 minutes)"
	@$(BIN)/python -m pip install -qq --use-pep517 --editable .
	@touch $@

$(VENV)/.installed-dev: setup.cfg setup.py | $(BIN)/python
	@echo "==> Installing gpflow_deep, what it needs and the tools for tests (TensorFlow is about 600 MB: 1 to 5 minutes)"
	@$(BIN)/python -m pip install -qq --use-pep517 --editable '.[test]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: setup.cfg setup.py | $(BIN)/python
	@echo "==> Installing gpflow_deep, what it needs and the tools for the site"
	@$(BIN)/python -m pip install -qq --use-pep517 --editable '.[docs]'
	@touch $@ $(VENV)/.installed

install: $(VENV)/.installed

install-dev: $(VENV)/.installed-dev

demo: install
	@echo "==> Training on real data: a table, and figures in $(OUTPUT)/ (3 minutes on 2 cores)"
	@$(BIN)/gpflow-deep demo --output "$(OUTPUT)"

# With the tunable, small pieces of memory that graphs have freed are kept as they are for the next graph.
test: install-dev
	@echo "==> 1/4 Formatter check (seconds)"
	@$(BIN)/ruff format --check --quiet .
	@echo "==> 2/4 Linter (seconds)"
	@$(BIN)/ruff check --quiet .
	@echo "==> 3/4 Type checker (about a minute the first time)"
	@$(BIN)/mypy
	@echo "==> 4/4 Tests and notebooks, each file in a process of its own, $(WORKERS) at a time (20 to 25 minutes on 2 cores)"
	@TF_CPP_MIN_LOG_LEVEL=3 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1 OMP_NUM_THREADS=1 \
		GLIBC_TUNABLES=glibc.malloc.tcache_count=65535 \
		$(BIN)/python -m tests.file_by_file --workers $(WORKERS)

docs: $(VENV)/.installed-docs
	@echo "==> Building the site in docs/_build/html (under a minute)"
	@rm -rf docs/_build
	@TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m sphinx --builder html --quiet --fail-on-warning --keep-going \
		docs docs/_build/html
	@$(BIN)/python docs/check.py docs/_build/html
	@echo "==> docs/_build/html/index.html"

package: | $(BIN)/python
	@PYTHON="$(BIN)/python" DEPENDENCIES="$(DEPENDENCIES)" packaging/check

format: install-dev
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format .

clean:
	@rm -rf $(VENV) build dist *.egg-info docs/_build docs/_copied .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-output
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
