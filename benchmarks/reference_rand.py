"""The default `sgld.sample` against long NUTS: RAND by Poisson and logistic regression, the
handout's line by Gaussian regression. Prints a table; the numbers are the result.

    python benchmarks/reference_rand.py [--draws 2000] [--warmup 500] [--seeds 1 2 3]
"""

from __future__ import annotations

import argparse
import time

import pyarrow as pa

import sgld
from sgld.data.tables import bundled, read_table
from sgld.regression.formula import FormulaModel

PREDICTORS = "lncoins + idp + lpi + fmde + physlm + disea + hlthg + hlthf + hlthp"


def models():
    rand = read_table(bundled("randhie"))
    yield "RAND poisson", FormulaModel.build(rand, f"mdvis ~ {PREDICTORS}", "poisson")
    some = pa.array([int(count > 0) for count in rand["mdvis"].to_pylist()])
    rand = rand.append_column("visited", some)
    yield "RAND bernoulli", FormulaModel.build(rand, f"visited ~ {PREDICTORS}", "bernoulli")
    line = read_table(bundled("handout_regression"))
    yield "handout gaussian", FormulaModel.build(line, "y ~ x", "gaussian")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    args = parser.parse_args()
    head = ("", "seconds", "worst mean error (sd)", "sd ratios", "verdict")
    print(("{:<24}{:>9}  {:<34}{:<16}{}").format(*head))
    for title, model in models():
        truth = sgld.reference(
            model.posterior, model.data, num_draws=args.draws, num_warmup=args.warmup
        )
        print(f"{title + ', NUTS':<24}{truth.info['seconds']:>9.1f}  {'':<50}{truth.verdict}")
        began = time.perf_counter()
        draws = sgld.laplace(model.posterior, model.data)
        show("laplace", began, draws, truth, f"nu = {draws.info['nu']:.2g}")
        for seed in args.seeds:
            began = time.perf_counter()
            draws = sgld.sample(model.posterior, model.data, seed=seed)
            show(f"sgld seed {seed}", began, draws, truth, str(draws.verdict))


def show(name: str, began: float, draws: sgld.Draws, truth: sgld.Draws, verdict: str) -> None:
    seconds = time.perf_counter() - began
    table = sgld.compare(draws, truth)
    at = table.worst_mean or 0
    mean = f"{table.mean_error[at]:+.3f} +- {table.mean_error_se[at]:.3f} {table.names[at]}"
    ratios = f"{table.sd_ratio.min():.3f} - {table.sd_ratio.max():.3f}"
    print(f"  {name:<22}{seconds:>9.1f}  {mean:<34}{ratios:<16}{verdict}", flush=True)


if __name__ == "__main__":
    main()
