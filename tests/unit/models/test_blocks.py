"""A large design made a block at a time is the design made at once."""

import numpy as np
import pyarrow
import pytest

from sgld.regression import columns, design
from sgld.regression.columns import gram, mean_and_sd, standardised


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(columns, "DESIGN_ROWS_AT_ONCE", 7)
    monkeypatch.setattr(design, "DESIGN_ROWS_AT_ONCE", 7)


def table(rows=40):
    rng = np.random.default_rng(0)
    return pyarrow.table({
        "y": rng.standard_normal(rows), "a": 1e6 + rng.standard_normal(rows),
        "n": rng.integers(0, 9, rows), "town": rng.choice(["x", "y"], rows),
    })  # fmt: skip


@pytest.mark.parametrize(
    "formula",
    ["y ~ a + n", "y ~ a:n", "y ~ n + 0", "n ~ a", "y ~ a + C(town)", "y ~ center(a)", "y ~ 1"],
)
def test_a_design_in_pieces_is_the_design(formula, monkeypatch):
    whole = design.learn(table(), formula)
    monkeypatch.setattr(columns, "DESIGN_ROWS_AT_ONCE", 7)
    monkeypatch.setattr(design, "DESIGN_ROWS_AT_ONCE", 7)
    pieces = design.learn(table(), formula)
    assert pieces.state == whole.state
    np.testing.assert_array_equal(pieces.x, whole.x)
    np.testing.assert_array_equal(pieces.y, whole.y)
    x, _ = design.apply(pieces.state, table())
    np.testing.assert_array_equal(x, whole.x)


def test_pieces_are_taken_where_nothing_is_learnt(small, monkeypatch):
    asked = []
    evaluate = design._evaluate
    monkeypatch.setattr(design, "_evaluate", lambda *given: asked.append(given) or evaluate(*given))
    design.learn(table(), "y ~ a + n")
    assert len(asked) == 1 + 6, "a row that says what there is, and six blocks of 7"
    del asked[:]
    design.learn(table(), "y ~ center(a)")
    assert len(asked) == 1, "the mean is of all rows"


def test_sums_in_blocks(small):
    x = np.column_stack([table()["a"], table()["n"], np.full(40, 0.1)])
    mean, sd = mean_and_sd(x)
    np.testing.assert_allclose(mean, x.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(sd[:2], x.std(axis=0)[:2], rtol=1e-9)
    assert sd[2] == 0, "a constant column, whatever its number"
    nothing, root = mean_and_sd(x, about_mean=False)
    assert not nothing.any()
    np.testing.assert_allclose(root, np.sqrt(np.mean(x**2, axis=0)), rtol=1e-14)
    scale = np.where(sd > 0, sd, 1)
    z = (x - mean) / scale
    np.testing.assert_allclose(standardised(x, mean, scale), z, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(gram(x, [0, 1], mean, scale), np.corrcoef(x[:, :2].T), rtol=1e-9)
