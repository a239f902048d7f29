"""The scikit-learn estimators beside scikit-learn's own, and what a cross-validation costs.

    python benchmarks/sklearn_doors.py [--only accuracy,coverage,folds]
    python benchmarks/sklearn_doors.py --only digits,diabetes --left-out 1    one fold of five, in minutes

Needs `pip install 'sgld[sklearn]'`. Everything by 5-fold cross-validation on columns scaled to mean 0 and
sd 1 of the training rows, test rows only:

    accuracy     breast cancer (569 x 30), digits (1797 x 64, 10 classes): accuracy and log score (mean log
                 probability of the right class, in nats) beside LogisticRegression, which has the same
                 prior as its penalty
                 diabetes (442 x 10): R^2 and log score (mean log density) beside BayesianRidge
    coverage     diabetes: share of outcomes inside their 50, 80, 90 and 95% intervals
    folds        1,000 x 20: CPU seconds of a first fit in a process of its own, of a further fit, and
                 of 5-fold cross-validation, as a multiple of the first fit
"""

from __future__ import annotations

import argparse
import itertools
import resource
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sgld import SGLDClassifier, SGLDRegressor


def seconds() -> float:
    """CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def verdicts(fitted: list[Any]) -> str:
    """How many folds are trusted."""
    words = [getattr(model[-1], "verdict_", None) for model in fitted]
    known = [word.word for word in words if word is not None]
    return f"{known.count('trusted')} of {len(known)} trusted" if known else ""


def folds(
    estimator: Any, X: np.ndarray, y: np.ndarray, split: Any, count: int | None = None
) -> tuple[list[Any], list[Any]]:
    """The estimator fitted on each fold behind a scaler, or on so many, and the rows left out."""
    pipes, tests = [], []
    for train, test in itertools.islice(split.split(X, y), count):
        pipes.append(make_pipeline(StandardScaler(), clone(estimator)).fit(X[train], y[train]))
        tests.append(test)
    return pipes, tests


def classified(name: str, X: np.ndarray, y: np.ndarray, count: int | None) -> None:
    split = StratifiedKFold(5, shuffle=True, random_state=0)
    for label, estimator in (
        ("SGLDClassifier", SGLDClassifier(random_state=0)),
        ("SGLDClassifier, l2, C = 1", SGLDClassifier(penalty="l2", C=1.0, random_state=0)),
        ("LogisticRegression, C = 1", LogisticRegression(max_iter=2000)),
    ):
        began = seconds()
        pipes, tests = folds(estimator, X, y, split, count)
        right, score = [], []
        for pipe, test in zip(pipes, tests, strict=True):
            p = pipe.predict_proba(X[test])
            right.append(pipe.classes_[p.argmax(1)] == y[test])
            score.append(np.log(p[np.arange(len(test)), np.searchsorted(pipe.classes_, y[test])]))
        row(
            name,
            label,
            np.concatenate(right).mean(),
            np.concatenate(score),
            seconds() - began,
            pipes,
        )


def regressed(name: str, X: np.ndarray, y: np.ndarray, count: int | None) -> None:
    split = KFold(5, shuffle=True, random_state=0)
    for label, estimator in (
        ("SGLDRegressor", SGLDRegressor(random_state=0)),
        ("SGLDRegressor, l1, C = 20", SGLDRegressor(penalty="l1", C=20.0, random_state=0)),
        ("BayesianRidge", BayesianRidge()),
    ):
        began = seconds()
        pipes, tests = folds(estimator, X, y, split, count)
        r2, score = [], []
        for pipe, test in zip(pipes, tests, strict=True):
            mean, sd = pipe.predict(X[test], return_std=True)
            r2.append(1 - np.mean((y[test] - mean) ** 2) / np.var(y[test]))
            score.append(stats.norm.logpdf(y[test], mean, sd))
        row(name, label, np.mean(r2), np.concatenate(score), seconds() - began, pipes)


def row(name: str, label: str, first: float, score: np.ndarray, spent: float, pipes: list) -> None:
    error = score.std() / np.sqrt(len(score))
    print(
        f"{name:<14} {label:<26} {first:8.4f} {score.mean():10.4f} +- {error:.4f} {spent:8.1f}  {verdicts(pipes)}",
        flush=True,
    )


TABLES = {
    "cancer": (classified, "breast cancer", load_breast_cancer),
    "digits": (classified, "digits", load_digits),
    "diabetes": (regressed, "diabetes", load_diabetes),
}


def accuracy(tables: list[str], count: int | None) -> None:
    print(f"{'':<14} {'':<26} {'accuracy':>8} {'log score':>10} {'':>9} {'CPU s':>8}")
    print(f"{'':<14} {'':<26} {'or R^2':>8}")
    for table in tables:
        compare, name, load = TABLES[table]
        compare(name, *load(return_X_y=True), count)


def coverage() -> None:
    X, y = load_diabetes(return_X_y=True)
    split = KFold(10, shuffle=True, random_state=1)
    pipes, tests = folds(SGLDRegressor(random_state=0), X, y, split)
    for prob in (0.5, 0.8, 0.9, 0.95):
        inside = []
        for pipe, test in zip(pipes, tests, strict=True):
            lower, upper = pipe.predict(X[test], return_interval=prob)[1].T
            inside.append((lower <= y[test]) & (y[test] <= upper))
        share = np.concatenate(inside)
        error = np.sqrt(prob * (1 - prob) / len(share))
        print(
            f"{prob:.0%} intervals of diabetes hold {share.mean():.1%} +- {error:.1%} of {len(share)}"
        )


def one_structure(kind: str) -> None:
    """First fit, further fit and cross-validation of one structure, in a fresh process."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 20))
    eta = X @ rng.normal(size=20) / 3
    if kind == "regression":
        estimator, y = SGLDRegressor(random_state=0), eta + rng.normal(size=1000)
    elif kind == "two classes":
        estimator, y = SGLDClassifier(random_state=0), eta + rng.logistic(size=1000) > 0
    else:
        etas = X @ rng.normal(size=(20, 3)) / 2
        estimator, y = SGLDClassifier(random_state=0), (etas + rng.gumbel(size=(1000, 3))).argmax(1)
    began = seconds()
    estimator.fit(X, y)
    first = seconds() - began
    began = seconds()
    clone(estimator).fit(X, y)
    further = seconds() - began
    began = seconds()
    cross_val_score(clone(estimator), X, y, cv=5)
    five = seconds() - began
    print(
        f"{kind:<16} first fit {first:6.2f}   a further fit {further:5.2f}   five folds {five:5.2f}: "
        f"{five / first:.2f} times the first    {estimator.verdict_.word}",
        flush=True,
    )


KINDS = ("regression", "two classes", "three classes")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="accuracy,coverage,folds")
    parser.add_argument("--left-out", type=int, metavar="FOLDS", help="of five, so many alone")
    parser.add_argument("--one", choices=KINDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # the table tells what is not trusted
    if arguments.one:
        one_structure(arguments.one)
        return
    for part in arguments.only.split(","):
        if part == "folds":
            for kind in KINDS:
                subprocess.run([sys.executable, __file__, "--one", kind], check=True)
        elif part == "coverage":
            coverage()
        else:
            accuracy(list(TABLES) if part == "accuracy" else [part], arguments.left_out)


if __name__ == "__main__":
    main()
