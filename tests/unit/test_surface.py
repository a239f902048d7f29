"""The public surface: what `import sgld` offers, when it is loaded, and its version."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sgld

EXTRAS = {"torch", "sklearn", "SGLDClassifier", "SGLDRegressor"}
TREE = ast.parse(Path(sgld.__file__).read_text())


def names_for_type_checkers():
    """What stands under `if TYPE_CHECKING`, which is all that a type checker and an editor see."""
    (block,) = (node for node in TREE.body if isinstance(node, ast.If))
    imported = [name for node in block.body for name in node.names]
    assert all(name.asname == name.name for name in imported)  # `as` makes it public
    return {name.name for name in imported}


def test_type_checkers_see_the_names_that_run():
    assert {*sgld.__all__, *EXTRAS} == {*names_for_type_checkers(), "__version__"}


def test_every_name_of_all_is_there_and_is_what_it_is_called():
    assert len(set(sgld.__all__)) == len(sgld.__all__)
    for name in sgld.__all__:
        value = getattr(sgld, name)
        assert name == "__version__" or value.__name__.rsplit(".", 1)[-1] == name


def test_dir_is_the_surface_before_and_after_use():
    listed = "import sgld; first = dir(sgld); sgld.sample; sgld.typing; print(first == dir(sgld), *first)"
    same, *names = subprocess.run(
        [sys.executable, "-c", listed], capture_output=True, text=True, check=True
    ).stdout.split()
    assert same == "True" and names == sorted({*sgld.__all__, *EXTRAS})


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'smaple'"):
        sgld.smaple  # noqa: B018


def test_nothing_heavy_is_imported_before_it_is_used():
    heavy = "import sys, sgld; print([m for m in ('jax', 'numpy', 'optax') if m in sys.modules])"
    shown = subprocess.run(
        [sys.executable, "-c", heavy], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "[]"


def test_a_star_import_does_not_need_an_extra():
    """PyTorch and scikit-learn may be missing: their doors are not part of `*`."""
    code = """import sys; sys.modules |= {'torch': None, 'sklearn': None}
from sgld import *
import sgld
try:
    sgld.SGLDRegressor
except sgld.errors.MissingExtra as error:
    print(sample.__name__, error)"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    needed = "sklearn is needed for this; install it with: pip install 'sgld[sklearn]'"
    assert shown.stdout.strip() == f"sample {needed}"
