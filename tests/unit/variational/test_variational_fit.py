"""Bayes by Backprop: the optimum of linear regression, one answer per seed, mistakes."""

import dataclasses
import re

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
from numpyro.distributions import constraints
from regression_in_closed_form import REGRESSION, START, UsageError, columns, exact, run

import sgld
from sgld.core import progress, work
from sgld.inference import variational
from sgld.variational import Reparameterised, reparameterised_gradient, scale_mixture_prior


@pytest.mark.parametrize(
    "how",
    [
        dict(init_sd=0.3),
        dict(init_sd=0.3, batch_size=25, num_steps=20_000),
        dict(init_sd=0.3, batch_size=25, num_steps=20_000, kl_weights="geometric"),
        dict(batch_size=25, num_steps=20_000),
    ],
    ids=["all rows", "batches", "geometric", "from the mode"],
)
def test_the_mean_field_optimum_of_linear_regression(how):
    """Its mean is the posterior's, its sds are 1/sqrt(J_ii): less than the posterior's."""
    x, y = columns()
    mean, J, evidence = exact(x, y)
    q = run(REGRESSION, (x, y), START, num_samples=8, **how)
    sd = np.diag(J) ** -0.5
    np.testing.assert_allclose((q.mean - mean) / sd, 0, atol=0.04)
    np.testing.assert_allclose(q.sd / sd, 1, atol=0.03)
    # KL(q || p) of the optimum = (sum log J_ii - log det J) / 2
    gap = 0.5 * (np.sum(np.log(np.diag(J))) - np.linalg.slogdet(J)[1])
    assert q.elbo == pytest.approx(evidence - gap, abs=4 * q.elbo_se + 0.01)
    assert q.elbo < evidence
    true_ratio = sd / np.sqrt(np.diag(np.linalg.inv(J)))
    assert true_ratio.min() < 0.75
    np.testing.assert_allclose(q.verdict.sd_ratio, true_ratio, rtol=0.04)
    assert q.verdict.word == "biased" and "underestimates variance" in q.verdict.reasons[0]
    said = float(re.search(r"its sd is (\d\.\d+) of", q.verdict.reasons[1])[1])
    assert said == pytest.approx(true_ratio.min(), rel=0.04)


def test_full_rank_finds_the_posterior_and_the_evidence():
    x, y = columns()
    mean, J, evidence = exact(x, y)
    covariance = np.linalg.inv(J)
    q = run(REGRESSION, (x, y), START, family="full-rank", init_sd=0.3, num_samples=8)
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((q.mean - mean) / sd, 0, atol=0.04)
    np.testing.assert_allclose(q.family.covariance(q.params) / np.outer(sd, sd),
                               covariance / np.outer(sd, sd), atol=0.05)  # fmt: skip
    assert q.elbo == pytest.approx(evidence, abs=0.02)
    assert q.verdict.word == "unknown"  # right here, and still never trusted


def test_no_bit_depends_on_the_calls(monkeypatch):
    """One seed is one answer, however the steps fall into calls of the compiled function."""
    x, y = columns()
    how = dict(batch_size=25, num_steps=300)
    one = run(REGRESSION, (x, y), START, **how)
    monkeypatch.setattr(work, "PIECE_SECONDS", 1e-9)  # every call as short as may be
    two = run(REGRESSION, (x, y), START, **how)
    np.testing.assert_array_equal(one.elbo_trace, two.elbo_trace)
    np.testing.assert_array_equal(one.mean, two.mean)
    other = run(REGRESSION, (x, y), START, seed=1, **how)
    assert not np.array_equal(one.mean, other.mean)


