"""An insurer's table by `sgld fit`, by `sgld.fit` and by NumPyro's NUTS: the same three models three times.

    python benchmarks/insurer.py [--rows 50000] [--only claims,cover,severity]

The table is made: policies with age, years insured, a town of three kinds and one of forty brands of cars (the rarest
with a few rows), and of each
    claims     counts, negative binomial (concentration 1.5), of rate exp(eta) a year; offset(log(years))
    cover      basic, plus or full: a softmax whose log odds lean on age and town
    severity   the mean cost of a claim, gamma (shape 2 a claim), weighted with the number of claims
Every coefficient has the prior normal(0, 2.5). NUTS has the models written out again with NumPyro's own
distributions, 3 chains of 1000 after 500 (of 5000 where rows are few). Right is: means within .1 sd and sds within 7% of NUTS's, over every
reported number; of NUTS's own Monte Carlo error about .03 and 3%.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas
from numpyro.infer import MCMC, NUTS, init_to_value

import sgld

MEAN, SD, PRIOR = 0.1, 0.07, "normal(0, 2.5)"
TOWNS, BRANDS, COVERS = ("inner", "outer", "rural"), 40, ("basic", "full", "plus")
PREDICTORS = "age + C(town) + C(brand)"


def table(rows: int) -> pandas.DataFrame:
    rng = np.random.default_rng(50)
    shares = 1 / np.arange(1, BRANDS + 1) ** 1.3
    policies = pandas.DataFrame({
        "age": rng.integers(18, 85, rows) / 10,
        "years": rng.uniform(0.1, 3.0, rows).round(2),
        "town": rng.choice(TOWNS, rows, p=(0.5, 0.4, 0.1)),
        "brand": np.array([f"b{i:02}" for i in range(BRANDS)])[rng.choice(BRANDS, rows, p=shares / shares.sum())],
    })  # fmt: skip
    of_brand = dict(
        zip(sorted(policies["brand"].unique()), rng.normal(0, 0.3, BRANDS), strict=False)
    )
    brand = policies["brand"].map(of_brand).to_numpy()
    inner, rural = (policies["town"] == name for name in ("inner", "rural"))
    eta = -0.9 - 0.1 * policies["age"] + 0.4 * inner - 0.3 * rural + brand
    policies["claims"] = rng.poisson(
        policies["years"] * np.exp(eta) * rng.gamma(1.5, 1 / 1.5, rows)
    )
    log_odds = np.stack(
        [0 * eta, -1 + 0.2 * policies["age"] - 0.5 * inner, 0.3 + 0.8 * rural - brand]
    )
    policies["cover"] = np.array(COVERS)[
        np.argmax(log_odds + rng.gumbel(size=log_odds.shape), axis=0)
    ]
    mean = np.exp(7.0 + 0.05 * policies["age"] + 0.2 * rural + 0.5 * brand)
    shape = 2.0 * np.maximum(policies["claims"], 1)
    policies["severity"] = rng.gamma(shape, mean / shape)
    return policies


def design(rows: pandas.DataFrame) -> np.ndarray:
    """Intercept, age, two towns, the brands but the first: in the formula's order of levels."""
    columns = [np.ones(len(rows)), rows["age"]]
    for name in ("town", "brand"):
        levels = sorted(rows[name].unique())
        columns += [rows[name] == level for level in levels[1:]]
    return np.stack(columns, axis=1).astype(np.float32)


def claims(X, y, log_years, weight):
    b = numpyro.sample("b", dist.Normal(0, 2.5).expand([X.shape[1]]))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    extra = numpyro.deterministic("extra", spread**2)
    mu = jnp.exp(X @ b + log_years)
    numpyro.sample("y", dist.NegativeBinomial2(mu, 1 / extra), obs=y)


def cover(X, y, log_years, weight):
    b = numpyro.sample("b", dist.Normal(0, 2.5).expand([2, X.shape[1]]))
    logits = jnp.concatenate([jnp.zeros((len(X), 1)), X @ b.T], axis=1)
    numpyro.sample("y", dist.Categorical(logits=logits), obs=y)


