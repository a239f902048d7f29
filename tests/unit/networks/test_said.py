"""What functions of a network say of rows of another shape, of none, and of names that are none."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.errors import RunError, UsageError

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


def test_probabilities_are_no_logits():
    with pytest.raises(UsageError, match="f must return logits, and its outputs are probabilities"):
        sgld.networks.classes(DRAWS, lambda p, x: jax.nn.softmax(logits(p, x)), np.ones((4, 3)))


def test_where_each_chain_ended_is_no_set_of_draws():
    """Of a run that kept moments they are all that it has of positions."""
    posterior = sgld.Posterior(
        lambda p: -0.5 * jnp.sum(p["w"] ** 2), lambda p, row: -0.5 * (row[1] - row[0] @ p["w"]) ** 2
    )
    rng = np.random.default_rng(1)
    data = rng.normal(size=(40, 3)).astype("f"), rng.normal(size=40).astype("f")
    init = {"w": jnp.zeros(3)}
    kept = sgld.sample(
        posterior, data, init, step_size=1e-3, num_draws=40, burn_in=0, thin=1, keep="moments", progress=False
    )  # fmt: skip
    for ask in (
        lambda: sgld.networks.classes(kept, logits, np.ones((4, 3))),
        lambda: sgld.networks.scores({"one": kept}, logits, np.ones((4, 3)), np.zeros(4, int)),
        lambda: sgld.networks.held_back(posterior, data, init, kept, data),
        lambda: kept.predict(mean, np.ones((4, 3))),
    ):
        with pytest.raises(RunError, match="kept only moments"):
            ask()
