# Each target makes its own virtual environment; Python 3.11+ and make are all that is needed.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
JOBS   ?= 2

.PHONY: demo test lint bench slow wheel clean study study-quick
.DEFAULT_GOAL := demo

$(VENV)/.user: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "coatcheck needs Python 3.11 or newer: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[charts]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.user
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(VENV)/.user  ## show what the library does
	$(BIN)/coatcheck compare --epsilon 0.5,1,2,3,5,8,10 --domain square --samples 200000 --seed 7

test: $(VENV)/.dev  ## run the tests
	$(BIN)/python -m pytest -n $(JOBS)

slow: $(VENV)/.dev  ## the longer studies that CI leaves out
	$(BIN)/python -m pytest -n $(JOBS) -m slow

lint: $(VENV)/.dev  ## style, types, layers, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

bench: $(VENV)/.dev  ## ratios against peers, in one run
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[peers]'
	$(BIN)/python -m bench

wheel: $(VENV)/.dev
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

study: $(VENV)/.dev  ## every table and figure of the paper, with ours beside it
	$(BIN)/python -m study all --jobs $(JOBS)

study-quick: $(VENV)/.dev  ## the same on small sizes, in minutes
	$(BIN)/python -m study all --quick --jobs $(JOBS)
