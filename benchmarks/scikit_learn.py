"""Measure what a cross-validation of the scikit-learn estimators costs.

    python benchmarks/scikit_learn.py

On 1,000 rows of 20 columns: CPU seconds of a first fit in a process of its own, of a further fit, and
of 5-fold cross-validation, as a multiple of the first fit. Needs `pip install 'sgld[sklearn]'`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import sgld
from harness import Table, command_line, fresh_process, store, timed

KINDS = ("regression", "two classes", "three classes")


def fits(kind: str, rows: int, folds: int) -> dict[str, Any]:
    """Return CPU seconds of a first fit, a further fit and a cross-validation, and the verdict."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 20))
    eta = X @ rng.normal(size=20) / 3
    if kind == "regression":
        estimator, y = sgld.SGLDRegressor(random_state=0), eta + rng.normal(size=rows)
    elif kind == "two classes":
        estimator, y = sgld.SGLDClassifier(random_state=0), eta + rng.logistic(size=rows) > 0
    else:
        etas = X @ rng.normal(size=(20, 3)) / 2
        estimator = sgld.SGLDClassifier(random_state=0)
        y = (etas + rng.gumbel(size=(rows, 3))).argmax(1)
    _, _, first = timed(lambda: estimator.fit(X, y))
    _, _, further = timed(lambda: clone(estimator).fit(X, y))
    _, _, crossed = timed(lambda: cross_val_score(clone(estimator), X, y, cv=folds))
    return {"first": first, "further": further, "folds": crossed, "word": estimator.verdict_.word}


def main() -> None:
    args = command_line(__doc__, parts={"fits": fits})
    table = Table(
        16, {"first fit": ".2f", "further fit": ".2f", "folds": ".2f", "folds / first": ".2f"}
    )
    for kind in KINDS[:1] if args.smoke else KINDS:
        rows, folds = (250, 2) if args.smoke else (1000, 5)
        found = fresh_process(__file__, "fits", kind=kind, rows=rows, folds=folds)
        took = [found[name] for name in ("first", "further", "folds")]
        table.row(kind, *took, took[2] / took[0], note=found["word"])
    if args.store:
        store("scikit_learn", {"table": table.lines})


if __name__ == "__main__":
    main()
