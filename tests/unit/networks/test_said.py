"""What functions of a network say of rows of another shape, of none, and of names that are none."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.errors import UsageError

DRAWS = sgld.Draws.of({"w": np.random.default_rng(0).normal(size=(2, 50, 3))})


def mean(position, x):
    return x @ position["w"]


def logits(position, x):
    return jnp.stack([mean(position, x), -mean(position, x)], -1)


@pytest.mark.parametrize("ask", [
    lambda x: DRAWS.predict(mean, x),
    lambda x: sgld.networks.classes(DRAWS, logits, x),
    lambda x: sgld.networks.scores({"one": DRAWS}, logits, x, np.zeros(4, int)),
])  # fmt: skip
def test_rows_of_another_width_are_told_with_the_users_line(ask):
    assert ask(np.ones((4, 3))) is not None
    with pytest.raises(UsageError, match=r"f of x of shape \(4, 7\) raised TypeError .* at line \d+ of test_said") as e:  # fmt: skip
        ask(np.ones((4, 7)))
    assert "x @ position" in str(e.value)


def test_of_no_rows_there_is_no_score():
    with pytest.raises(UsageError, match="x has no rows"):
        sgld.networks.scores({"one": DRAWS}, logits, np.ones((0, 3)), np.zeros(0, int))
    assert repr(sgld.networks.classes(DRAWS, logits, np.ones((0, 3)))) == "0 rows, 2 classes"


def test_a_pattern_of_a_layer_that_is_none_is_answered_with_one():
    net = eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0))
    with pytest.raises(UsageError, match=r"Did you mean 'layers\[1\]\*'"):
        sgld.networks.part(net, "layer9*")
