"""Make the long NUTS runs that the gallery's X5, X8 and X9 are held against.

    python benchmarks/gallery_references.py              all, some minutes each
    python benchmarks/gallery_references.py X8

Each writes a small summary, such as `x5_nuts.json`, into src/sgld/gallery, with what the
run reached: ESS, R-hat, divergences. The seconds are those of a machine shared with others.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import sgld
from sgld.gallery import x5, x8, x9
from sgld.results import statistics

FOLDER = Path(sgld.gallery.__file__).parent
SETTINGS = {
    "X5": {"num_chains": 4, "num_warmup": 500, "num_draws": 1500, "seed": 1},
    "X8": {"num_chains": 4, "num_warmup": 1000, "num_draws": 2500, "seed": 1},
    "X9": {"num_chains": 4, "num_warmup": 500, "num_draws": 1000, "seed": 1},
}


def quality(values: np.ndarray) -> dict[str, float]:
    """Smallest ESS of values [chain, draw, m] and of their squares, largest R-hat."""
    weights = np.full(values.shape[:2], 1 / (values.shape[0] * values.shape[1]))
    square = (values - values.mean((0, 1))) ** 2
    return {
        "ess": round(float(np.min(statistics.ess(values, weights)))),
        "ess_square": round(float(np.min(statistics.ess(square, weights)))),
        "r_hat": round(float(np.max(statistics.r_hat(values))), 4),
    }


def welling_teh(logistic: sgld.Draws) -> dict[str, Any]:
    """X9: log joint and accuracy of the logistic regression, Amari distances of both mixtures."""
    train, (X, y) = x9.split(*x9.cancer())
    w = np.asarray(logistic.position)
    joint = np.asarray(x9.log_joint(w, train), np.float64)
    p = 1 / (1 + np.exp(-w.astype(np.float64) @ X.T))
    out = {
        "log_joint": {"mean": joint.mean(), "sd": joint.std(), **quality(joint[..., None])},
        "accuracy": float(np.mean((p.mean((0, 1)) > 0.5) == y)),
        "amari": {},
    }
    for name, (x, A) in x9.mixtures().items():
        start = np.linalg.inv(A).astype(np.float32)
        draws = sgld.reference(x9.ica(), x, start, num_warmup=300, num_draws=500, seed=1)
        found = x9.amari(draws.position, A)
        out["amari"][name] = {"mean": found.mean(), "sd": found.std(), **quality(found[..., None])}
    return out


def facts(draws: sgld.Draws, name: str, seconds: float) -> dict[str, Any]:
    """Of the run: settings, gradients, divergences."""
    info = draws.info
    return {
        "settings": {"method": "nuts", **SETTINGS[name]},
        "num_gradients": info["num_gradients"], "divergences": info["divergences"],
        "seconds": round(seconds),
    }  # fmt: skip


def volatility(draws: sgld.Draws) -> dict[str, Any]:
    """Sigma, nu and the volatility exp(s_i) of X5."""
    position = draws.position
    s = np.asarray(jax.lax.map(x5.latents, jax.tree.map(_flat, position), batch_size=100))
    s = s.reshape(*position["sigma"].shape, -1)
    out: dict[str, Any] = {}
    for name in ("sigma", "nu"):
        x = np.asarray(position[name], np.float64)
        row = {"mean": x.mean(), "sd": x.std(ddof=1), **quality(x[..., None])}
        row["quantiles"] = [float(f"{q:.4g}") for q in np.quantile(x, np.arange(1, 100) / 100)]
        out[name] = row
    every = np.arange(1, x5.DAYS, x5.DAYS_BETWEEN_SHOWN)
    bands = np.quantile(np.exp(s[..., every]), [0.05, 0.5, 0.95], axis=(0, 1))
    out["days"] = every.tolist()
    for name, band in zip(("q05", "q50", "q95"), bands, strict=True):
        out[name] = [float(f"{v:.4g}") for v in band]
    out["s"] = {
        "mean": [float(f"{v:.5g}") for v in s[..., every].mean((0, 1))],
        "sd": [float(f"{v:.4g}") for v in s[..., every].std((0, 1))],
        **quality(s[..., every]),
    }
    return out


def _flat(leaf: Any) -> Any:
    return leaf.reshape(-1, *leaf.shape[2:])


def predictions(draws: sgld.Draws) -> dict[str, Any]:
    """X8's predictive probabilities and epistemic uncertainty at the point and on the map."""
    places = np.concatenate([x8.POINT, x8.PREDICTION_GRID]).astype(np.float32)
    w = jax.tree.map(_flat, draws.position)
    p = jax.lax.map(lambda w: jax.nn.softmax(x8.logits(w, places)), w, batch_size=100)
    p = np.asarray(p, np.float64)
    mean = p.mean(0)
    epistemic = _entropy(mean) - _entropy(p).mean(0)
    at = p[:, 0].reshape(draws.num_chains, draws.num_draws, 3)
    return {
        "point": {"mean": mean[0].tolist(), "sd": p[:, 0].std(0).tolist(), **quality(at),
                  "epistemic": float(epistemic[0])},
        "map": {"mean": np.round(mean[1:], 4).tolist(), "epistemic": np.round(epistemic[1:], 4).tolist(),
                **quality(p[:, 1:].reshape(*at.shape[:2], -1)[..., ::7])},
    }  # fmt: skip


def _entropy(p: np.ndarray) -> np.ndarray:
    return -np.sum(p * np.log(np.maximum(p, 1e-30)), axis=-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SETTINGS), help="X5, X8, X9")
    for name in parser.parse_args().names:
        if name == "X5":
            (posterior, init), data, summary = x5.problem(), None, volatility
        elif name == "X8":
            (posterior, data, init), summary = x8.problem(), predictions
        else:
            data, init = x9.split(*x9.cancer())[0], np.zeros(31, np.float32)
            posterior, summary = x9.logistic(), welling_teh
        began = time.perf_counter()
        draws = sgld.reference(posterior, data, init, **SETTINGS[name])
        found = {**facts(draws, name, time.perf_counter() - began), **summary(draws)}
        text = json.dumps(found, separators=(",", ":"))
        (FOLDER / f"{name.lower()}_nuts.json").write_text(text.replace(',"', ',\n"') + "\n")
        shown = {
            k: v for k, v in found.items() if k not in ("days", "q05", "q50", "q95", "s", "map")
        }
        print(name, draws.verdict, shown, flush=True)


if __name__ == "__main__":
    main()
