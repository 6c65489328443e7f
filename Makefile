# One command per need. Each target makes its own virtual environment in .venv and installs what it needs.

# The first of these that is Python 3.11 or newer; `make PYTHON=/path/to/python3` names another.
PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
    command -v $(name) >/dev/null 2>&1 && \
    $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
BIN := .venv/bin
ARGS ?=

.PHONY: help demo test test-slow check format bench bench-micro docs clean
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: .venv/demo ## the main job on a real server, in under a minute; ARGS="--trace FILE" for your own conversations
	@$(BIN)/deltastore demo $(ARGS)

test: .venv/dev ## the tests, on two processes
	$(BIN)/pytest -n 2 $(ARGS)

test-slow: .venv/dev ## all tests, the long ones too
	$(BIN)/pytest -n 2 -m "" $(ARGS)

check: .venv/dev ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/dev ## what of `check` can mend itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/dev ## a short benchmark; ARGS="run ..." for another
	$(BIN)/python -m bench $(or $(ARGS),run --turns 60 --concurrency 1,8 --out short.json)

bench-micro: .venv/dev ## micro benchmarks of the core, against the saved baseline
	$(BIN)/pytest -q bench/micro --benchmark-compare=0001 --benchmark-sort=name --benchmark-columns=median,iqr,ops $(ARGS)

docs: .venv/dev ## checks that the documentation's examples run
	$(BIN)/pytest -q tests/docs $(ARGS)

clean: ## removes the virtual environment and caches
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer found; say make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv .venv

# A stamp for each set of extras: pip runs again only when pyproject.toml has changed.
.venv/%: .venv/bin/python pyproject.toml
	@echo "installing deltastore[$*] in .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@
