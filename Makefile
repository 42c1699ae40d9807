# Plain POSIX make and sh (macOS ships make 3.81). Every path is relative, so the clone may stand anywhere.
#   PYTHON=/path/to/python   the interpreter to build .venv with (3.11-3.14); searched for when not given
#   ARGS='...'               further arguments for the command behind demo, dev, test, acceptance, mutants, bench

BIN = .venv/bin
STAMP = .venv/.installed
PIP = $(BIN)/python -m pip --disable-pip-version-check --no-input
INSTALL = $(PIP) install --quiet --retries 10 -c constraints.txt

# Absolute paths are baked into an environment; one that was moved or lost its interpreter is installed anew.
MOVED := $(shell if test -f $(STAMP) && test "$$(cat $(STAMP))" = "$$(pwd -P)" && $(BIN)/python -c ''; then :; else rm -f $(STAMP); fi)

.PHONY: help venv demo dev test acceptance mutants lint format bench bench-full constraints clean

help:
	@echo 'make demo         load the bundled 2016 polls, decide, print the table (asks nothing, safe to repeat)'
	@echo 'make dev          the user interface and the daemon on the state in ./.oracle, until Ctrl-C'
	@echo 'make test         every test with small counts (under ten minutes on two cores)'
	@echo 'make acceptance   the full counts, printed'
	@echo 'make mutants      mutation testing of the rules in oracle_core, at least 95 % killed'
	@echo 'make lint         ruff, mypy (strict) and the import contracts'
	@echo 'make format       let ruff rewrite what it can'
	@echo 'make bench        the benchmarks, as one table (under ten minutes on two cores)'
	@echo 'make bench-full   the same at full sizes'
	@echo 'make constraints  resolve constraints.txt anew from pyproject.toml'
	@echo 'make clean        remove caches and build leftovers (keeps .venv and .oracle)'

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt .ci/venv.sh .ci/python.sh
	@PYTHON='$(PYTHON)' sh .ci/venv.sh
	@echo 'Installing the pinned dependencies into .venv (a few minutes the first time)'
	@$(INSTALL) 'setuptools>=77'
	@$(INSTALL) --no-build-isolation -e '.[dev]'
	@printf '%s' "$$(pwd -P)" >$(STAMP)

demo: $(STAMP)
	@$(BIN)/oracle demo $(ARGS)

dev: $(STAMP)
	@$(BIN)/oracle dev $(ARGS)

# Compiled once, also where Python is told not to write what it compiles: the tests start hundreds of processes.
test: $(STAMP)
	@$(BIN)/python -m compileall -q oracle_core oracle_dagster tests
	@$(BIN)/python -m pytest -n 2 -m 'not acceptance' $(ARGS)

acceptance: $(STAMP)
	@$(BIN)/python -m pytest -m acceptance -s --timeout 3600 $(ARGS)

mutants: $(STAMP)
	@$(INSTALL) --no-build-isolation -e '.[dev,mutants]'
	@$(BIN)/python -m tests.mutation $(ARGS)

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(STAMP)
	@$(BIN)/ruff check --fix --exit-zero .
	@$(BIN)/ruff format .

bench: $(STAMP)
	@$(BIN)/python -m benchmarks $(ARGS)

bench-full: $(STAMP)
	@$(BIN)/python -m benchmarks --size full $(ARGS)

constraints:
	@PYTHON="$$(PYTHON='$(PYTHON)' sh .ci/python.sh)" && "$$PYTHON" .ci/constraints.py $(ARGS)

clean:
	@rm -rf build dist ./*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage mutants
	@find . -name .venv -prune -o -name .oracle -prune -o -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
