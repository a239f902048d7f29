"""A logistic regression written for NumPyro, a million rows: `sgld.sample`, NUTS and HMCECS.

    python benchmarks/numpyro_million.py [ROWS]

The model is NumPyro's, unchanged; `sgld.sample(model, (X, y))` is the whole of the other side.

NUTS is extrapolated: seconds of a gradient over all rows, measured here, times the gradients that 1000
iterations of warm-up and 1000 draws of one chain take on 10,000 of the rows. HMCECS (Dang et al. 2019) is
run: NUTS on subsamples of 1000 rows with a second-order Taylor proxy around the posterior mean, which it is
told, one chain of 500 after 500; its seconds are also given per 1000 effective draws.
"""

from __future__ import annotations

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import HMCECS, MCMC, NUTS
from numpyro.infer.util import log_density

import sgld

COLUMNS, SUBSAMPLE, FEW = 10, 1000, 10_000
WARM_UP, DRAWS = 1000, 1000


def model(X, y=None, subsample_size=None):
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 5.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.5).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0], subsample_size=subsample_size):
        batch = numpyro.subsample(X, event_dim=1)
        outcome = numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", dist.Bernoulli(logits=alpha + batch @ beta), obs=outcome)


def rows(count):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(count, COLUMNS)).astype(np.float32)
    logits = -0.5 + X @ np.linspace(-0.5, 0.5, COLUMNS)
    return X, (rng.uniform(size=count) < 1 / (1 + np.exp(-logits))).astype(np.int32)


def timed(call):
    began = time.perf_counter()
    value = call()
    return value, time.perf_counter() - began


def gradient_seconds(X, y):
    """Of one gradient of the full density, compiled."""
    arguments = (jnp.asarray(X), jnp.asarray(y))
    position = {"alpha": jnp.zeros(()), "beta": jnp.zeros(COLUMNS)}
    slope = jax.jit(jax.grad(lambda p, a: log_density(model, a, {}, p)[0]))
    jax.block_until_ready(slope(position, arguments))
    each = [timed(lambda: jax.block_until_ready(slope(position, arguments)))[1] for _ in range(10)]
    return float(np.median(each))


def nuts_gradients(X, y):
    """Gradients of warm-up and draws of one chain on few rows."""
    mcmc = MCMC(NUTS(model), num_warmup=WARM_UP, num_samples=DRAWS, progress_bar=False)
    mcmc.warmup(jax.random.key(0), X, y, extra_fields=("num_steps",), collect_warmup=True)
    steps = int(np.sum(mcmc.get_extra_fields()["num_steps"]))
    mcmc.run(jax.random.key(1), X, y, extra_fields=("num_steps",))
    ess = effective_sample_size(np.asarray(mcmc.get_samples()["beta"])[None])
    return steps + int(np.sum(mcmc.get_extra_fields()["num_steps"])), float(ess.min())


def hmcecs(X, y, center):
    kernel = HMCECS(NUTS(model), num_blocks=10, proxy=HMCECS.taylor_proxy(center, degree=2))
    mcmc = MCMC(kernel, num_warmup=DRAWS // 2, num_samples=DRAWS // 2, progress_bar=False)
    mcmc.run(jax.random.key(0), X, y, SUBSAMPLE)
    return {name: np.asarray(v) for name, v in mcmc.get_samples().items()}


def main(count):
    X, y = rows(count)
    print(f"{count} rows x {COLUMNS} columns")
    draws, first = timed(lambda: sgld.sample(model, (X, y), progress=False))
    _, later = timed(lambda: sgld.sample(model, (X, y), seed=1, progress=False))
    summary = draws.summary().parameters.values()
    ess = min(row["ess_bulk"] or 0.0 for row in summary)
    print(
        f"sgld.sample        {first:.1f} s, again {later:.1f} s, ESS {ess:.0f}, {draws.verdict}",
        flush=True,
    )
    each, (gradients, found) = gradient_seconds(X, y), nuts_gradients(X[:FEW], y[:FEW])
    print(
        f"NUTS, extrapolated {each * gradients:.0f} s ({gradients} gradients of {1e3 * each:.1f} ms), ESS {found:.0f}: "
        f"{each * gradients / first:.0f} times as long as a first call",
        flush=True,
    )
    center = {name: jnp.asarray(v) for name, v in draws.mean().items()}
    samples, seconds = timed(lambda: hmcecs(X, y, center))
    beta = samples["beta"]
    found = float(effective_sample_size(beta[None]).min())
    off = np.max(np.abs(beta.mean(0) - draws.mean()["beta"]) / draws.sd()["beta"])
    wide = np.max(np.abs(beta.std(0) / draws.sd()["beta"] - 1))
    print(
        f"HMCECS             {seconds:.0f} s, ESS {found:.0f}: {1000 * seconds / found:.0f} s for 1000; means within "
        f"{off:.2f} sd of ours, sds within {100 * wide:.0f}%"
    )


if __name__ == "__main__":
    main(int(float(sys.argv[1])) if len(sys.argv) > 1 else 1_000_000)
