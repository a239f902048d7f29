"""Scales that are learnt and heavy tails: densities against scipy and NumPyro, a posterior in closed form."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import sgld
from sgld.errors import UsageError
from sgld.networks import LearntPrior, laplace_prior, normal_prior, student_t_prior


def weights(rng):
    return {"a": {"kernel": rng.normal(size=(4, 3)), "bias": rng.normal(size=3)}, "sd": rng.normal()}  # fmt: skip


def test_a_learnt_scale_is_integrated_out(rng, x64):
    position = weights(rng)
    prior = normal_prior({"*kernel": 2.0, "*": 0.5}, fan_in=True, learnt=True)
    assert isinstance(prior, LearntPrior)
    for nu in (2.0, 7.0):
        found = float(dataclasses.replace(prior, degrees=nu)(position))
        kernel, bias, sd = position["a"]["kernel"].ravel(), position["a"]["bias"], position["sd"]
        exact = stats.multivariate_t.logpdf(kernel, np.zeros(12), 1.0 * np.eye(12), df=nu)
        exact += stats.multivariate_t.logpdf(bias, np.zeros(3), 0.25 * np.eye(3), df=nu)
        exact += stats.norm.logpdf(sd, 0, 0.5)  # of one number nothing is learnt
        np.testing.assert_allclose(found, exact, rtol=1e-12)
        # and as the integral that it stands for, over s^2
        scale = nu * 0.25 / 2
        law = stats.invgamma(nu / 2, scale=scale)
        s2 = law.ppf((np.arange(200_000) + 0.5) / 200_000)
        given = stats.norm.logpdf(bias[:, None], 0, np.sqrt(s2)).sum(0)
        np.testing.assert_allclose(
            np.log(np.mean(np.exp(given))),
            stats.multivariate_t.logpdf(bias, np.zeros(3), 0.25 * np.eye(3), df=nu), rtol=1e-3,
        )  # fmt: skip
        mean = np.average(s2, weights=np.exp(given))
        learnt = dataclasses.replace(prior, degrees=nu).sd(position)["a.bias"]
        np.testing.assert_allclose(learnt, np.sqrt(mean), rtol=2e-2)


@pytest.mark.parametrize(
    "size",
    [pytest.param(0.05, marks=pytest.mark.slow), 1.0, pytest.param(8.0, marks=pytest.mark.slow)],
)
def test_the_posterior_under_a_learnt_scale_is_the_closed_form(size):
    """Linear regression: given s all is Gaussian, and s is one number to integrate over."""
    rng = np.random.default_rng(5)
    d, n = 12, 60
    x = rng.standard_normal((n, d)).astype(np.float32)
    y = (x @ (size * rng.standard_normal(d)) + rng.standard_normal(n)).astype(np.float32)
    posterior = sgld.Posterior(
        normal_prior(1.0, learnt=True), lambda w, row: -0.5 * (row[1] - row[0] @ w) ** 2
    )
    draws = sgld.sample(posterior, (x, y), jnp.zeros(d), progress=False)
    s2 = np.exp(np.linspace(-9, 7, 1500))
    log_p, means, squares = [], [], []
    for v in s2:
        C = v * x @ x.T + np.eye(n)
        covariance = np.linalg.inv(x.T @ x + np.eye(d) / v)
        mean = covariance @ x.T @ y
        prior = stats.invgamma.logpdf(v, 1.0, scale=1.0) + np.log(v)  # on the scale of log v
        log_p.append(stats.multivariate_normal.logpdf(y, np.zeros(n), C) + prior)
        means.append(mean)
        squares.append(np.diag(covariance) + mean**2)
    p = np.exp(np.array(log_p) - max(log_p))
    mean = np.average(means, axis=0, weights=p)
    sd = np.sqrt(np.average(squares, axis=0, weights=p) - mean**2)
    found = np.asarray(draws.position).reshape(-1, d)
    assert (np.abs(found.mean(0) - mean) < 0.15 * sd).all()
    np.testing.assert_allclose(found.std(0), sd, rtol=0.1)


def test_heavy_tails_are_numpyros(rng, x64):
    dist = pytest.importorskip("numpyro.distributions")
    position = weights(rng)
    leaves = [position["a"]["bias"], position["a"]["kernel"], position["sd"]]
    scales = [0.5, 1.0, 0.5]
    given = {"*kernel": 2.0, "*": 0.5}
    cases = [
        (laplace_prior(given, fan_in=True), lambda b: dist.Laplace(0.0, b)),
        (student_t_prior(given, fan_in=True), lambda s: dist.StudentT(4.0, 0.0, s)),
        (student_t_prior(given, fan_in=True, degrees=1.5), lambda s: dist.StudentT(1.5, 0.0, s)),
    ]
    for prior, law in cases:
        exact = sum(law(s).log_prob(leaf).sum() for leaf, s in zip(leaves, scales, strict=True))
        np.testing.assert_allclose(float(prior(position)), float(exact), rtol=1e-12)
        if prior.sd(position)["sd"] < np.inf:
            sds = [float(np.sqrt(law(s).variance)) for s in scales]
            np.testing.assert_allclose(list(prior.sd(position).values()), sds)


def test_numbers_of_priors_are_leaves(rng):
    position = jax.tree.map(jnp.float32, weights(rng))
    compiled = jax.jit(lambda prior, position: prior(position))
    for make in (
        laplace_prior, student_t_prior, lambda s: normal_prior(s, learnt=True),
    ):  # fmt: skip
        before = compiled._cache_size()
        assert float(compiled(make(1.0), position)) != float(compiled(make(3.0), position))
        assert compiled._cache_size() == before + 1


def test_refusals():
    with pytest.raises(UsageError, match="degrees must be a positive number"):
        student_t_prior(1.0, degrees=0.0)
    for make in (laplace_prior, student_t_prior):
        with pytest.raises(UsageError, match="scales must be a positive number"):
            make(-1.0)
        with pytest.raises(UsageError, match="scales has the pattern 'b'"):
            make({"b": 1.0, "*": 1.0})({"a": jnp.zeros(2)})


def test_the_metric_of_a_network_knows_how_wide_heavy_tails_are():
    """Of weights that the data say nothing of, D is the prior's variance, but for a small factor."""
    from sgld.inference.tuning.network import fisher
    from sgld.model.prepare import prepare

    z = jnp.array([0.3, -2.0, 5.0, 0.01])
    for prior in (laplace_prior(0.5), student_t_prior(0.5), normal_prior(0.5, learnt=True)):
        posterior = sgld.Posterior(prior, lambda w, row: 0.0 * jnp.sum(w) * row)
        problem = prepare(posterior, np.ones(8, np.float32), jnp.zeros(4))
        found = np.asarray(fisher(problem, z, jnp.int32(0), rows=8))
        width = max(prior.sd({"w": z})["w"], 0.5)
        assert (found > 0.01 / width**2).all() and (found < 30 / width**2).all(), (prior, found)


