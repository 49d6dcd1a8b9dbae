# `make demo` and `make test` do all set-up themselves; nothing but Python 3.11 and make is needed first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

LOWEST := .venv-lowest

.PHONY: install demo test test-slow test-all test-lowest lint format bench clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/nrf demo --out runs/demo

test: $(STAMP)
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_ARGS)

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

test-all: test test-slow

# With the oldest versions that pyproject.toml allows, torch apart: a part of the tests that uses each of them.
test-lowest:
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --upgrade pip
	$(LOWEST)/bin/python -m pip install --quiet -c constraints.txt torch
	$(LOWEST)/bin/python .ci/lowest > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet -c $(LOWEST)/lowest.txt -e '.[tables,onnx,pyod,images]' \
		pandas polars onnxruntime pytest hypothesis
	$(LOWEST)/bin/python -m pytest -m "not slow" $(LOWEST_TESTS) $(PYTEST_ARGS)

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

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	$(BIN)/nrf bench

clean:
	rm -rf $(VENV) $(LOWEST) runs build dist .pytest_cache .mypy_cache .ruff_cache
