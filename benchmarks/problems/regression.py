"""Regressions of counts, amounts and categories. The truth is a stored NUTS run."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

import sgld

from .binary import columns, standardised
from .truth import Problem, bundled

POSITIVE = constraints.positive


def normal_prior(b, sd=2.0):
    return dist.Normal(0.0, sd).log_prob(b).sum()


def poisson_model(X: np.ndarray, y: np.ndarray, name: str) -> Problem:
    posterior = sgld.Posterior(
        normal_prior, lambda b, row: dist.Poisson(jnp.exp(row[0] @ b)).log_prob(row[1])
    )
    return Problem(name, posterior, (X, y), jnp.zeros(X.shape[1]), None)


def poisson() -> Problem:
    rng = np.random.default_rng(21)
    X = columns(rng, 5000, 5, 0.8)
    y = rng.poisson(np.exp(X @ np.array([0.0, 0.3, -0.2, 0.1, 0.2])))
    return poisson_model(X, y.astype(np.float32), "poisson")


def rand_poisson() -> Problem:
    """Doctor visits of 2,000 rows of the bundled RAND data: far more spread than Poisson's."""
    table = bundled("randhie.csv")
    table = table[np.random.default_rng(22).choice(len(table), 2000, replace=False)]
    X = (table[:, 1:] - table[:, 1:].mean(0)) / table[:, 1:].std(0)
    X = np.hstack([np.ones((2000, 1)), X]).astype(np.float32)
    return poisson_model(X, table[:, 0].astype(np.float32), "rand_poisson")


def negative_binomial() -> Problem:
    rng = np.random.default_rng(23)
    X = columns(rng, 1000, 4, 0.5)
    rate = np.exp(X @ np.array([1.0, 0.4, -0.3, 0.2])) * rng.gamma(1.5, 1 / 1.5, 1000)
    y = rng.poisson(rate).astype(np.float32)
    posterior = sgld.Posterior(
        lambda p: normal_prior(p["beta"]) + dist.Gamma(2.0, 0.5).log_prob(p["shape"]),
        lambda p, row: dist.NegativeBinomial2(jnp.exp(row[0] @ p["beta"]), p["shape"]).log_prob(
            row[1]
        ),
        constraints={"beta": constraints.real, "shape": POSITIVE},
    )
    init = {"beta": jnp.zeros(4), "shape": jnp.ones(())}
    return Problem("negative_binomial", posterior, (X, y), init, None)


def gamma_regression() -> Problem:
    rng = np.random.default_rng(24)
    X = columns(rng, 400, 3, 0.3)
    y = rng.gamma(2.0, np.exp(X @ np.array([0.5, 0.6, -0.4])) / 2.0).astype(np.float32)
    posterior = sgld.Posterior(
        lambda p: normal_prior(p["beta"]) + dist.HalfNormal(5.0).log_prob(p["shape"]),
        lambda p, row: dist.Gamma(p["shape"], p["shape"] * jnp.exp(-row[0] @ p["beta"])).log_prob(
            row[1]
        ),
        constraints={"beta": constraints.real, "shape": POSITIVE},
    )
    init = {"beta": jnp.zeros(3), "shape": jnp.ones(())}
    return Problem("gamma_regression", posterior, (X, y), init, None)


def student_t() -> Problem:
    """Errors of Student's t with 3 degrees of freedom, fitted with 4."""
    rng = np.random.default_rng(25)
    X = columns(rng, 500, 4, 0.5)
    y = (X @ np.array([1.0, 0.5, -0.5, 0.0]) + rng.standard_t(3, 500)).astype(np.float32)
    posterior = sgld.Posterior(
        lambda p: normal_prior(p["beta"], 5.0) + dist.HalfCauchy(2.0).log_prob(p["sigma"]),
        lambda p, row: dist.StudentT(4.0, row[0] @ p["beta"], p["sigma"]).log_prob(row[1]),
        constraints={"beta": constraints.real, "sigma": POSITIVE},
    )
    init = {"beta": jnp.zeros(4), "sigma": jnp.ones(())}
    return Problem("student_t", posterior, (X, y), init, None)


def diabetes_linear() -> Problem:
    """scikit-learn's diabetes, standardised outcome and columns, unknown sigma."""
    from sklearn.datasets import load_diabetes

    X, y = standardised(load_diabetes)
    data = (X.astype(np.float32), ((y - y.mean()) / y.std()).astype(np.float32))
    posterior = sgld.Posterior(
        lambda p: normal_prior(p["beta"], 1.0) + dist.HalfNormal(1.0).log_prob(p["sigma"]),
        lambda p, row: dist.Normal(row[0] @ p["beta"], p["sigma"]).log_prob(row[1]),
        constraints={"beta": constraints.real, "sigma": POSITIVE},
    )
    init = {"beta": jnp.zeros(11), "sigma": jnp.ones(())}
    return Problem("diabetes_linear", posterior, data, init, None)


def lasso() -> Problem:
    """Laplace priors of scale .1 on four coefficients, two of them 0: kinks at the mode."""
    rng = np.random.default_rng(26)
    X = columns(rng, 100, 5, 0.3)
    y = (X @ np.array([0.5, 1.0, -0.5, 0.0, 0.0]) + rng.standard_normal(100)).astype(np.float32)
    posterior = sgld.Posterior(
        lambda b: (
            dist.Normal(0.0, 5.0).log_prob(b[0]) + dist.Laplace(0.0, 0.1).log_prob(b[1:]).sum()
        ),
        lambda b, row: dist.Normal(row[0] @ b, 1.0).log_prob(row[1]),
    )
    return Problem("lasso", posterior, (X, y), jnp.zeros(5), None)


def softmax() -> Problem:
    """Three classes, the first the baseline."""
    rng = np.random.default_rng(27)
    X = columns(rng, 1000, 4, 0.3)
    W = np.array([[0.0, 0.5], [1.0, -0.5], [-0.5, 0.8], [0.3, 0.2]])
    logits = np.hstack([np.zeros((1000, 1)), X @ W])
    y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)

    def log_likelihood(W, row):
        x, label = row
        return jax.nn.log_softmax(jnp.concatenate([jnp.zeros(1), x @ W]))[label]

    posterior = sgld.Posterior(normal_prior, log_likelihood)
    return Problem("softmax", posterior, (X, y.astype(np.int32)), jnp.zeros((4, 2)), None)


def ordinal() -> Problem:
    """Four ordered answers, cutpoints in increasing order by constraint."""
    rng = np.random.default_rng(28)
    X = rng.standard_normal((400, 3)).astype(np.float32)
    latent = X @ np.array([1.0, -0.5, 0.3]) + rng.logistic(size=400)
    y = np.searchsorted(np.array([-1.5, 0.0, 2.0]), latent).astype(np.int32)
    posterior = sgld.Posterior(
        lambda p: normal_prior(p["beta"]) + dist.Normal(0.0, 3.0).log_prob(p["cut"]).sum(),
        lambda p, row: dist.OrderedLogistic(row[0] @ p["beta"], p["cut"]).log_prob(row[1]),
        constraints={"beta": constraints.real, "cut": constraints.ordered_vector},
    )
    init = {"beta": jnp.zeros(3), "cut": jnp.array([-1.0, 0.0, 1.0])}
    return Problem("ordinal", posterior, (X, y), init, None)
