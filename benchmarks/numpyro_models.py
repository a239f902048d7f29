"""Five NumPyro models, as their users write them, by `sgld.sample` and by NumPyro's own NUTS.

    python benchmarks/numpyro_models.py [NAME ...]

Prints, per model, the largest difference of means in NUTS's sd, the largest relative difference of sds,
both over all reported numbers, the seconds of either, and the verdict. Right is: means within .1 sd and
sds within 7%, or a verdict that is not `trusted`. NUTS: 4 chains of 1500 after 1000 of warm-up.
"""

from __future__ import annotations

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS
from numpyro.infer.reparam import TransformReparam

import sgld

MEAN, SD = 0.1, 0.07
MODELS = {}


def problem(data):
    """Registers a model with what makes its arguments."""

    def keep(model):
        MODELS[model.__name__] = (model, data)
        return model

    return keep


def linear_data(rng):
    x = rng.normal(size=(2000, 8))
    return {"X": x, "y": x @ rng.normal(size=8) + 1.5 + 0.7 * rng.normal(size=2000)}


@problem(linear_data)
def linear(X, y=None):
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 10.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.5).expand([X.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Normal(alpha + X @ beta, sigma), obs=y)


def schools_data(rng):
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    return {"J": 8, "sigma": np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]), "y": y}


@problem(schools_data)
def eight_schools(J, sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("J", J):
        with numpyro.handlers.reparam(config={"theta": TransformReparam()}):
            theta = numpyro.sample(
                "theta",
                dist.TransformedDistribution(
                    dist.Normal(0.0, 1.0), dist.transforms.AffineTransform(mu, tau)
                ),
            )
        numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)


def horseshoe_data(rng):
    x = rng.normal(size=(500, 10))
    logits = x[:, 0] * 2.0 - x[:, 1] * 1.5
    return {"X": x, "Y": rng.binomial(1, 1 / (1 + np.exp(-logits)))}


@problem(horseshoe_data)
def horseshoe(X, Y):
    D_X = X.shape[1]
    lambdas = numpyro.sample("lambdas", dist.HalfCauchy(jnp.ones(D_X)))
    tau = numpyro.sample("tau", dist.HalfCauchy(jnp.ones(1)))
    unscaled_betas = numpyro.sample("unscaled_betas", dist.Normal(0.0, jnp.ones(D_X)))
    scaled_betas = numpyro.deterministic("betas", tau * lambdas * unscaled_betas)
    with numpyro.plate("N", X.shape[0]):
        numpyro.sample("Y", dist.Bernoulli(logits=X @ scaled_betas), obs=Y)


def counts_data(rng):
    x = rng.normal(size=(3000, 5))
    mean = np.exp(1.0 + x @ np.array([0.3, -0.2, 0.1, 0.0, 0.5]))
    return {"X": x, "y": rng.poisson(rng.gamma(1.5, mean / 1.5))}


@problem(counts_data)
def negative_binomial(X, y=None):
    b0 = numpyro.sample("b0", dist.Normal(0.0, 5.0))
    b = numpyro.sample("b", dist.Normal(jnp.zeros(X.shape[1]), 1.0))
    phi = numpyro.sample("phi", dist.Exponential(1.0))
    with numpyro.plate("obs", len(X)):
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(b0 + jnp.dot(X, b)), phi), obs=y)


def cafes_data(rng):
    """The cafes of McElreath's Statistical Rethinking, chapter 14."""
    cafe, afternoon = np.repeat(np.arange(20), 10), np.tile([0, 1], 100)
    cov = np.outer([1.0, 0.5], [1.0, 0.5]) * np.array([[1.0, -0.7], [-0.7, 1.0]])
    effect = rng.multivariate_normal([3.5, -1.0], cov, size=20)
    mean = effect[cafe, 0] + effect[cafe, 1] * afternoon
    return {"cafe": cafe, "afternoon": afternoon, "N_cafes": 20, "wait": rng.normal(mean, 0.5)}


@problem(cafes_data)
def varying_slopes(cafe, afternoon, N_cafes, wait=None):
    a = numpyro.sample("a", dist.Normal(5, 2))
    b = numpyro.sample("b", dist.Normal(-1, 0.5))
    sigma_cafe = numpyro.sample("sigma_cafe", dist.Exponential(1).expand([2]))
    sigma = numpyro.sample("sigma", dist.Exponential(1))
    Rho = numpyro.sample("Rho", dist.LKJ(2, concentration=2))
    cov = jnp.outer(sigma_cafe, sigma_cafe) * Rho
    with numpyro.plate("cafes", N_cafes):
        a_b = numpyro.sample("a_cafe,b_cafe", dist.MultivariateNormal(jnp.stack([a, b]), cov))
    mu = a_b[cafe, 0] + a_b[cafe, 1] * afternoon
    with numpyro.plate("visits", len(cafe)):
        numpyro.sample("wait", dist.Normal(mu, sigma), obs=wait)


def by_nuts(model, arguments):
    mcmc = MCMC(
        NUTS(model), num_warmup=1000, num_samples=1500, num_chains=4,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    mcmc.run(jax.random.key(1), **arguments)
    return {name: np.asarray(values, float) for name, values in mcmc.get_samples().items()}


def compared(draws, samples):
    """The largest difference of means, in sd, and of sds, over all numbers that vary, and where."""
    mean, sd = draws.mean(), draws.sd()
    worst = {"mean": (0.0, ""), "sd": (0.0, "")}
    for name in samples.keys() & mean.keys():
        m, s = samples[name].mean(0), samples[name].std(0)
        varies = s > 1e-6
        for word, gap in (
            ("mean", np.abs(mean[name] - m) / np.where(varies, s, 1.0)),
            ("sd", np.abs(sd[name] / np.where(varies, s, 1.0) - 1)),
        ):
            worst[word] = max(worst[word], (float(np.max(np.where(varies, gap, 0.0))), name))
    return worst


def main(names):
    for name in names or MODELS:
        model, data = MODELS[name]
        arguments = data(np.random.default_rng(0))
        began = time.perf_counter()
        draws = sgld.sample(model, arguments, progress=False)
        ours = time.perf_counter() - began
        began = time.perf_counter()
        samples = by_nuts(model, arguments)
        theirs = time.perf_counter() - began
        worst = compared(draws, samples)
        right = worst["mean"][0] < MEAN and worst["sd"][0] < SD
        said = "right" if right else "flagged" if draws.verdict.word != "trusted" else "WRONG"
        print(
            f"{name:<18} mean {worst['mean'][0]:.3f} sd ({worst['mean'][1]})  sd {worst['sd'][0]:.3f} "
            f"({worst['sd'][1]})  {ours:.0f} s, NUTS {theirs:.0f} s  {draws.verdict.word}: {said}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
