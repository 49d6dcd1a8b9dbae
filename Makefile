# `make demo` and `make test` do all set-up themselves; nothing but Python 3.11 and make is needed first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
CORE   := .venv-core
LOWEST := .venv-lowest
# One process for each core. With worksteal tests of a file mostly stay together, and so do the models they share.
SPREAD := -n auto --dist worksteal

.PHONY: install demo test test-slow test-all test-core test-lowest lint format docs docs-serve check-dist bench clean

# An environment with torch, which comes first and pinned: left to pip it may bring gigabytes of CUDA.
define with_torch
test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
$(1)/bin/python -m pip install --quiet --upgrade pip
$(1)/bin/python -m pip install --quiet -c constraints.txt torch
endef

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(call with_torch,$(VENV))
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/nrf demo --out runs/demo

test: $(STAMP)
	$(BIN)/python -m pytest $(SPREAD) -m "not slow" $(PYTEST_ARGS)

test-slow: $(STAMP)
	$(BIN)/python -m pytest $(SPREAD) -m slow $(PYTEST_ARGS)

test-all: test test-slow

# With the core's dependencies and none of an extra.
test-core: $(CORE)/.installed
	$(CORE)/bin/python -m pytest $(SPREAD) -m "not slow" $(CORE_TESTS) $(PYTEST_ARGS)

$(CORE)/.installed: pyproject.toml constraints.txt
	$(call with_torch,$(CORE))
	$(CORE)/bin/python -m pip install --quiet -c constraints.txt -e . pytest pytest-xdist hypothesis
	touch $@

CORE_TESTS := tests/test_extras.py tests/test_config.py tests/contracts tests/data/test_arrays.py \
	tests/detect/test_features.py tests/runs/test_stored_files.py tests/samplers tests/training/test_progress.py

# With the oldest versions that pyproject.toml allows, torch apart: a part of the tests that uses each of them.
test-lowest: $(LOWEST)/.installed
	$(LOWEST)/bin/python -m pytest $(SPREAD) -m "not slow" $(LOWEST_TESTS) $(PYTEST_ARGS)

$(LOWEST)/.installed: pyproject.toml constraints.txt .ci/lowest
	$(call with_torch,$(LOWEST))
	$(LOWEST)/bin/python .ci/lowest > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet -c $(LOWEST)/lowest.txt -e '.[onnx,reproduce]' \
		polars onnxruntime pytest pytest-xdist hypothesis
	touch $@

LOWEST_TESTS := tests/cli/test_cli.py tests/test_config.py tests/data/test_arrays.py tests/data/test_home.py \
	tests/detect/tables/test_schema.py tests/detect/tables/test_odd.py tests/detect/test_pyod.py \
	tests/detect/tables/test_onnx_columns.py tests/runs/test_stored_files.py tests/training/test_training.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The site in site/: spelling first, then strict, so that a link that leads nowhere fails. Nothing is fetched.
docs: $(STAMP)
	$(BIN)/codespell
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# Wheel and sdist, installed in empty environments, with the README's examples run there.
check-dist: $(STAMP)
	$(BIN)/python .ci/check_dist

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	$(BIN)/nrf bench

clean:
	rm -rf $(VENV) $(CORE) $(LOWEST) runs build dist site .pytest_cache .mypy_cache .ruff_cache
