# make run        set everything up in .venv and run the main job to its verdict
# make test       set up what tests need and pass those that one waits for: of the core, then of the kits
# make test-core  those of the core alone
# make test-kits  those of the kits around it alone (d5ray/kits, dashboards, GPUs)
# make test-full  the large matrices and what takes long (20 minutes)
# make test-older the numeric part with the kernels for AVX2 (4 minutes), or SSE4: PROCESSOR=sse4
# make test-all   test-full, test-older, test-ray; goes on where it was interrupted, sums up in build/tests/SUMMARY.md
# make test-gpu   what a machine with a GPU shows, a JSON line a result; without one it says what it would do
# make test-ray   what starts Ray, with the oldest version of it (10 minutes), or another: RAY=2.57.0
# make test-slow  what needs longer (an hour or more)
# make rooms      lines, tests and imports by rooms, each within its budget (tests/house.toml)
# make mutants    how many of 300 small changes of the core its tests notice (hours; goes on where it ended)
# make docs       build lessons, guide, reference and map of files into build/docs; a warning is an error
# make docs-outputs  run the lessons (15 minutes) and write what they show
# make tools      install Debian's packages that some tests need, where that is possible
# make clean      remove what the above made

PYTHON ?= python3
PROCESSOR ?= avx2
RAY ?= 2.55.0
VENV   := .venv
BIN    := $(VENV)/bin
OTHER  := $(VENV)-ray-$(RAY)

.PHONY: run test test-full test-older test-all test-gpu test-ray test-core test-kits test-slow rooms mutants docs docs-outputs tools lint linters clean
.DELETE_ON_ERROR:

run: $(VENV)/.run
	$(BIN)/d5ray run digits_lenet

test: lint
	$(BIN)/python -m tests.suites test

test-full: $(VENV)/.dev
	$(BIN)/python -m tests.suites test-full

test-older: $(VENV)/.dev
	$(BIN)/python -m tests.suites test-older-$(PROCESSOR)

test-all: $(VENV)/.dev $(OTHER)/.made
	status=0; \
	$(BIN)/python -m tests.suites test-full test-older-avx2 --resume || status=1; \
	$(OTHER)/bin/python -m tests.suites test-ray --resume || status=1; \
	exit $$status

test-ray: $(OTHER)/.made
	$(OTHER)/bin/python -m tests.suites test-ray

test-gpu: $(VENV)/.dev
	$(BIN)/python -m tests.gpu.check

test-core test-kits: $(VENV)/.dev
	$(BIN)/python -m tests.suites $@

test-slow: $(VENV)/.dev
	$(BIN)/python -m tests.suites test-slow

rooms: $(VENV)/.dev
	$(BIN)/python -m tests.house --imports

mutants: $(VENV)/.dev
	$(BIN)/python -m tests.mutants

docs: $(VENV)/.dev
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs build/docs

docs-outputs: $(VENV)/.dev
	$(BIN)/python -m tests.docs.lessons

tools:
	@.ci/timed tools .ci/tools

lint: $(VENV)/.dev
	@.ci/timed linters $(MAKE) --no-print-directory linters

linters:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.house

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "found $$($(PYTHON) --version), d5ray needs Python 3.11 or newer: make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; from d5ray.identity import links; sys.exit(links.broken("d5ray"))'
	$(PYTHON) -m venv $(VENV)

# An installation is complete when its stamp exists; one that was interrupted is done again.
$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	.ci/timed installation $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.run

# Another Ray in front of the packages that .venv has.
$(OTHER)/.made: $(VENV)/.dev
	$(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps 'ray==$(RAY)' -e .
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > \
	    "$$($(OTHER)/bin/python -c 'import site; print(site.getsitepackages()[0])')/packages.pth"
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-ray-* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
