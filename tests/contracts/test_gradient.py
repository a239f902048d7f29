"""Every estimator has a row here; and the suite fails estimators that are wrong."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.testing import check_gradient


@pytest.mark.parametrize(
    "gradient", [sgld.Full(), sgld.Minibatch(), sgld.ControlVariates()], ids=repr
)
def test_gradient(gradient):
    report = check_gradient(gradient)
    assert len(report.noise) == 11 and type(gradient).__name__ in repr(report)
    assert report.noise["reshuffle", 7].max() < 1e-4
    if isinstance(gradient, sgld.Full):
        assert max(C.max() for C in report.noise.values()) < 1e-6


@pytest.mark.parametrize(
    "gradient",
    [
        sgld.SVRG(),
        sgld.SAGA(),
        pytest.param(sgld.SVRG(period=2), marks=pytest.mark.slow),
        pytest.param(
            sgld.SAGA(lambda row: jnp.concatenate([jnp.ones(1), row["x"]])), marks=pytest.mark.slow
        ),
    ],
    ids=["SVRG", "SAGA", "SVRG every 2 steps", "SAGA on features"],
)
def test_gradient_with_a_memory(gradient):
    """Unbiased given every memory that a dozen steps leave, rows drawn twice among them."""
    report = check_gradient(gradient)
    assert len(report.noise) == 11 and report.noise["reshuffle", 7].max() < 1e-4


def test_control_variates_beat_minibatches_near_their_centre():
    plain, cv = check_gradient(sgld.Minibatch()), check_gradient(sgld.ControlVariates())
    for design, covariance in plain.noise.items():
        assert np.trace(cv.noise[design]) <= 0.1 * np.trace(covariance) + 1e-6


def test_covariance_is_the_formula_of_sampling_theory():
    """N^2/n S (1 - n/N) with divisor N - 1 for subsets; N^2/n S with divisor N with replacement."""
    rng = np.random.default_rng(0)
    N, x = 6, rng.standard_normal((6, 2)).astype(np.float32)
    posterior = sgld.Posterior(
        lambda t: -jnp.sum(t**2), lambda t, row: -0.5 * jnp.sum((row - t) ** 2)
    )
    report = check_gradient(sgld.Minibatch(), posterior, x, jnp.zeros(2))
    for (order, n), found in report.noise.items():
        S = np.cov(x, rowvar=False, bias=order == "replacement")
        exact = {"subset": N**2 / n * (1 - n / N) * S, "replacement": N**2 / n * S}
        if order in exact:
            np.testing.assert_allclose(found, exact[order], rtol=1e-4, atol=1e-4)


@dataclass(frozen=True)
class Slipped:
    slip: str

    def prepare(self, problem, center):
        return self

    def at(self, problem, x):
        batch, source = problem.source.fetch(x), problem.source

        def estimate(z):
            weight, scale = batch.weight, batch.scale
            prior = problem.log_prior(z)
            if self.slip == "no N/n":
                scale = 1.0
            if self.slip == "N/n for short batches":
                scale = source.num_data / source.batch_size
            if self.slip == "N/n on the prior":
                prior = scale * prior
            if self.slip == "prior in every row":
                prior = source.num_data * prior
            if self.slip == "padding counts":
                weight = None
            return prior + scale * problem.log_likelihood(z, batch.rows, weight)

        return jax.grad(estimate)


@dataclass(frozen=True)
class Forgetful:
    """A learning estimator whose sum does not follow its table."""

    remembers = True

    def prepare(self, problem, center):
        return self

    def start(self, problem, z):
        return sgld.SAGA().start(problem, z)

    def at(self, problem, x, memory):
        return sgld.SAGA().at(problem, x, memory)

    def after(self, problem, x, memory, z, step):
        return sgld.SAGA().after(problem, x, memory, z, step)._replace(total=memory.total)


def test_a_forgetful_memory_is_caught():
    with pytest.raises(AssertionError, match="Forgetful: biased after 1 steps with order"):
        check_gradient(Forgetful())


@pytest.mark.parametrize(
    "slip",
    ["no N/n", "N/n for short batches", "N/n on the prior", "prior in every row", "padding counts"],
)
def test_slips_are_caught(slip):
    with pytest.raises(AssertionError, match="Slipped: biased with order"):
        check_gradient(Slipped(slip))
