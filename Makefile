# Everything a person or CI types. `make run` needs Python 3.11+, make and a package index; no Docker, GPU or root.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test test-all check docs tables clean
run: .venv/ready
	$(BIN)/tuner run examples/quickstart.yaml

test: check
	$(BIN)/python -m pytest tests -m "not slow and not gpu" -n 2 --dist worksteal

test-all: check
	$(BIN)/python -m pytest tests -m "not gpu"

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: .venv/ready
	$(BIN)/python -m tuner.reference docs/reference.md

tables: .venv/ready # an hour; goes on where it stopped (benchmarks/tables/README.md)
	$(BIN)/python -m benchmarks.recording

.venv/ready: pyproject.toml requirements.lock
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

clean:
	rm -rf .venv build *.egg-info
