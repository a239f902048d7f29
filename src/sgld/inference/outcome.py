"""From the output of the loop to Draws: weights, reported positions, and the status of each chain.

Draws of chains that are confined to modes are weighted by the mass of each mode.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..approximation.known import Known
from ..approximation.laplace import Laplace, laplace_at
from ..approximation.modes import KnownModes
from ..core.devices import sent
from ..core.pytrees import Layout
from ..model import sums
from ..model.prepare import without_a_factor
from ..model.problem import Problem
from ..results.draws import Draws
from ..results.plan import Plan
from ..results.verdict import Modes
from ..samplers.confined_hmc import ConfinedHMC, Regions
from ..samplers.gradients.full import Full
from .kept import Keep
from .sink import Raw
from .tuning.mode_masses import counted, modes_at, weigh
from .tuning.several_modes import regions_of

REPORTED_NUMBERS = 2**24  # numbers of positions mapped at once to reported values
# draws of a chain at which the support is checked, including the last; few of a million numbers
MAX_SUPPORT_DRAWS, MIN_SUPPORT_DRAWS = 64, 4
LEFT_SUPPORT = "left the support"
MIN_DIVERGED_RATIO = 1e6  # distance over that at the start, from which the chain diverged


def sampling_only(raw: Raw) -> tuple[Raw, np.ndarray]:
    """Return the output without draws of steps at temperature 0, and the numbers of the rest.

    If a schedule sets the temperature to 0 (cycles that explore), only the other steps are draws.
    """
    rows = np.arange(raw.num_draws)
    sampling = raw.temperature > 0
    if sampling.all() or not sampling.any():
        return raw, rows
    rows = rows[sampling]
    return only(raw, rows), rows


def only(raw: Raw, rows: np.ndarray | slice) -> Raw:
    """Return the output with only the draws of these numbers; a slice copies nothing.

    Positions are dropped if they are held for some draws only.
    """
    left = lambda values: None if values is None else values[rows]  # noqa: E731
    return replace(
        raw, z=left(raw.z) if raw.held is None else None, held=None, step_size=raw.step_size[rows],
        temperature=raw.temperature[rows], gradient=left(raw.gradient),
        value=tuple(leaf[rows] for leaf in raw.value), predicted=left(raw.predicted),
        kinetic=left(raw.kinetic),
    )  # fmt: skip


def where_held(raw: Raw, first: int = 0, every: int = 1) -> tuple[Raw, np.ndarray]:
    """Return every `every`-th held draw from `first` on, with the last, and their numbers.

    A draw is held if its position is.
    """
    numbers = np.arange(raw.num_draws) if raw.held is None else raw.held
    begin = int(np.searchsorted(numbers, first))
    begin += (len(numbers) - 1 - begin) % every
    at, rows = slice(begin, None, every), numbers[begin::every]
    z = None if raw.z is None else raw.z[at]
    return replace(only(raw, at if raw.held is None else rows), z=z), rows


def as_thin(plan: Plan, raw: Raw) -> Plan:
    """Return the plan with the present thinning of the draws."""
    return replace(plan, setup=replace(plan.setup, thin=plan.setup.thin * raw.every))


def reported_draws(problem: Problem, plan: Plan, raw: Raw, seed: int) -> Draws:
    """Return reported draws [chain, draw, ...] with their weights."""
    raw, rows = sampling_only(raw)
    assert raw.z is not None
    with jax.enable_x64(
        problem.posterior.output is not None or jnp.result_type(float) == np.float64
    ):
        position = _positions(problem, raw.z)
    one = jax.tree.map(lambda leaf: np.asarray(leaf[0, 0], np.float32), position)
    names = tuple(problem.posterior.names or Layout.of(one).element_names())
    return _draws(
        problem, plan, raw, seed, position, names, plan.setup.burn_in + plan.setup.thin * rows
    )


def kept_draws(problem: Problem, plan: Plan, raw: Raw, seed: int, keep: Keep) -> Draws:
    """Return what `keep` returned [chain, draw, ...], with the weights of its draws."""
    raw, rows = sampling_only(raw)
    leaves = [np.moveaxis(leaf, 0, 1) for leaf in raw.value]
    position = keep.layout.treedef.unflatten(leaves)
    step = plan.setup.burn_in + plan.setup.thin * rows
    return _draws(problem, plan, raw, seed, position, keep.names, step)


def last_positions(problem: Problem, plan: Plan, raw: Raw, seed: int, keep: Keep) -> Draws:
    """Return the final positions of the chains, as one draw of each."""
    assert raw.last is not None
    final = replace(raw, step_size=raw.step_size[-1:], temperature=raw.temperature[-1:])
    position = _positions(problem, raw.last[None])
    return _draws(problem, plan, final, seed, position, keep.names, np.array([raw.num_steps]))


def _draws(
    problem: Problem, plan: Plan, raw: Raw, seed: int, position: Any, names: tuple[str, ...],
    step: np.ndarray,
) -> Draws:  # fmt: skip
    chains = len(raw.failed_at)
    shape = (chains, raw.num_draws)
    step_size = np.broadcast_to(raw.step_size, shape).astype(np.float64)
    temperature = np.broadcast_to(raw.temperature, shape).astype(np.float64)
    status = tuple(_status(problem, plan, raw, chain, seed) for chain in range(chains))
    return Draws(
        position=position, log_weight=np.log(np.maximum(step_size, 1e-300)), step_size=step_size,
        temperature=temperature, step=step, status=status, names=names,
    )  # fmt: skip


def _positions(problem: Problem, z: np.ndarray) -> Any:
    """Return the reported positions [chain, draw, ...] at z [draw, chain, d].

    Large arrays are mapped in pieces, or returned as views if draws report z itself.
    """
    if z.size > REPORTED_NUMBERS and problem.target.reports_z and z.strides[0] == z[0].nbytes:
        return problem.layout.unravelled(np.moveaxis(z, 0, 1))
    of = lambda z: problem.reported(sent(np.moveaxis(z, 0, 1)))  # noqa: E731
    size = max(1, REPORTED_NUMBERS // z[:1].size)
    if len(z) <= size:
        return of(z)
    found = None
    for begin in range(0, len(z), size):
        part = of(z[begin : begin + size])
        if found is None:
            found = jax.tree.map(
                lambda leaf: np.empty((leaf.shape[0], len(z), *leaf.shape[2:]), leaf.dtype), part
            )
        for whole, piece in zip(jax.tree.leaves(found), jax.tree.leaves(part), strict=True):
            whole[:, begin : begin + size] = piece
    return found


def _status(problem: Problem, plan: Plan, raw: Raw, chain: int, seed: int) -> str:
    """Return "ok", or a sentence with the step, leaf and rows at which the chain failed."""
    setup, step = plan.setup, int(raw.failed_at[chain])
    if not 0 <= step < raw.num_steps:  # failures after the last draw do not matter
        return "ok"
    where, rows_named = "", ""
    bad = np.zeros(0, bool) if raw.z is None else ~np.isfinite(raw.z[:, chain])
    if bad.any():
        first = int(np.argmax(bad.any(axis=1)))
        where = f" in leaf {problem.layout.locate(int(np.argmax(bad[first])))!r}"
    if problem.has_rows and step > 0 and not isinstance(setup.gradient, Full):
        entry = jnp.asarray(problem.source.chunk((seed, chain), step - 1, 1)[0])
        drawn = problem.source.fetch(entry).drawn()
        rows = np.sort(problem.source.original_rows(drawn, seed))
        listed = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
        where += f", after a batch of rows {listed}"
        rows_named = ", or look at those rows"
    h = float(setup.step_size(max(0, step - setup.burn_in)))
    return (
        f"chain {chain} became non-finite at step {step}{where}; "
        f"{_smaller(plan, h)}{rows_named}.{_factor(problem, raw)}"
    )


def _smaller(plan: Plan, step_size: float) -> str:
    return f"use {plan.smaller_step}" + (f" than {step_size:.3g}" if plan.by_hand else "")


def _factor(problem: Problem, raw: Raw) -> str:
    """Return a sentence on a Cholesky factor of the model that chains may have lost, or ""."""
    zs = np.zeros((0, 1)) if raw.z is None else raw.z.reshape(-1, raw.z.shape[-1])
    zs = zs[np.isfinite(zs).all(axis=1)]
    if len(zs) < 2:
        return ""
    with np.errstate(over="ignore"):  # chains that diverge
        sd = zs.std(0)
    cause = without_a_factor(problem, zs.mean(0), sd, " sd of its draws")
    return f" Here {cause}." if cause else ""


def within_support(problem: Problem, draws: Draws, z: Any, at: np.ndarray | None = None) -> Draws:
    """Return the draws, with a failure for each chain [chain, draw, d] at which the density is 0.

    The check uses some draws and one row: without density there is no gradient to lead back. `at`
    holds the numbers of the draws in `z`, if these are not all.
    """
    at = np.arange(z.shape[1]) if at is None else at
    count = int(
        np.clip(REPORTED_NUMBERS // max(1, z[:, :1].size), MIN_SUPPORT_DRAWS, MAX_SUPPORT_DRAWS)
    )
    some = np.unique(np.linspace(0, z.shape[1] - 1, count).round().astype(int))
    if z[:, :1].size * len(some) <= REPORTED_NUMBERS // MAX_SUPPORT_DRAWS:
        value = np.asarray(_one_row(problem, problem.array(z[:, some])))
    else:  # many numbers are copied a draw at a time
        each = [
            [_one_row(problem, problem.array(chain[None, None, i])) for i in some] for chain in z
        ]
        value = np.array(each, np.float64)[..., 0, 0]
    inside, status = (value > -np.inf) & (value < np.inf), list(draws.status)
    for chain in draws.healthy:
        if not inside[chain].all():
            first = int(some[int(np.argmin(inside[chain]))])
            if np.isposinf(value[chain][int(np.argmin(inside[chain]))]):
                status[chain] = (
                    f"chain {chain} found a log density of +inf by draw {at[first]}, which is not a density; fix the "
                    "model there, or give a bounded parameter its support with constraints= of sgld.Posterior."
                )
                continue
            status[chain] = (
                f"chain {chain} {_divergence(problem, draws, z[chain], first, int(at[first]))}"
            )
    return replace(draws, status=tuple(status))


def _divergence(problem: Problem, draws: Draws, z: np.ndarray, first: int, draw: int) -> str:
    """Return what happened to a chain z [draw, d] whose density is 0 at its draw `first`."""
    there = np.abs(np.asarray(z[first], np.float64))
    smaller = "a smaller step_size" if draws.plan is None else draws.plan.smaller_step
    if there.max() > MIN_DIVERGED_RATIO * (1 + np.abs(z[0]).max()):
        leaf = problem.layout.locate(int(np.argmax(there)))
        return f"diverged: leaf {leaf!r} is at {there.max():.0e} by draw {draw}; use {smaller}."
    return (
        f"{LEFT_SUPPORT} (log density -inf) by draw {draw}; give a bounded parameter its support with "
        f"constraints= of sgld.Posterior, or use {smaller}."
    )


@jax.jit
def _one_row(problem: Problem, z: Any) -> Any:
    """Return the log density of the prior and one row."""

    def one(q):
        value = problem.log_prior(q)
        if problem.has_rows:
            value += problem.log_likelihood(q, problem.source.take(jnp.arange(1)))
        return value

    return jax.vmap(jax.vmap(one))(z)


def laplace_facts(problem: Problem, known: Known) -> dict[str, Any] | None:
    """Return mean and sd of the known Gaussian, per reported parameter, for the report."""
    laplace = known.gaussian
    if laplace is None or not known.usable:
        return None
    sd = np.sqrt(laplace.marginals(problem).variance)
    if isinstance(laplace, Laplace):
        mean = problem.target.linear_at(laplace.center)[0]
    else:
        mean = np.asarray(_flat_reported(problem, problem.array(laplace.center)))
    return {"mean": mean.tolist(), "sd": sd.tolist()}


def modes_facts(problem: Problem, known: Known) -> dict[str, Any] | None:
    """Return what `draws.modes` shows of the known modes, or None if there is one mode."""
    return None if known.modes is None else reported_modes(problem, known.modes).to_dict()


def reported_modes(problem: Problem, modes: KnownModes) -> Modes:
    """Return the modes on the reported scale, with Laplace's masses."""
    position = np.stack([
        np.asarray(_flat_reported(problem, problem.array(z)), np.float64) for z in modes.z
    ])  # fmt: skip
    start = problem.target.reported(problem.array(modes.z[0]))
    names = problem.posterior.names or Layout.of(start).element_names()
    return Modes(tuple(names), position, modes.log_density, modes.mass)


