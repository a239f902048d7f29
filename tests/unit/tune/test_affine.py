"""Which samplers have a closed-form law on a Gaussian."""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.errors import UsageError
from sgld.samplers.stationary import is_affine


class State(NamedTuple):
    position: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Shaped:
    """SGLD for positions that fit a table of two columns: of `rows` rows, or (-1) any number."""

    rows: int = field(default=3, metadata={"static": True})

    num_noises: ClassVar[int] = 1

    def init(self, position):
        return State(position)

    def step(self, state, grad, step_size, noise, *, preconditioner, temperature):
        q = state.position.reshape(self.rows, 2).reshape(-1)
        xi = preconditioner.noise(jnp.sqrt(2 * step_size * temperature) * noise)
        return State(q + step_size * preconditioner.drift(grad(q)) + xi)


@pytest.mark.parametrize("sampler", [sgld.BAOA(), sgld.UBU(), sgld.SGHMC(), sgld.SGLD(None)])
def test_steps_that_are_affine(sampler):
    assert is_affine(sampler)


@pytest.mark.parametrize("rows", [3, -1])
def test_a_sampler_of_one_size_has_no_law(rows):
    assert not is_affine(Shaped(rows))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CutOff(Shaped):
    """SGLD whose steps are no longer than 100 in any coordinate: affine but far out."""

    def step(self, state, grad, step_size, noise, *, preconditioner, temperature):
        xi = preconditioner.noise(jnp.sqrt(2 * step_size * temperature) * noise)
        step = jnp.clip(step_size * preconditioner.drift(grad(state.position)), -100, 100)
        return State(state.position + step + xi)


def test_a_step_that_is_cut_off_far_out_is_not_affine():
    assert not is_affine(CutOff())


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Adjusted(Shaped):
    """Steps that are taken back where the density falls too far: of small ones all are kept."""

    def step(self, state, grad, step_size, noise, *, preconditioner, temperature):
        new = state.position + step_size * grad(state.position) + jnp.sqrt(step_size) * noise
        kept = grad.log_density(new) > grad.log_density(state.position) - 1e12
        return State(jnp.where(kept, new, state.position))


def test_a_step_that_asks_for_the_density_is_not_affine():
    assert not is_affine(Adjusted())


def test_a_run_with_a_sampler_of_one_size():
    posterior = sgld.Posterior(lambda q: -0.5 * jnp.sum(q**2))
    start = np.zeros(6, np.float32)
    with pytest.raises(UsageError, match="step_size must be given with Shaped"):
        sgld.sample(posterior, None, start, sampler=Shaped(), progress=False)
    draws = sgld.sample(
        posterior, None, start, sampler=Shaped(), step_size=0.1, num_draws=500, thin=10,
        progress=False,
    )  # fmt: skip
    # h = .1 on a standard Gaussian: variance 1 / (1 - h / 2)
    np.testing.assert_allclose(draws.position.var(), 1 / 0.95, rtol=0.1)
    assert draws.status == ("ok",) * 4


def test_a_constant_that_is_reported_leaves_the_step_to_the_others():
    model = sgld.Posterior(
        lambda t: -0.5 * jnp.sum(t**2), output=lambda t: {"x": t, "one": 1.0 + 0 * t[0]}
    )
    draws = sgld.sample(model, None, jnp.zeros(2), sampler=sgld.BAOA(), progress=False)
    assert draws.info["plan"]["step_size"] > 0.01