def test_the_bar_says_what_it_does(monkeypatch, capsys):
    x, y = columns()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(progress._Line, "every", 0.001)
    sgld.bayes_by_backprop(REGRESSION, (x, y), START, num_steps=20)
    said = capsys.readouterr().err
    assert "optimising" in said and "20 steps" in said and "sampling" not in said


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_compiled")
def test_new_numbers_compile_nothing():
    x, y = columns()
    how = dict(batch_size=25, num_steps=50)
    run(REGRESSION, (x, y), START, **how)
    before = variational._advance._cache_size()
    moved = dataclasses.replace(REGRESSION)
    run(moved, (x, y + 1), START + 0.5, batch_size=25, num_steps=80, seed=3)
    assert variational._advance._cache_size() == before
    run(REGRESSION, (x, y), START, batch_size=30, num_steps=50)
    assert variational._advance._cache_size() == before + 1  # the test can fail


def test_any_optax_optimiser_sees_the_gradient_of_all_the_data():
    """K tiny steps of gradient descent, over the blocks, move the mean as K over all rows do.

    And that is K rate d ELBO/d mean: of the log posterior at q's mean, since draws are in pairs.
    """
    x, y = columns()
    K, rate = 5, 1e-7
    how = dict(optimizer=optax.sgd(rate), init_sd=0.1, num_steps=K)
    gradient = x.astype(np.float64).T @ y  # at zero
    for change in (dict(batch_size=25), dict()):
        q = run(REGRESSION, (x, y), START, **how, **change)
        np.testing.assert_allclose(q.mean, K * rate * gradient, rtol=1e-3)


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (dict(family="gausian"), "Did you mean 'gaussian'"),
        (dict(family=3), "family must be 'gaussian', 'full-rank' or"),
        (dict(kl_weights="geometrc"), "Did you mean 'geometric'"),
        (dict(num_samples=0), "num_samples must be a whole number, at least 1. Got 0."),
        (dict(num_steps=1.5), "num_steps must be a whole number, at least 1. Got 1.5."),
        (dict(batch_size=1000), "batch_size must lie between 1 and the number of rows, 103"),
        (dict(init_sd=-1.0), "init_sd must be a positive number. Got -1.0."),
        (dict(optimizer="adam"), "optimizer must be an optax transformation"),
        (dict(seed=-1), "seed must be a whole number"),
        (dict(family=Reparameterised(lambda p: dist.Bernoulli(logits=p), START)),
         "BernoulliLogits has no reparameterised sampler"),
        (dict(family=Reparameterised(lambda p: dist.Normal(p[:2], 1.0), START)),
         r"Normal has shape \(2,\); expected \(3,\)"),
        (dict(family=Reparameterised(lambda p: p, START)), "make must return distributions"),
        (dict(family=Reparameterised(lambda p: dist.Normal(p, 1.0), START), init_sd=1.0),
         "init_sd needs a Gaussian"),
    ],
)  # fmt: skip
def test_mistakes_are_answered_in_sentences(change, sentence):
    with pytest.raises(UsageError, match=sentence):
        run(REGRESSION, columns(), START, **change)


def test_other_mistakes():
    with pytest.raises(UsageError, match=r"over must be 'free' or 'position'\. Got 'x'"):
        Reparameterised(dist.Normal, 0.0, over="x")
    with pytest.raises(UsageError, match="no reparameterised sampler"):
        reparameterised_gradient(lambda x: x, dist.Poisson, 2.0)
    positive = sgld.Posterior(lambda r: -r, constraints=constraints.positive)
    family = Reparameterised(lambda p: dist.Exponential(jnp.exp(p)), 0.0)
    with pytest.raises(UsageError, match=r"does not cover the real line.*over='position'"):
        run(positive, None, 1.0, family=family)
    for wrong in (dict(share=1.5), dict(sd1=0.0), dict(sd2=-1.0)):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            scale_mixture_prior(jnp.zeros(2), **wrong)
    with pytest.raises(UsageError, match="num_draws must be a whole number"):
        run(positive, None, 1.0, num_steps=10).draws(0)


def test_an_optimiser_that_diverges_is_a_sentence():
    x, y = columns()
    with pytest.raises(sgld.errors.RunError, match="non-finite at step"):
        run(REGRESSION, (x, y), START, optimizer=optax.sgd(1e3), num_steps=500, init_sd=0.1)