@jax.jit
def _flat_reported(problem: Problem, z: Any) -> Any:
    return problem.target.flat_reported(z)


# -- several modes -------------------------------------------------------------------------


def regions_of_chains(
    problem: Problem, plan: Plan, z: Float[np.ndarray, "chain draw d"]
) -> Int[np.ndarray, " chain"] | None:
    """Return the region that each chain is confined to, or None if chains are free."""
    sampler = plan.setup.sampler
    if not isinstance(sampler, ConfinedHMC):
        return None
    return np.asarray(sampler.regions.group)[modes_at(problem, sampler.regions, z[:, 0])]


def weight_by_modes(
    problem: Problem, plan: Plan, draws: Draws, z: Float[np.ndarray, "chain draw d"], seed: int
) -> Draws:
    """Return the draws with measured masses in `draws.modes`, and weights by them.

    Free chains weight the modes by themselves, and their draws are counted if they are exact. The
    draws of a region have its mass together. A region without a healthy chain keeps Laplace's mass,
    whose error is unknown, and no draws.
    """
    chain, healthy = regions_of_chains(problem, plan, z), draws.healthy
    sampler = plan.setup.sampler
    if not healthy.size:
        return draws
    if chain is None or not isinstance(sampler, ConfinedHMC):
        return _counted(problem, plan, draws, z[healthy])
    regions = sampler.regions
    known = _known(problem, regions)
    found = weigh(problem, known, regions, z[healthy], chain[healthy], seed)
    modes = replace(
        reported_modes(problem, known), mass=found.mass, covariance=found.covariance,
        group=np.asarray(regions.group), chain=chain,
    )  # fmt: skip
    info = {**draws.info, "modes": modes.to_dict()}
    return replace(draws, info=info, log_weight=draws.log_weight + _log_weights(draws, modes))


