"""Remedies in the language of the door they are read at.

Verdicts and plans speak Python, which is what `sgld.load` and summary.json hand on. At the command line, and
in the report of a run that was begun there, the same sentence names commands and options as they are spelled
there, and leaves out what has none.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["at_the_shell"]

SPELLED = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r", or use sgld\.ReplicaExchange\(\)", ""),
        (r"sgld\.sandwich", "sgld summary {run} --sandwich"),
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
        (r"(?<![-\w])num_draws", "--draws"),
        (r"(?<![-\w])num_chains", "--chains"),
        (r"(?<![-\w])step_size", "--step-size"),
        (r"(?<![-\w])batch_size", "--batch-size"),
        (r"(?<![-\w])max_steps", "--max-steps"),
        (r"(?<![-\w])max_seconds", "--max-seconds"),
        (r"use a smaller tolerance", "use a smaller --tolerance"),
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
    """
    for pattern, text in SPELLED:
        sentence = pattern.sub(text.replace("{run}", str(run).replace("\\", r"\\")), sentence)
    return sentence
