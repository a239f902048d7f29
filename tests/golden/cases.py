"""The cases whose plans are stored, and the doors through which they are made.

Everything goes through `sgld.sample` and what it says of itself, but `planned` and `fitted`: the only two
functions here that know what is inside the package.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import sgld

FOLDER = Path(__file__).parent
PLANS = FOLDER / "plans.json"
sys.path.append(str(FOLDER.parents[1] / "benchmarks"))
from problems import PROBLEMS, Problem  # noqa: E402
from problems.truth import bundled  # noqa: E402


class Case(NamedTuple):
    """A posterior and what is asked of `sgld.sample`.

    `limited`: the run in full takes too long, so that the plan is made without it, and the run is
    of `limited` steps. `unsteady`: what rounding errors decide, "draws" or "plan" (and draws): another
    order of summation, or another processor, leads elsewhere. There only words are compared, but
    by `make.py` everything.
    """

    problem: Callable[[], Problem]
    given: dict[str, Any] = {}  # noqa: RUF012
    limited: int | None = None
    unsteady: str = ""


# -- what is inside --------------------------------------------------------------------------


class _Planned(Exception):
    """Raised before the first step."""


def planned(problem: Problem, given: dict[str, Any]) -> dict[str, Any]:
    """The plan that `sgld.sample` makes of these arguments, without running it."""
    from sgld.inference.sample import begin
    from sgld.model.problem import Request

    def stop(plan: Any) -> None:
        raise _Planned(plan)

    parameters = inspect.signature(sgld.sample).parameters
    ask = Request(**{
        name: given.get(name, parameters[name].default) for name in Request.__dataclass_fields__
    })  # fmt: skip
    try:
        begin(
            problem.posterior, problem.data, problem.init, ask, None, {"kind": "sample"}, path=None,
            overwrite=False, progress=False, checkpoint_every=10.0, on_plan=stop,
        )  # fmt: skip
    except _Planned as made:
        return made.args[0].describe()
    raise AssertionError("no plan was made")


def fitted(problem: Problem, given: dict[str, Any]) -> sgld.Draws:
    """The run of a formula: `problem.data` holds the columns, `problem.init` formula and family."""
    from sgld.regression.fit import fit

    formula, family = problem.init
    return fit(problem.data, formula, family=family, progress=False, **given).draws


# -- problems that benchmarks/ does not have -------------------------------------------------


def weights() -> Problem:
    """More parameters than a dense curvature is formed for: 2,100 slopes, 200 rows."""
    rng = np.random.default_rng(51)
    X = rng.standard_normal((200, 2100)).astype(np.float32)
    y = X[:, :5].sum(1) + rng.standard_normal(200).astype(np.float32)
    posterior = sgld.Posterior(
        lambda b: -0.5 * jnp.sum(b**2), lambda b, row: -0.5 * (row[1] - row[0] @ b) ** 2
    )
    return Problem("weights", posterior, (X, y), jnp.zeros(2100), None)


def module() -> Problem:
    """A network of Equinox as the position: 2 inputs, 4 tanh units, 2 classes."""
    import equinox as eqx

    rng = np.random.default_rng(52)
    x = rng.standard_normal((120, 2)).astype(np.float32)
    label = (x[:, 0] * x[:, 1] > 0).astype(np.int32)
    net = eqx.nn.MLP(2, 2, 4, 1, activation=jax.nn.tanh, key=jax.random.key(0))
    posterior = sgld.Posterior(
        sgld.networks.normal_prior({"*weight": 2.0, "*": 1.0}, fan_in=True),
        lambda net, datum: jax.nn.log_softmax(net(datum[0]))[datum[1]],
    )
    return Problem("module", posterior, (x, label), net, None)


def visits(family: str) -> Callable[[], Problem]:
    """A formula on 2,000 rows of the bundled RAND table."""

    def build() -> Problem:
        table = bundled("randhie.csv")[:2000]
        columns = {name: table[:, k] for name, k in (("mdvis", 0), ("lncoins", 1), ("idp", 2))}
        columns["lpi"], columns["any"] = table[:, 3], (table[:, 0] > 0).astype(float)
        outcome = "any" if family == "bernoulli" else "mdvis"
        return Problem(
            f"visits_{family}", None, columns, (f"{outcome} ~ lncoins + idp + lpi", family), None
        )

    return build


# -- the cases -------------------------------------------------------------------------------

_SHORT = {"num_chains": 2, "num_draws": 300}
_HAND = {"step_size": 1e-3, "burn_in": 200, "thin": 2, **_SHORT}
_SMALL = PROBLEMS["logistic_small"]
_D = 0.05 * np.ones(5, np.float32)
_PAIR = 0.3 * np.eye(5, 2, dtype=np.float32)

CASES = {
    # everything left to the library
    "gauss10": Case(PROBLEMS["gauss10"]),
    "gauss_mean10": Case(PROBLEMS["gauss_mean10"], unsteady="draws"),
    "linear200": Case(PROBLEMS["linear200"]),
    "handout": Case(PROBLEMS["handout"]),
    "logistic_correlated": Case(PROBLEMS["logistic_correlated"]),
    "logistic_separated": Case(PROBLEMS["logistic_separated"]),
    "breast_cancer": Case(PROBLEMS["breast_cancer"]),
    "poisson": Case(PROBLEMS["poisson"]),
    "rand_poisson": Case(PROBLEMS["rand_poisson"]),
    "eight_schools_noncentred": Case(PROBLEMS["eight_schools_noncentred"], unsteady="plan"),
    "eight_schools_centred": Case(PROBLEMS["eight_schools_centred"], limited=3000, unsteady="plan"),
    "funnel2": Case(PROBLEMS["funnel2"], limited=3000, unsteady="plan"),
    "tied_means": Case(PROBLEMS["tied_means"], limited=3000, unsteady="plan"),
    "cauchy_location": Case(PROBLEMS["cauchy_location"], unsteady="plan"),
    "banana_mild": Case(PROBLEMS["banana_mild"]),
    "student_density": Case(PROBLEMS["student_density"]),
    "log_gamma": Case(PROBLEMS["log_gamma"]),
    "lasso": Case(PROBLEMS["lasso"]),
    "beta_rare": Case(PROBLEMS["beta_rare"]),
    "gamma_exponential": Case(PROBLEMS["gamma_exponential"]),
    "ordinal": Case(PROBLEMS["ordinal"]),
    "network": Case(PROBLEMS["network"], limited=2000, unsteady="plan"),
    "network_output": Case(PROBLEMS["network_output"], limited=2000, unsteady="plan"),
    "weights": Case(weights, limited=300),
    "module": Case(module, limited=2000, unsteady="plan"),
    "visits_poisson": Case(visits("poisson")),
    "visits_bernoulli": Case(visits("bernoulli"), {"tolerance": 0.1}),
    "visits_gaussian": Case(visits("gaussian"), {"max_steps": 3000}, unsteady="draws"),
    # one part given, the rest left to the library
    "tolerance": Case(_SMALL, {"tolerance": 0.2}),
    "temperature": Case(_SMALL, {"temperature": 0.5}),
    "hot": Case(PROBLEMS["poisson"], {"temperature": 2.0}),
    "symmetric": Case(_SMALL, {"order": "symmetric", "gradient": sgld.Minibatch()}),
    "subset": Case(_SMALL, {"order": "subset", "batch_size": 50}),
    "replacement": Case(_SMALL, {"order": "replacement"}),
    "full": Case(_SMALL, {"gradient": sgld.Full()}),
    "SVRG": Case(_SMALL, {"gradient": sgld.SVRG(20), "batch_size": 20}),
    "SAGA": Case(_SMALL, {"gradient": sgld.SAGA(), "batch_size": 20}),
    "control variates": Case(_SMALL, {"gradient": sgld.ControlVariates(), "order": "reshuffle"}),
    "BAOA": Case(_SMALL, {"sampler": sgld.BAOA()}),
    "UBU": Case(_SMALL, {"sampler": sgld.UBU()}),
    "SGHMC": Case(_SMALL, {"sampler": sgld.SGHMC()}),
    "diagonal": Case(_SMALL, {"preconditioner": sgld.Diagonal(_D)}),
    "dense": Case(_SMALL, {"preconditioner": sgld.Dense(np.diag(_D))}),
    "max_steps": Case(PROBLEMS["logistic_correlated"], {"max_steps": 1000, "num_draws": 2000}),
    "ess": Case(_SMALL, {"ess": 1500, "num_draws": 200, "num_chains": 2}),
    # a step by hand: the textbook algorithm in whatever else is left open
    "by hand": Case(_SMALL, {"step_size": 1e-3}),
    "by hand, no rows": Case(PROBLEMS["gauss2"], {"step_size": 1e-3, **_SHORT}),
    "by hand, too long": Case(PROBLEMS["log_gamma"], {"step_size": 0.6, "burn_in": 50, "thin": 5}),
    "by hand, decaying": Case(_SMALL, {**_HAND, "step_size": sgld.polynomial(2e-3, 10.0, 0.33)}),
    "by hand, cycles": Case(
        _SMALL,
        {**_HAND, "step_size": (_c := sgld.cosine_cycles(2e-3, 200)), "temperature": _c.temperature()},
    ),
    "by hand, RMSprop": Case(_SMALL, {**_HAND, "step_size": 1e-2, "preconditioner": sgld.RMSprop()}),
    "by hand, AdaGrad": Case(_SMALL, {**_HAND, "step_size": 1e-2, "preconditioner": sgld.AdaGrad()}),
    "by hand, SGHMC": Case(
        _SMALL, {**_HAND, "step_size": 0.05, "sampler": sgld.SGHMC(0.3), "preconditioner": sgld.Diagonal(_D),
                 "order": "replacement"},
    ),
    "by hand, SGNHT": Case(_SMALL, {**_HAND, "step_size": 0.02, "sampler": sgld.SGNHT(), "preconditioner": sgld.Diagonal(_D), "order": "subset"}),
    "by hand, exchange": Case(
        PROBLEMS["tied_means"], {**_HAND, "step_size": 0.01, "sampler": sgld.ReplicaExchange()}
    ),
    "by hand, low rank": Case(
        _SMALL,
        {**_HAND, "step_size": 0.05, "sampler": sgld.BAOA(), "gradient": sgld.ControlVariates(),
         "preconditioner": sgld.LowRank(_D, _PAIR)},
    ),
}  # fmt: skip

FAST = {  # the rest are slow
    "logistic_correlated", "visits_bernoulli", "temperature",
    "symmetric", "SVRG", "by hand", "by hand, too long", "by hand, cycles", "by hand, RMSprop", "by hand, SGHMC",
    "by hand, SGNHT",
}  # fmt: skip


# -- what is stored --------------------------------------------------------------------------

NUMBER = re.compile(r"(?<![\w.])[+-]?(\d[\d,]*\.?\d*|\.\d+)(e[+-]?\d+)?%?")
RELATIVE, NEARLY_0 = 1e-4, 1e-6  # nu of a Gaussian is rounding error
ROUGH = (
    "gradient",
    "preconditioner",
    "order",
    "batch_size",
    "temperature",
    "num_draws",
    "num_chains",
)


def words(sentence: str) -> str:
    """A sentence without its numbers: what kind it is."""
    return NUMBER.sub("#", sentence)


def made(name: str) -> dict[str, Any]:
    """What is stored of a case."""
    case = CASES[name]
    problem = case.problem()
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        if isinstance(problem.init, tuple):
            draws = fitted(problem, case.given)
        else:
            limit = {} if case.limited is None else {"max_steps": case.limited}
            draws = sgld.sample(
                problem.posterior, problem.data, problem.init, progress=False, **case.given, **limit
            )
        plan = draws.info["plan"] if case.limited is None else planned(problem, case.given)
    verdict = draws.verdict
    assert verdict is not None
    ratio = None if verdict.sd_ratio is None else np.asarray(verdict.sd_ratio, float).tolist()
    run = {
        "steps": draws.info["num_steps"],
        "draws": [draws.num_chains, draws.num_draws],
        "names": list(draws.names)[:12],
        "word": verdict.word,
        "reasons": [words(reason) for reason in verdict.reasons],
        "log_density_at_mode": draws.info["log_density_at_mode"],
        "mean": _listed(draws.mean()),
        "sd": _listed(draws.sd()),
        "sd_ratio": ratio and ratio[:12],
    }
    plan = {**plan, "notes": [words(note) for note in plan["notes"]]}
    return json.loads(json.dumps({"plan": plan, "run": run}))


def _listed(tree: Any) -> list[float]:
    return [float(x) for leaf in jax.tree.leaves(tree) for x in np.ravel(leaf)][:12]


def differences(name: str, stored: Any, now: Any, scale: float = 0.0) -> list[str]:
    """Where two trees of dicts, lists, words and numbers differ, in words."""
    if isinstance(stored, dict) and isinstance(now, dict):
        keys = dict.fromkeys([*stored, *now])
        return [
            line for key in keys
            for line in differences(f"{name}: {key}", stored.get(key), now.get(key), scale)
        ]  # fmt: skip
    if isinstance(stored, list) and isinstance(now, list) and len(stored) == len(now):
        pairs = zip(stored, now, strict=True)
        return [
            x for i, pair in enumerate(pairs) for x in differences(f"{name}[{i}]", *pair, scale)
        ]
    if isinstance(stored, float) and isinstance(now, float):
        apart = not np.isclose(stored, now, RELATIVE, NEARLY_0 + RELATIVE * scale, equal_nan=True)
    else:
        apart = type(stored) is not type(now) or stored != now
    return [f"{name} was {stored}, is {now}"] if apart else []


def compared(name: str, stored: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The differences of a case; those of means as a share of the sd."""
    found = differences(f"{name}, plan", stored["plan"], now["plan"])
    runs = [{k: v for k, v in case["run"].items() if k != "mean"} for case in (stored, now)]
    found += differences(f"{name}, run", *runs)
    means = zip(stored["run"]["mean"], now["run"]["mean"], stored["run"]["sd"], strict=True)
    for i, (was, mean, sd) in enumerate(means):
        found += differences(f"{name}, run: mean[{i}]", was, mean, sd)
    return found


def compared_roughly(name: str, stored: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The differences of an unsteady case: choices and words, and nu within a factor of 3."""

    def steady(case: dict[str, Any]) -> dict[str, Any]:
        plan, run = case["plan"], case["run"]
        if CASES[name].unsteady == "plan":
            plan = {part: plan[part] for part in ROUGH}
            plan["notes"] = [note[:40] for note in case["plan"]["notes"]]
        return {
            "plan": plan, "names": run["names"], "word": run["word"],
            "reasons": [reason[:30] for reason in run["reasons"]],
        }  # fmt: skip

    found = differences(name, steady(stored), steady(now))
    was, nu = stored["plan"]["nu"], now["plan"]["nu"]
    if (was is None) != (nu is None) or (nu and not 1 / 3 < (nu + NEARLY_0) / (was + NEARLY_0) < 3):
        found.append(f"{name}: nu was {was}, is {nu}")
    return found
