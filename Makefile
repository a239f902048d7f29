# make demo: the posterior of a real regression, its table, verdict and page of pictures
# make test: the tests that every change must pass
export PYTHON ?= python3
BIN := .venv/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-all mutants check bench claims docs clean

.venv/.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python $(PIP_INSTALL) -e '.[dev]'
	touch $@

# a second environment, because everything but the torch door must work without PyTorch
.venv-torch/.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python $(PIP_INSTALL) -e '.[dev,torch]'
	touch $@

demo: .venv/.stamp
	$(BIN)/sgld demo --out runs/demo --overwrite

test: .venv/.stamp
	$(BIN)/python -m pytest -n 2 -m "not slow and not torch"
	@tests/torch_door.sh tested .venv-torch/bin/python -m pytest -n 2 -m torch

test-all: .venv/.stamp
	$(BIN)/python -m pytest -n 2 -m "not torch"
	@tests/torch_door.sh tested .venv-torch/bin/python -m pytest -n 2 -m torch

mutants: .venv/.stamp
	$(BIN)/python tests/mutants.py

check: .venv/.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python $(shell find src -name '*.py' -not -path 'src/sgld/torch/*')
	@tests/torch_door.sh checked $(BIN)/pyright --pythonpath .venv-torch/bin/python src/sgld/torch

bench: .venv/.stamp
	$(BIN)/python benchmarks/speed.py

claims: .venv/.stamp
	$(BIN)/python benchmarks/claims.py

docs: .venv/.stamp
	$(BIN)/python $(PIP_INSTALL) -e '.[docs]'
	$(BIN)/sphinx-build -q -W -b html docs docs/_build

clean:
	rm -rf .venv .venv-torch runs docs/_build
