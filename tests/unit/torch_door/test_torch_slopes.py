"""The temperature of predictions: along their slopes, which are those of log probabilities and of means."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch_parts import F, squares  # noqa: E402

from sgld.diagnostics.function_space.temperature import Layers  # noqa: E402
from sgld.torch.dynamics import (  # noqa: E402
    kinetic,
    slopes_of,
)
from sgld.torch.likelihood import checked  # noqa: E402
from sgld.torch.rows import read_rows  # noqa: E402
from sgld.torch.target import (  # noqa: E402
    Target,
    Weights,
    prior_of,
)


def of(model, loss, x, y):
    rows, weights = read_rows((x, y), torch.device("cpu"), 0), Weights.of(model)
    return Target(checked(model, loss, rows), rows, weights, prior_of(None, 1.0, None, weights))


def test_heat_along_predictions_alone_shows():
    """In one of six directions, and only that is predicted: a sixth of it shows in the layer's."""
    p = torch.tensor([[3.0, 1, 1, 1, 1, 1], [0, 5, 1, 1, 1, 1]])
    directions = torch.eye(6)[1].expand(2, 1, 6)
    slopes = 2 * torch.eye(6)[:1].expand(2, 2, 6).clone()
    slopes[1, 0] = 0  # of a row whose units are dead in one chain
    found = kinetic(p, directions, slopes, Layers(("w",), (6,)), 1e-10)
    np.testing.assert_allclose(found, [[14 / 6, 1, 9], [29 / 6, 25, 0]], atol=1e-3)
    found = kinetic(p, directions, 0 * slopes, Layers(("w",), (6,)), 1e-10)
    np.testing.assert_allclose(found[:, 2], [1, 25], atol=1e-3)  # all are: the stiffest direction's


def test_slopes_are_those_of_log_probabilities():
    """v of weights with sum 0: d (v . log p) / d bias = v, d / d W = v x', whatever p is."""
    x = torch.randn(20, 4)
    target, z = (
        of(torch.nn.Linear(4, 3), F.cross_entropy, x, torch.arange(20) % 3),
        torch.randn(2, 15),
    )
    found = slopes_of(target, z, (x,), 3, 0)
    assert found.shape == (8, 2, 15)
    v = found[:, :, 12:]
    np.testing.assert_allclose(v.sum(2), 0, atol=1e-5)
    np.testing.assert_allclose(v[:, 0], v[:, 1], atol=1e-5)
    assert v.abs().max() > 0.5
    np.testing.assert_allclose(
        found[:, :, :12], (v[..., None] * x[:8, None, None]).reshape(8, 2, 12), atol=1e-5
    )


def test_slopes_of_a_mean_are_the_row():
    """Also where vmap cannot take the module; of a few rows there are as many."""
    x = torch.randn(20, 4)
    target, z = of(torch.nn.Linear(4, 1), squares, x, torch.randn(20)), torch.randn(3, 5)
    for together in (True, False):
        target.together = together
        found = slopes_of(target, z, (x[:5],), 1, 0)
        unit = found[:, :, :4] / found[:, :, 4:]
        near = [np.isclose(unit[row, 0], x[:5]).all(1).any() for row in range(len(found))]
        assert all(near)
        assert found.shape == (5 if together else 2, 3, 5)


def test_of_many_weights_rows_take_turns_by_lot(monkeypatch):
    x = torch.randn(20, 4)
    target, z = (
        of(torch.nn.Linear(4, 3), F.cross_entropy, x, torch.arange(20) % 3),
        torch.randn(2, 15),
    )
    whole = slopes_of(target, z, (x,), 3, 0)
    monkeypatch.setattr("sgld.torch.dynamics.SPEED_NUMBERS", 0)
    lots = [slopes_of(target, z, (x,), 3, draw) for draw in range(60)]
    turns = [
        tuple(int(torch.isclose(whole, one, atol=1e-5).all((1, 2)).nonzero()[0]) for one in lot)
        for lot in lots
    ]
    assert {row for turn in turns for row in turn} == set(range(8))
    assert {row for turn in turns[::2] for row in turn} == set(
        range(8)
    )  # every second may be dropped
    assert len(set(turns)) > 20
    assert torch.equal(lots[7], slopes_of(target, z, (x,), 3, 7))
