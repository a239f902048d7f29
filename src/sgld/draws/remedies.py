"""Remedies in the language of the door they are read at.

All sentences of this package, errors too, speak Python, which is what `sgld.load` and summary.json hand on. At the
command line, and in the report of a run that was begun there, the same sentence names commands and options as they
are spelled there, and leaves out what has none. What is somebody's own, in quotation marks, stays as it is.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["at_the_shell"]

# arguments that are options of the same name
OPTIONS = "|".join((
    "tolerance", "temperature", "prior", "family", "weights", "trials", "missing", "table", "database", "sep",
    "decimal", "sampler", "seed", "method", "kind", "prob", "drop", "out", "batch_size", "step_size",
    "max_steps", "max_seconds", "checkpoint_every", "num_draws", "num_chains",
))  # fmt: skip
QUOTED = "'\\[\"`/"  # before a name that is somebody's own: a column, a path
SPELLED = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r", or use sgld\.ReplicaExchange\(\)", ""),
        (r"sgld\.resume\((['\"])([^'\"]*)\1\)", r"sgld resume \2"),
        (r"read it: sgld\.load\((['\"])([^'\"]*)\1\)", r"read it: sgld summary \2"),
        (r"made by sgld\.fit\b", "made by `sgld fit`"),
        (r"run of sgld\.fit\b", "run of `sgld fit`"),
        (r"\boverwrite it with overwrite=True", "overwrite it (--overwrite)"),
        (rf"(?<![-\w{QUOTED}])({OPTIONS})=' '", r"--\1 space"),
        (rf"(?<![-\w{QUOTED}])({OPTIONS})='(\w+)'", r"--\1 \2"),
        (rf"(?<![-\w{QUOTED}])({OPTIONS})=(?=[\s:;.,)]|$)", r"--\1"),
        (rf"(?<![-\w{QUOTED}])({OPTIONS})(=| = (?=[\d.]))", r"--\1 "),
        (rf"^({OPTIONS})(?= must | is of | is what | and ({OPTIONS}) are )", r"--\1"),
        (r"(?<=^--sep and )(decimal)(?= are )", r"--\1"),
        (r"sgld\.sandwich", "sgld summary {run} --sandwich"),
        (r"named by sgld\.loo\b", "named by sgld.loo, in Python"),
        (r"sgld\.step_halving", "sgld halve {run}"),
        (r"sgld\.reference", "sgld reference {run}"),
        (
            r"gradient=ControlVariates\(\), or leave step_size to the library",
            "or leave --step-size out",
        ),
        (r"use a longer burn_in, and more steps", "use more steps"),
        (r"use a longer burn_in or more draws", "use more --draws"),
        (r"num_draws or thin", "--draws"),
        (r"use more draws", "use more --draws"),
        (rf"(?<![-\w{QUOTED}])num_draws", "--draws"),
        (rf"(?<![-\w{QUOTED}])num_chains", "--chains"),
        (rf"(?<![-\w{QUOTED}])step_size", "--step-size"),
        (rf"(?<![-\w{QUOTED}])batch_size", "--batch-size"),
        (rf"(?<![-\w{QUOTED}])max_steps", "--max-steps"),
        (rf"(?<![-\w{QUOTED}])max_seconds", "--max-seconds"),
        (r"use a smaller tolerance", "use a smaller --tolerance"),
        (r"--num_(draws|chains)", r"--\1"),
        (r"--(batch|step|max|checkpoint)_(size|steps|seconds|every)", r"--\1-\2"),
    )
)


def at_the_shell(sentence: str, run: str | Path) -> str:
    """The sentence for somebody at the command line, whose run lies at `run`.

    Example:
      >>> from sgld.draws.remedies import at_the_shell
      >>> at_the_shell("confirm by sgld.step_halving, or with NUTS: sgld.reference.", "runs/visits")
      'confirm by sgld halve runs/visits, or with NUTS: sgld reference runs/visits.'
      >>> at_the_shell("use a smaller step_size or a larger batch_size.", "run")
      'use a smaller --step-size or a larger --batch-size.'
      >>> at_the_shell("runs/a is not finished; go on with it: sgld.resume('runs/a')", "RUN")
      'runs/a is not finished; go on with it: sgld resume runs/a'
    """
    for pattern, text in SPELLED:
        sentence = pattern.sub(text.replace("{run}", str(run).replace("\\", r"\\")), sentence)
    return sentence