def _counted(problem: Problem, plan: Plan, draws: Draws, z: np.ndarray) -> Draws:
    """Return the draws with masses by how many draws of free chains lie near each mode."""
    modes, known = draws.modes, plan.known.modes
    if modes is None or known is None or not plan.setup.exact:
        return draws
    at = [laplace_at(problem, place) for place in known.z]
    if not all(gaussian.positive_definite for gaussian in at):
        return draws
    regions = regions_of(problem, at, known.log_density)
    found = counted(problem, regions, z)
    if found is None:
        return draws
    modes = replace(modes, mass=found.mass, covariance=found.covariance)
    return replace(draws, info={**draws.info, "modes": modes.to_dict()})


def _known(problem: Problem, regions: Regions) -> KnownModes:
    """Return the modes of the regions with which the run was planned."""
    z = np.asarray(regions.center, np.float64)
    first = float(sums.log_density(problem, problem.array(z[0])))
    height = np.asarray(regions.height, np.float64)
    volume = -np.linalg.slogdet(np.asarray(regions.inverse, np.float64))[1]
    return KnownModes(z, first + height, height + volume)


def _log_weights(draws: Draws, modes: Modes) -> Float[np.ndarray, "chain 1"]:
    """Return the log of each region's mass divided by its number of chains."""
    assert modes.group is not None and modes.chain is not None
    count = int(modes.group.max()) + 1
    mass = np.bincount(modes.group, modes.mass, count)
    chains = np.bincount(modes.chain[draws.healthy], minlength=count)
    return np.log(np.maximum(mass / np.maximum(chains, 1), 1e-300))[modes.chain, None]
