# make demo: the posterior of a real regression, its table, verdict and page of pictures
# make test: the tests that every change must pass
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-all mutants check bench claims docs clean

.venv/.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: .venv/.stamp
	$(BIN)/sgld demo --out runs/demo --overwrite

test: .venv/.stamp
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: .venv/.stamp
	$(BIN)/python -m pytest -n 2

mutants: .venv/.stamp
	$(BIN)/python tests/mutants.py

check: .venv/.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: .venv/.stamp
	$(BIN)/python benchmarks/speed.py

claims: .venv/.stamp
	$(BIN)/python benchmarks/claims.py

docs: .venv/.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/sphinx-build -q -W -b html docs docs/_build

clean:
	rm -rf .venv runs docs/_build
