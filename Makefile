# The interpreter that builds .venv; everything else runs inside it.
PYTHON ?= python3
SEEDS ?= 1000
KILLS ?= 200
SECONDS ?= 60
# More arguments for pytest, such as ARGS="-k machines".
ARGS ?=

BIN := .venv/bin
READY := .venv/ready
# Twice quiet: pip's warnings about the caller's own settings say nothing about this project.
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help test check format simulate kill locks bench clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

test: $(READY) ## run the tests on every core
	$(BIN)/python -m pytest -n auto -q $(ARGS)

check: $(READY) ## lint, formatting, types and import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(READY) ## format the code and apply the linter's safe fixes
	$(BIN)/ruff check --fix-only -q
	$(BIN)/ruff format

simulate: $(READY) ## run the simulator over SEEDS=1000 seeds, or over SEED=n alone
	$(BIN)/python -m tests.simulator $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

kill: $(READY) ## kill a writing process KILLS=200 times, and account for all that it was told
	$(BIN)/python -m tests.store.kill --kills $(KILLS)

locks: $(READY) ## twenty processes read and write one store for SECONDS=60
	$(BIN)/python -m tests.store.locks --seconds $(SECONDS)

bench: $(READY) ## measure, and print the figures the documentation quotes; SUITE=store for a part
	$(BIN)/python -m benchmarks $(SUITE)

clean: ## remove the environment and everything the tools wrote
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Touched last, so an interrupted set-up starts again the next time.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "Interlock needs Python 3.11 or newer and '$(PYTHON)' is not: name one with PYTHON=, as in 'make test PYTHON=python3.12'." >&2; exit 1; }
	@echo "Setting up .venv"
	@$(PYTHON) -m venv .venv
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@
