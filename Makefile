# Every target creates or updates .venv by itself and does nothing when nothing changed.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
WORKERS ?= 2

.PHONY: help demo check test thorough coverage docs docs-generated bench audit lock clean

help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.runtime: requirements/build.txt requirements/runtime.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("OmniGraph needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ...") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the pinned runtime into $(VENV)"
	@$(PIP) install -r requirements/build.txt -r requirements/runtime.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.txt requirements/langchain.txt $(VENV)/.runtime
	@echo "installing the pinned checks and tests into $(VENV)"
	@$(PIP) install -r requirements/dev.txt
	@$(PIP) install --no-deps --upgrade --target $(VENV)/langchain -r requirements/langchain.txt
	@touch $@

$(VENV)/.docs: requirements/docs.txt $(VENV)/.runtime
	@echo "installing the pinned documentation builder into $(VENV)"
	@$(PIP) install -r requirements/docs.txt
	@touch $@

demo: $(VENV)/.runtime ## run the whole product on an example graph, which stays in demo.omni
	@$(BIN)/omnigraph demo

check: $(VENV)/.dev ## format, lint, types, import contracts, spelling, generated docs, sizes of rooms
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/codespell
	@$(BIN)/python tools/reference_pages.py --check
	@$(BIN)/python tools/rooms.py

test: check ## check + the whole test suite, the explorer page in a Chromium that is installed if need be
	@$(BIN)/python tools/browser.py || true
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

thorough: $(VENV)/.dev ## every test, the large matrices included, and property tests with many examples; takes hours
	@$(BIN)/python -m pytest -m "slow or not slow" --hypothesis-profile thorough -n $(WORKERS) --dist loadfile --no-loadscope-reorder

coverage: $(VENV)/.dev ## the test suite once more, with branch coverage and its gate; takes a quarter longer
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m coverage run -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage report

docs: $(VENV)/.docs docs-generated ## build the documentation into site/
	@$(BIN)/zensical build --clean --strict

docs-generated: $(VENV)/.runtime ## rewrite the generated reference pages
	@$(BIN)/python tools/reference_pages.py

bench: $(VENV)/.runtime ## run the benchmarks and print their ratios
	@$(BIN)/python benchmarks/startup.py
	@$(BIN)/python benchmarks/compile.py
	@$(BIN)/python benchmarks/writes.py
	@$(BIN)/python benchmarks/queries.py
	@$(BIN)/python benchmarks/lsqb.py
	@$(BIN)/python benchmarks/vectors.py
	@$(BIN)/python benchmarks/load.py
	@$(BIN)/python benchmarks/large_changes.py
	@$(BIN)/python benchmarks/scale.py
	@$(BIN)/python benchmarks/source.py
	@$(BIN)/python benchmarks/history.py
	@$(BIN)/python benchmarks/maintenance.py
	@$(BIN)/python benchmarks/server.py

audit: $(VENV)/.runtime ## compare the pinned packages with known advisories; 1: some found, 3: could not check all
	@$(BIN)/python tools/audit.py

lock: ## resolve the ranges of pyproject.toml into requirements/*.txt
	@$(PYTHON) requirements/lock.py

clean: ## remove the environment and everything generated
	@rm -rf $(VENV) benchmarks/.data benchmarks/.peers site .mypy_cache .ruff_cache .pytest_cache .coverage .coverage.* .hypothesis