@pytest.mark.parametrize("far", [1.0, 1e2, 1e6])
@pytest.mark.parametrize(
    "prior", [student_t_prior(0.5, degrees=1.0), normal_prior(0.5, learnt=True)],
    ids=lambda prior: type(prior).__name__,
)  # fmt: skip
def test_the_metric_of_a_network_is_of_the_order_of_the_prior_however_far_out(prior, far):
    """Where chains were far, D was wider: steps took them further, to 3 million scales of what was 'trusted'."""
    from sgld.inference.tuning.network import fisher
    from sgld.model.prepare import prepare

    posterior = sgld.Posterior(prior, lambda w, row: 0.0 * jnp.sum(w) * row)
    problem = prepare(posterior, np.ones(8, np.float32), jnp.full(40, 0.1))
    z = far * jax.random.normal(jax.random.key(0), (40,))
    assert (np.asarray(fisher(problem, z, jnp.int32(0), rows=8)) > 0.9 / 0.5**2).all()


def test_optimisers_of_a_network_climb_with_the_scales_as_they_are_held_to_be():
    """Integrated out, they make a peak at 0, where a network predicts the same of all rows and nothing is learnt."""
    from sgld.inference.tuning.network import optimiser_ends
    from sgld.model.prepare import prepare
    from sgld.model.problem import Request

    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, 3)).astype(np.float32)
    auto = "auto"
    ask = Request(auto, auto, 0.05, 1.0, auto, auto, auto, auto, 2, auto, auto, auto, 0)
    learnt, normal = (
        optimiser_ends(
            prepare(
                sgld.Posterior(prior, lambda w, row: -0.5 * (row[0] - row @ w) ** 2),
                x, jnp.full(3, 0.1), seed=0,
            ),
            ask,
        )
        for prior in (normal_prior(0.5, learnt=True), normal_prior(0.5))
    )  # fmt: skip
    np.testing.assert_allclose(learnt, normal, rtol=1e-4)
