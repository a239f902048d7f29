"""Every example in a docstring runs and prints what it says."""

import doctest
import importlib
import pkgutil

import pytest

import sgld

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(sgld.__path__, "sgld.")
    if not module.name.endswith("__main__")
)


# the pages of docs that test_docs.py runs use the same functions
LONG = {
    "sgld.interfaces.arviz_criteria", "sgld.regression.update", "sgld.inference.prediction_halving",
    "sgld.inference.network_scores", "sgld.interfaces.sklearn",
}  # fmt: skip


def imported(name):
    """The module, or None where it stands for an extra that is not installed."""
    try:
        return importlib.import_module(name)
    except sgld.errors.MissingExtra:
        return None


def marks(name):
    if name.startswith("sgld.torch"):
        return [pytest.mark.torch]
    return [pytest.mark.slow] if name in LONG else []


@pytest.mark.parametrize("name", [pytest.param(n, marks=marks(n)) for n in MODULES])
def test_examples(name):
    module = imported(name)
    if module is None:
        pytest.skip(f"{name} needs an extra that is not installed")
    result = doctest.testmod(
        module,
        optionflags=doctest.ELLIPSIS
        | doctest.NORMALIZE_WHITESPACE
        | doctest.IGNORE_EXCEPTION_DETAIL,
    )
    assert result.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    modules = filter(None, map(imported, MODULES))
    found = [t for module in modules for t in finder.find(module) if t.examples]
    assert len(found) > 40
