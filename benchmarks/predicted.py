"""What a plan predicts of a run, beside what the run took: gradients, CPU seconds, memory.

    python benchmarks/predicted.py                   ten problems, each in a process of its own
    python benchmarks/predicted.py --only radon,lasso_many

gradients   of single rows (of the log density without data); taken is more where a run was prolonged
seconds     CPU seconds on all cores of sampling and verdict, on a second call, so that nothing compiles;
            `each` is per gradient, taken over predicted: what the constants are off by
memory      peak resident memory of the first call, compilation included
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TEN = (
    "gauss50", "logistic_small", "linear10000", "poisson", "breast_cancer", "eight_schools_noncentred",
    "softmax", "gp_marginal", "radon", "lasso_many",
)  # fmt: skip
HEAD = f"{'':<26}{'gradients':>12}{'taken':>12}{'seconds':>10}{'taken':>8}{'each':>7}{'MiB':>7}{'taken':>7}"


def measured(name: str) -> dict[str, Any]:
    """Predicted and taken, of one problem, in this process."""
    import sgld
    from problems import PROBLEMS, STRUCTURED
    from sgld.inference import execute

    problem = (PROBLEMS | STRUCTURED)[name]()
    spent = [0.0]

    def timed(function: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return function(*args, **named)
            finally:
                spent[0] += time.process_time() - began

        return call

    execute._judged = timed(execute._judged)
    execute.loop.run = timed(execute.loop.run)
    sample = lambda: sgld.sample(problem.posterior, problem.data, problem.init, progress=False)  # noqa: E731
    draws = sample()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10
    spent[0] = 0.0
    draws = sample()
    predicted, setup = draws.plan.predicted, draws.plan.setup
    planned = setup.burn_in + setup.thin * (setup.num_draws - 1) + 1
    return {
        "name": name, "gradients": predicted.gradients, "seconds": predicted.seconds, "bytes": predicted.bytes,
        "gradients taken": predicted.gradients * draws.info["num_steps"] / planned,
        "seconds taken": spent[0], "bytes taken": peak,
    }  # fmt: skip


def line(row: dict[str, Any]) -> str:
    """One row of the table."""
    more = row["gradients taken"] / row["gradients"]
    each = row["seconds taken"] / row["seconds"] / more
    return (
        f"{row['name']:<26}{row['gradients']:>12.2g}{row['gradients taken']:>12.2g}{row['seconds']:>10.2f}"
        f"{row['seconds taken']:>8.2f}{each:>7.2f}{row['bytes'] / 2**20:>7.0f}{row['bytes taken'] / 2**20:>7.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names, comma between")
    parser.add_argument("--case", default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(measured(args.case)))
        return
    print(HEAD)
    for name in args.only.split(",") if args.only else TEN:
        command = [sys.executable, str(Path(__file__).resolve()), "--case", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{name:<26}failed:\n{done.stderr}")
            continue
        print(line(json.loads(done.stdout.splitlines()[-1])), flush=True)


if __name__ == "__main__":
    main()
