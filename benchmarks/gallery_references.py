"""Make the long NUTS runs with which the gallery's X5, X8 and X9 are compared.

    python benchmarks/gallery_references.py              all, some minutes each
    python benchmarks/gallery_references.py --only X8

Each writes a small summary, such as `x5_nuts.json`, into src/sgld/gallery, with what the run reached:
ESS, R-hat, divergences and seconds.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

import sgld
from harness import command_line, timed
from sgld.gallery import x5, x8, x9

FOLDER = Path(x5.__file__).parent
SETTINGS = {
    "X5": {"num_chains": 4, "num_warmup": 500, "num_draws": 1500, "seed": 1},
    "X8": {"num_chains": 4, "num_warmup": 1000, "num_draws": 2500, "seed": 1},
    "X9": {"num_chains": 4, "num_warmup": 500, "num_draws": 1000, "seed": 1},
}
SMOKE = {"num_chains": 2, "num_warmup": 20, "num_draws": 20, "seed": 1}


def quality(values: np.ndarray) -> dict[str, float]:
    """Return the smallest ESS of values [chain, draw, m] and of their squares, and the largest R-hat."""
    x = np.asarray(values, np.float64)
    sizes = [np.min(effective_sample_size(v)) for v in (x, (x - x.mean((0, 1))) ** 2)]
    r_hat = round(float(np.max(split_gelman_rubin(x))), 4)
    return {"ess": round(float(sizes[0])), "ess_square": round(float(sizes[1])), "r_hat": r_hat}


def rounded(values: Any, digits: int = 4) -> list[float]:
    return [float(f"{v:.{digits}g}") for v in values]


def flat(tree: Any) -> Any:
    """Return the draws of all chains behind one another."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)


def welling_teh(mixtures: dict[str, Any], logistic: sgld.Draws) -> dict[str, Any]:
    """Return log joint and accuracy of X9's logistic regression, and Amari distances of its mixtures."""
    train, (X, y) = x9.split(*x9.cancer())
    w = np.asarray(logistic.position)
    joint = np.asarray(x9.log_joint(w, train), np.float64)
    p = 1 / (1 + np.exp(-w.astype(np.float64) @ X.T))
    amari = {}
    for name, (x, A) in mixtures.items():
        start = np.linalg.inv(A).astype(np.float32)
        draws = sgld.reference(x9.ica(), x, start, num_warmup=300, num_draws=500, seed=1)
        found = x9.amari(draws.position, A)
        amari[name] = {"mean": found.mean(), "sd": found.std(), **quality(found[..., None])}
    accuracy = float(np.mean((p.mean((0, 1)) > 0.5) == y))
    log_joint = {"mean": joint.mean(), "sd": joint.std(), **quality(joint[..., None])}
    return {"log_joint": log_joint, "accuracy": accuracy, "amari": amari}


def volatility(draws: sgld.Draws) -> dict[str, Any]:
    """Return sigma, nu and the volatility exp(s_i) of X5."""
    s = np.asarray(jax.lax.map(x5.latents, flat(draws.position), batch_size=100))
    s = s.reshape(*draws.position["sigma"].shape, -1)
    out: dict[str, Any] = {}
    for name in ("sigma", "nu"):
        x = np.asarray(draws.position[name], np.float64)
        quantiles = rounded(np.quantile(x, np.arange(1, 100) / 100))
        summary = {"mean": x.mean(), "sd": x.std(ddof=1)}
        out[name] = {**summary, **quality(x[..., None]), "quantiles": quantiles}
    every = np.arange(1, x5.DAYS, x5.DAYS_BETWEEN_SHOWN)
    s = s[..., every]
    out["days"] = every.tolist()
    bands = np.quantile(np.exp(s), [0.05, 0.5, 0.95], axis=(0, 1))
    out |= {name: rounded(band) for name, band in zip(("q05", "q50", "q95"), bands, strict=True)}
    out["s"] = {"mean": rounded(s.mean((0, 1)), 5), "sd": rounded(s.std((0, 1))), **quality(s)}
    return out


def predictions(draws: sgld.Draws) -> dict[str, Any]:
    """Return X8's predictive probabilities and epistemic uncertainty at the point and on the map."""
    entropy = lambda p: -np.sum(p * np.log(np.maximum(p, 1e-30)), axis=-1)  # noqa: E731
    places = np.concatenate([x8.POINT, x8.PREDICTION_GRID]).astype(np.float32)
    softmax = lambda w: jax.nn.softmax(x8.logits(w, places))  # noqa: E731
    p = np.asarray(jax.lax.map(softmax, flat(draws.position), batch_size=100), np.float64)
    mean = p.mean(0)
    epistemic = entropy(mean) - entropy(p).mean(0)
    chains = (draws.num_chains, draws.num_draws)
    point, rest = p[:, 0].reshape(*chains, 3), p[:, 1:].reshape(*chains, -1)[..., ::7]
    return {
        "point": {"mean": mean[0].tolist(), "sd": p[:, 0].std(0).tolist(), **quality(point),
                  "epistemic": float(epistemic[0])},
        "map": {"mean": np.round(mean[1:], 4).tolist(), "epistemic": np.round(epistemic[1:], 4).tolist(),
                **quality(rest)},
    }  # fmt: skip


def main() -> None:
    args = command_line(__doc__, SETTINGS)
    for name in ["X9"] if args.smoke else args.only:
        if name == "X5":
            (posterior, init), data, summary = x5.problem(), None, volatility
        elif name == "X8":
            (posterior, data, init), summary = x8.problem(), predictions
        else:
            data, init = x9.split(*x9.cancer())[0], np.zeros(31, np.float32)
            mixtures = {} if args.smoke else x9.mixtures()
            posterior, summary = x9.logistic(), partial(welling_teh, mixtures)
        settings = SMOKE if args.smoke else SETTINGS[name]
        draws, seconds, _ = timed(lambda: sgld.reference(posterior, data, init, **settings))  # noqa: B023
        found = {
            "settings": {"method": "nuts", **settings}, "seconds": round(seconds),
            "num_gradients": draws.info["num_gradients"], "divergences": draws.info["divergences"],
            **summary(draws),
        }  # fmt: skip
        text = json.dumps(found, separators=(",", ":")).replace(',"', ',\n"') + "\n"
        if not args.smoke:
            (FOLDER / f"{name.lower()}_nuts.json").write_text(text)
        print(name, draws.verdict, f"{len(text)} characters", flush=True)


if __name__ == "__main__":
    main()
