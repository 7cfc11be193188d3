# Each target makes its own virtual environment; Python 3.11+ and make are all that is needed. With
# LOCKED=1 the tests' packages are exactly those of requirements/dev.lock, checked by their hashes.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
JOBS   ?= 2
# Tests wait for processes more than they compute: twice as many at a time as most machines have cores.
TESTERS ?= 4

.PHONY: demo page pictures setup docs test world lint audit sbom lock bench slow soak mutants study study-quick wheel artifacts release clean
.DEFAULT_GOAL := demo

$(VENV)/.user: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "coatcheck needs Python 3.11 or newer: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'coatcheck is installed into $(VENV), once: this takes about half a minute'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[charts,serve]'
	@ln -sf $(BIN)/coatcheck coatcheck
	@echo 'coatcheck is ready: ./coatcheck --help, or coatcheck after . $(BIN)/activate'
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.user
	@test -z "$(LOCKED)" || $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(VENV)/.docs: pyproject.toml $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

setup: $(VENV)/.docs  ## everything that the other targets install

demo: $(VENV)/.user  ## who is near: a whole round of real processes, and a trilaterator in it
	$(BIN)/coatcheck demo

page: $(VENV)/.user  ## the same round live on a page: what a person sees, what the server sees
	$(BIN)/coatcheck demo --page

pictures: $(VENV)/.dev  ## the pictures in docs/images again, from the page; needs Chromium
	$(BIN)/python tests/world/web/pictures.py

docs: $(VENV)/.docs  ## the manual as a site in build/docs, its warnings as errors; then every page is run
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs build/docs
	$(PYTEST) -n $(JOBS) tests/manual

# What `make test` leaves to `make world`, `make lint` and `make docs`.
NOT_HERE = --ignore=tests/world --ignore=tests/project --ignore=tests/manual
PYTEST   = $(BIN)/python -m pytest --dist loadgroup --durations=25

# Every process that a test starts would compile the sources again.
test world lint docs slow study-quick: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.dev  ## unit and service tests: Python is all they need
	$(PYTEST) -n $(TESTERS) -m 'not world and not slow' $(NOT_HERE)

world: $(VENV)/.dev  ## tests with PostgreSQL, Chromium, Node, Ray, S3 and Spin; without one, its tests are skipped
	$(PYTEST) -n $(TESTERS) -m 'world and not slow' --ignore=tests/project --ignore=tests/manual
	$(PYTEST) -n $(JOBS) bench/tests

slow: $(VENV)/.dev  ## the longer studies that CI leaves out
	$(PYTEST) -n $(JOBS) -m slow

soak: $(VENV)/.dev  ## rounds in a storm of kills, database crashes, junk and clock steps, on four deployments; again for MINUTES
	$(BIN)/python tests/soak.py --minutes $(or $(MINUTES),0)

mutants: $(VENV)/.dev  ## change COUNT random places in the code and see whether the tests notice
	$(BIN)/python tests/mutants.py --count $(or $(COUNT),100) --seed $(or $(SEED),1)

lint: $(VENV)/.dev  ## style, types, layers, spelling, and what holds of the project's own files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(PYTEST) -n $(JOBS) tests/project

audit: $(VENV)/.dev  ## known weaknesses of what the image holds; says so if nobody can be asked
	$(BIN)/python .ci/audit.py requirements/image.lock requirements/build.lock

sbom: $(VENV)/.user  ## a bill of materials (CycloneDX) of what the image holds, in dist/sbom.json
	@mkdir -p dist; $(BIN)/python .ci/sbom.py requirements/image.lock requirements/build.lock > dist/sbom.json

UV = uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet $(UPGRADE)
lock:  ## write the lock files again with uv; UPGRADE=--upgrade takes the newest of everything
	$(UV) pyproject.toml --extra serve --extra fast --output-file requirements/image.lock
	$(UV) pyproject.toml --extra dev --extra docs --output-file requirements/dev.lock
	echo hatchling | $(UV) - --output-file requirements/build.lock

bench: $(VENV)/.dev  ## ratios against peers, in one run; `make world` runs the tests of its code
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[peers]'
	$(BIN)/python -m bench

wheel: $(VENV)/.dev
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

artifacts: $(VENV)/.dev  ## wheel, source distribution, bill of materials and checksums of this commit, in dist
	$(BIN)/python .ci/release.py --artifacts

release: $(VENV)/.dev  ## cut a release, `make release VERSION=X.Y.Z`: version, changelog, artifacts, commit, tag
	$(BIN)/python .ci/release.py $(or $(VERSION),--help)

clean:
	rm -rf $(VENV) coatcheck dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

study: $(VENV)/.dev  ## every table and figure of the paper, with ours beside it
	$(BIN)/python -m study all --jobs $(JOBS)

study-quick: $(VENV)/.dev  ## the study's tests, and the same on small sizes, in minutes
	$(PYTEST) -n $(JOBS) study/tests
	$(BIN)/python -m study all --quick --jobs $(JOBS)