def severity(X, y, log_years, weight):
    b = numpyro.sample("b", dist.Normal(0, 2.5).expand([X.shape[1]]))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    shape = numpyro.deterministic("extra", spread**-2)
    law = dist.Gamma(shape, shape / jnp.exp(X @ b))
    numpyro.factor("y", jnp.sum(weight * law.log_prob(y)))


MODELS = {
    "claims": (claims, f"claims ~ {PREDICTORS} + offset(log(years))", "negative-binomial", None),
    "cover": (cover, f"cover ~ {PREDICTORS}", "categorical", None),
    "severity": (severity, f"severity ~ {PREDICTORS}", "gamma", "claims"),
}


def by_nuts(
    model, rows: pandas.DataFrame, name: str, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Means and sds in the order in which the formula's draws report them."""
    y = rows[name].to_numpy()
    y = np.searchsorted(COVERS, y) if name == "cover" else y.astype(np.float32)
    weight = rows["claims"].to_numpy(np.float32)
    values = {"b": jnp.asarray(start)}
    kernel = NUTS(model, dense_mass=True, init_strategy=init_to_value(values=values))
    # the fewer the rows, the more draws there is time for: the largest of 44 sds is off by 5% after 3000
    samples = 5000 if len(rows) < 20_000 else 1000
    mcmc = MCMC(kernel, num_warmup=500, num_samples=samples, num_chains=3, progress_bar=False)
    log_years = np.log(rows["years"].to_numpy(np.float32))
    mcmc.run(jax.random.key(1), design(rows), y, log_years, weight)
    draws = mcmc.get_samples()
    flat = np.asarray(draws["b"]).reshape(3 * samples, -1)
    if "extra" in draws:
        flat = np.concatenate([flat, np.asarray(draws["extra"])[:, None]], axis=1)
    return flat.mean(0), flat.std(0)


def numbers(draws: sgld.Draws) -> tuple[np.ndarray, np.ndarray]:
    rows = draws.summary().parameters.values()
    return np.array([row["mean"] for row in rows]), np.array([row["sd"] for row in rows])


def shell(path: Path, formula: str, family: str, weights: str | None, out: Path) -> sgld.Draws:
    command = [
        sys.executable,
        "-m",
        "sgld",
        "fit",
        path,
        formula,
        "--family",
        family,
    ]
    command += ["--prior", PRIOR, "--out", out, "--quiet"] + (
        ["--weights", weights] if weights else []
    )
    done = subprocess.run([*map(str, command)], check=True, capture_output=True, text=True)
    print(f"  $ sgld fit ... --family {family}: {done.stdout.strip()}")
    return sgld.load(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--only", default=",".join(MODELS))
    given = parser.parse_args()
    everything, wrong = table(given.rows), 0
    with tempfile.TemporaryDirectory() as folder:
        for name in given.only.split(","):
            model, formula, family, weights = MODELS[name]
            rows = everything[everything["claims"] > 0] if name == "severity" else everything
            print(
                f"{name}: {formula}, {family}, {len(rows):,} rows, rarest brand {rows['brand'].value_counts().min()}"
            )
            path = Path(folder, f"{name}.csv")
            rows.to_csv(path, index=False)
            began = time.time()
            typed = shell(path, formula, family, weights, Path(folder, name))
            shelled, began = time.time() - began, time.time()
            fit = sgld.fit(
                rows, formula, family=family, prior=PRIOR, weights=weights, progress=False
            )
            here, began = time.time() - began, time.time()
            start = numbers(fit.draws)[0]
            p = design(rows).shape[1]
            start = start.reshape(2, -1) if name == "cover" else start[:p]
            mean, sd = by_nuts(model, rows, name, start)
            print(
                f"  {mean.size} parameters; sgld fit {shelled:.1f} s, sgld.fit {here:.1f} s, NUTS {time.time() - began:.0f} s"
            )
            for door, draws in (("shell", typed), ("pandas", fit.draws)):
                its_mean, its_sd = numbers(draws)
                off = (np.abs(its_mean - mean) / sd).max()
                wide = np.abs(its_sd / sd - 1).max()
                right = off <= MEAN and wide <= SD
                wrong += not right and draws.verdict.word == "trusted"
                print(
                    f"  {door:<7} means within {off:.3f} sd, sds within {wide:.1%}: {'right' if right else 'off'}; {draws.verdict}"
                )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
