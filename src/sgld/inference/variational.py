"""Bayes by Backprop: stochastic gradient descent on the free energy, block by block.

Blundell, Cornebise, Kavukcuoglu & Wierstra (2015), Weight uncertainty in neural networks. At
step s, with block b of the pass and S draws z of q(.; params) through reparameterisation,

    params' = optimiser(params, gradient of K average over draws of
                  pi_b [log q(z) - log prior(z)] - log likelihood(block b; z))

K times Blundell's eq. 8, so that a learning rate means the same for every batch size.

The result, `Variational`, holds q, its ELBO and its moments, and makes draws of q on demand.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..approximation.laplace import Laplace
from ..approximation.mode import MAX_NEWTON_DIM, dense_pays, gaussian_at_mode
from ..core.progress import progress_shown, stage
from ..core.validation import check_seed, positive_number, whole_number
from ..core.work import Work
from ..diagnostics import stein
from ..diagnostics.rule import MAX_EXCESS, MAX_MEAN_ERROR, MIN_R2
from ..errors import RunError, UsageError, did_you_mean, need
from ..model import sums
from ..model.posterior import Posterior
from ..model.prepare import prepare
from ..model.problem import Problem
from ..results.draws import Draws
from ..results.summary import Summary
from ..results.verdict import Verdict, Word
from ..typing import KLWeights, Optimizer, VariationalFamily
from .variational_family import (
    KL_WEIGHTS,
    Elbo,
    Family,
    FullRank,
    MeanField,
    Reparameterised,
    block_objective,
    elbo_values,
    find_distributions,
    kl_weight,
    relaxed,
)

# -- result --------------------------------------------------------------------------------


MOMENT_DRAWS = 20_000  # for moments without a closed form: 1% of an sd, .5% of the sd
METER_CHAINS, METER_DRAWS = 4, 64  # draws at which full gradients are taken
DRAWS_STREAM = 8  # random stream of the seed for draws of q
MAX_CALL_DRAWS, MAX_DRAW_NUMBERS = (
    1024,
    1 << 22,
)  # draws, and numbers, that one call of the compiled function returns

PyTree = Any


@dataclass(frozen=True, repr=False)
class Variational:
    """Approximation q of the posterior: `.draws(n)`, `.mean`, `.sd`, `.elbo`.

    Attributes:
      family, params: the family of q and its parameters.
      elbo, elbo_se: the ELBO in nats on all rows at the end, and its Monte Carlo standard error.
      elbo_trace: [step], the noisy estimate of the ELBO at each step, for plots.
      verdict: `biased` or `unknown`, never `trusted`; its draws carry it too.
      info: num_data, num_steps, seconds and how q was fitted.
      problem: the posterior and the rows that q was fitted to.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> posterior = sgld.Posterior(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
      >>> q = sgld.bayes_by_backprop(posterior, jnp.array([1.0, 2.0, 3.0]), 0.0)
      >>> round(float(q.mean), 1), round(float(q.sd), 1), q.z.round(1)
      (1.5, 0.5, array([1.5]))
      >>> q.draws(100).num_draws, round(q.summary().parameters["x"]["sd"], 1)
      (100, 0.5)
    """

    family: Family
    params: PyTree
    elbo: float
    elbo_se: float
    elbo_trace: Float[np.ndarray, " step"]
    verdict: Verdict
    info: dict[str, Any]
    problem: Problem = field(repr=False)

    def draws(self, num_draws: int = 1000, *, num_chains: int = 4, seed: int = 0) -> Draws:
        """Draw independently from q, [num_chains, num_draws]; chains only set the shape here.

        Args:
          num_draws: draws per chain.
          num_chains: first axis of the draws.
          seed: another seed gives other draws.

        Raises: UsageError for numbers that are not whole and positive.
        """
        whole_number("num_draws", num_draws)
        whole_number("num_chains", num_chains)
        z = draw_many(self.problem, self.family, self.params, (num_chains, num_draws), seed)
        info = {**self.info, "elbo": self.elbo, "elbo_se": self.elbo_se}
        return Draws.at(self.problem, z, verdict=self.verdict, info=info)

    @property
    def mean(self) -> PyTree:
        """Mean of q, a pytree like the position: exact for Gaussians on unconstrained positions.

        Otherwise it is the mean of 20,000 draws.
        """
        return self._moments[0]

    @property
    def sd(self) -> PyTree:
        """Standard deviation of q, computed like `mean`."""
        return self._moments[1]

    def summary(self) -> Summary:
        """Return the table of 4000 draws of q, ending with the verdict."""
        return self.draws().summary()

    @property
    def z(self) -> Float[np.ndarray, " d"]:
        """Centre of q in free coordinates: its mean, or the mean of draws for other families."""
        if isinstance(self.family, MeanField | FullRank):
            return self.family.moments(self.params)[0]
        z = draw_many(self.problem, self.family, self.params, (1, 1000), 1)
        return np.asarray(z, np.float64)[0].mean(0)

    @cached_property
    def _moments(self) -> tuple[PyTree, PyTree]:
        plain = self.problem.posterior.transform is None and self.problem.posterior.output is None
        if plain and isinstance(self.family, MeanField | FullRank):
            array, unravel = self.problem.array, self.problem.layout.unravel
            parts = (unravel(array(part)) for part in self.family.moments(self.params))
            mean, sd = (jax.tree.map(np.asarray, part) for part in parts)
            return mean, sd
        draws = self.draws(MOMENT_DRAWS, num_chains=1, seed=1)
        return draws.mean(), draws.sd()

    def __repr__(self) -> str:
        return (
            f"Variational({self.family.title} of {self.problem.dimension} parameters, "
            f"ELBO {self.elbo:.2f} +- {self.elbo_se:.2g}, {self.verdict.word})"
        )


def draw_many(
    problem: Problem, family: Family, params: PyTree, shape: tuple[int, int], seed: int
) -> Float[Array, "chain draw d"]:
    """Draw from q in free coordinates."""
    check_seed(seed)
    d, total = problem.dimension, shape[0] * shape[1]
    key = jax.random.fold_in(jax.random.key(seed), DRAWS_STREAM)
    block = int(np.clip(MAX_DRAW_NUMBERS // d, 1, MAX_CALL_DRAWS))
    parts = [
        np.asarray(_draw(problem, family, params, key, jnp.int32(first), block=block))
        for first in range(0, total, block)
    ]
    return jnp.asarray(np.concatenate(parts)[:total].reshape(*shape, d))


@partial(jax.jit, static_argnames=("block",))
def _draw(problem, family, params, key, first, *, block):
    """Make draws number `first` ... `first + block - 1`; any number of draws compiles once."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, first + jnp.arange(block, dtype=jnp.int32))
    return jax.vmap(lambda key: family.draw(problem, params, key)[0])(keys)


def judge(
    problem: Problem, family: Any, params: PyTree, laplace: Laplace | None,
    elbo: Elbo, seed: int,
) -> Verdict:  # fmt: skip
    """Return the verdict of q: how much narrower than the posterior it is, if that is measurable.

    It applies the bias meter of every run, Stein-corrected moments, at draws of q.
    """
    reasons = [
        f"these are draws of a {family.title} fitted by minimising KL(q || posterior), which "
        f"{family.caution}; confirm with sgld.sample or sgld.reference."
    ]
    extra = {"elbo": elbo.value, "elbo_se": elbo.se}
    if laplace is None or not laplace.positive_definite:
        reasons.append("the size of the error is unknown: there is no Gaussian at a mode.")
        return Verdict("unknown", tuple(reasons), extra=extra)
    assert laplace.factor is not None
    gaussian = isinstance(family, MeanField | FullRank)
    count = METER_DRAWS if gaussian else 64 * METER_DRAWS
    z = np.asarray(draw_many(problem, family, params, (METER_CHAINS, count), seed), np.float64)
    of = laplace.marginals(problem)
    phi = of.phi(z)
    if gaussian:
        mean, covariance = family.moments(params)[0], family.covariance(params)
        out = problem.target.jacobian(laplace.center)
        moments = of.phi(mean), np.einsum("mi,ij,mj->m", out, covariance, out)
    else:
        flat = phi.reshape(-1, phi.shape[-1])
        moments = flat.mean(0), flat.var(0, ddof=1)
    at = z[:, :METER_DRAWS]
    gradient = sums.gradients(problem, at.reshape(-1, z.shape[-1])).reshape(at.shape)
    weights = np.full(at.shape[:2], 1 / (METER_CHAINS * METER_DRAWS))
    gamma = of.gamma(gradient)
    found = stein.corrected_moments(phi[:, :METER_DRAWS], gamma, of.variance, weights, 1.0, moments)
    flat, slope = (a.reshape(-1, a.shape[-1]) for a in (phi[:, :METER_DRAWS], gamma))
    r2 = stein.explained(flat, slope, slope)
    names = Draws.at(problem, problem.array(z[:1, :1])).names
    word: Word = "unknown"
    if np.isfinite(found.ratio).all() and np.min(r2) >= MIN_R2:
        word = _measured(names, found, reasons)
    else:
        reasons.append(
            "the size of the error is unknown: the posterior is too far from Gaussian to measure it."
        )
    return Verdict(word, tuple(reasons), found.ratio, found.ratio_se, r2, extra=extra)


def _measured(names: tuple[str, ...], found: stein.Corrected, reasons: list[str]) -> Word:
    """Append the reasons that the meter gives, and return the verdict."""
    worst = int(np.argmax(np.abs(np.log(found.ratio))))
    ratio, away = found.ratio[worst], np.abs(found.mean_shift) / found.sd
    reasons.append(
        f"by Stein-corrected moments its sd is {ratio:.2f} of the posterior's for {names[worst]!r}, "
        "the parameter with the largest error."
    )
    wrong = np.abs(found.ratio - 1).max() > MAX_EXCESS
    if away.max() > MAX_MEAN_ERROR:
        shifted = int(np.argmax(away))
        reasons.append(
            f"the mean of {names[shifted]!r} is about {away[shifted]:.2f} sd off; use more steps, or "
            "a smaller learning rate."
        )
        wrong = True
    return "biased" if wrong else "unknown"


# -- fit -----------------------------------------------------------------------------------


VARIATIONAL_FAMILIES: tuple[VariationalFamily, ...] = get_args(VariationalFamily)
MAX_CALL_STEPS = 1024  # steps that one call of the compiled function may make
DEFAULT_STEP_ROWS = 1000  # rows per step without batch_size
LEARNING_RATE = 1e-2
DEFAULT_START_SD = 0.05  # sd of q at the start if there is no curvature
ELBO_DRAWS = 256
OPTIMISATION_STREAM = 7  # random stream of the seed for draws along the optimisation


def bayes_by_backprop(
    posterior: Posterior,
    data: Any,
    init: Any = None,
    *,
    family: VariationalFamily | Reparameterised = "gaussian",
    optimizer: Optimizer | None = None,
    num_steps: int | None = None,
    batch_size: int | None = None,
    num_samples: int = 2,
    kl_weights: KLWeights = "uniform",
    init_sd: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Variational:
    """Fit an approximation by gradients through its draws: fast, but too narrow.

    q is a distribution over the free coordinates; draws are mapped back, so that a positive
    parameter stays positive. A mean-field q has the sds 1/sqrt(J_ii) on a Gaussian posterior of
    precision J, never more than the posterior's: IT UNDERESTIMATES VARIANCE, the more the stronger
    the correlations.

    Args:
      posterior: as for `sgld.sample`.
      data: as for `sgld.sample`.
      init: as for `sgld.sample`.
      family: "gaussian" (mean-field, sd = softplus(rho)), "full-rank", or
        `sgld.variational.Reparameterised(make, params)` around any NumPyro distribution.
      optimizer: an optax transformation; it gets the gradient of -ELBO of ALL the data. None:
        Adam at .01 (b2 = .99), and q's parameters are their average over the last half of the
        steps (Polyak & Juditsky 1992). With another optimizer the last parameters are used.
      num_steps: steps (None: 20 passes, at least 10,000).
      batch_size: rows per step (None: 1000, or all if there are fewer).
      num_samples: draws of q per step; antithetic pairs for Gaussians.
      kl_weights: weights of the blocks of a pass: "uniform" 1/K, or "geometric" 2^{K-b}/(2^K - 1).
      init_sd: sd of q at the start, in free coordinates, around init. None: start from the
        Gaussian at the mode and optimise in its units (up to 1000 parameters, or 2000 if rows are
        few, if there is one); otherwise .05.
      seed: seed of all random numbers.
      progress: as for `sgld.sample`.

    Returns: Variational: `.draws(n)`, `.mean`, `.sd`, `.elbo` and its `.verdict`.

    Raises: UsageError and DataError for wrong arguments; RunError if the ELBO becomes non-finite.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> posterior = sgld.Posterior(lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
      >>> q = sgld.bayes_by_backprop(posterior, jnp.array([1.0, 2.0, 3.0]), 0.0)
      >>> round(float(q.mean), 1), round(float(q.sd), 1)
      (1.5, 0.5)
    """
    began = time.perf_counter()
    _check(family, optimizer, num_steps, batch_size, num_samples, kl_weights, init_sd)
    with progress_shown(progress):
        with stage("data"):
            everything = prepare(posterior, data, init, seed=seed)
        rows = batch_size or min(DEFAULT_STEP_ROWS, everything.num_data)
        problem = everything.with_batches(rows, "reshuffle")
        blocks = problem.num_blocks
        num_steps = max(10_000, 20 * blocks) if num_steps is None else int(num_steps)
        laplace = _laplace(everything)
        q, params = _start(family, problem, laplace, init_sd)
        params, trace = _optimise(
            problem, q, params, optimizer, num_steps, num_samples, kl_weights, seed
        )
        with stage("verdict"):
            final = elbo_values(everything, q, params, ELBO_DRAWS, seed)
            verdict = judge(everything, q, params, laplace, final, seed)
    info = {
        "method": "bayes_by_backprop",
        "family": q.title,
        "num_data": problem.num_data or None,
        "num_steps": num_steps,
        "batch_size": problem.batches[1],
        "num_samples": int(num_samples),
        "kl_weights": kl_weights,
        "seed": int(seed),
        "seconds": time.perf_counter() - began,
    }
    return Variational(
        q, params, final.value, final.se, trace, verdict, info, Problem(problem.target)
    )


def _check(family, optimizer, num_steps, batch_size, num_samples, kl_weights, init_sd) -> None:
    """Raise UsageError for wrong arguments that only this function has."""
    for name, value in {"num_steps": num_steps, "batch_size": batch_size}.items():
        if value is not None:
            whole_number(name, value)
    whole_number("num_samples", num_samples)
    if isinstance(family, str):
        if family not in VARIATIONAL_FAMILIES:
            raise UsageError(
                f"family must be one of {', '.join(VARIATIONAL_FAMILIES)}. Got {family!r}."
                + did_you_mean(family, VARIATIONAL_FAMILIES)
            )
    elif not isinstance(family, Reparameterised):
        raise UsageError(
            "family must be 'gaussian', 'full-rank' or sgld.variational.Reparameterised(make, params). "
            f"Got {family!r}."
        )
    elif init_sd is not None:
        raise UsageError("init_sd needs a Gaussian family; Reparameterised starts at its params.")
    if kl_weights not in KL_WEIGHTS:
        raise UsageError(
            f"kl_weights must be one of {', '.join(KL_WEIGHTS)}. Got {kl_weights!r}."
            + did_you_mean(kl_weights, KL_WEIGHTS)
        )
    if optimizer is not None and not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise UsageError(
            f"optimizer must be an optax transformation, such as optax.adam(1e-2). Got {optimizer!r}."
        )
    if init_sd is not None:
        positive_number("init_sd", init_sd)


def _laplace(problem: Problem) -> Laplace | None:
    """Return the Gaussian at the mode near the start, if there is one."""
    if not dense_pays(problem):
        return None
    laplace, _, converged = gaussian_at_mode(problem)
    return laplace if converged and laplace.positive_definite else None


def _start(
    family: Any, problem: Problem, laplace: Laplace | None, init_sd: float | None
) -> tuple[Any, Any]:
    """Return the family in the coordinates of the optimiser, and its first parameters."""
    array, d = problem.array, problem.dimension
    if isinstance(family, Reparameterised):
        family.check(problem)
        params = jax.tree.map(lambda leaf: array(np.asarray(leaf)), family.params)
        return Reparameterised(family.make, None, family.over), params
    if family == "full-rank" and d > MAX_NEWTON_DIM:
        raise UsageError(
            f"the model has {d} parameters, and family='full-rank' is limited to {MAX_NEWTON_DIM}; use "
            "family='gaussian'."
        )
    near = laplace if init_sd is None else None
    center = array(problem.start if near is None else near.center)
    if family == "full-rank":
        factor = np.eye(d) if near is None else np.asarray(near.factor)
        placed: Any = FullRank.around(center, factor)
    else:
        scale = np.ones(d) if near is None else np.diag(near.curvature) ** -0.5
        placed = MeanField(center, array(scale))
    sd = DEFAULT_START_SD if init_sd is None else float(init_sd)
    if near is not None:
        sd = 1.0
    return placed, placed.start(sd)


class _Carry(NamedTuple):
    params: Any
    state: Any  # state of the optimiser
    average: Any  # average of the parameters over the second half of the steps, or None
    failed_at: Int[Array, ""]  # the step at which something became non-finite, or -1


@lru_cache
def _adam() -> Any:
    """Return one shared object, so that a second call reuses the compiled function.

    The usual b2 = .999 remembers the steep gradients of a wide start for a thousand steps, so that
    scales lag. On a regression of 3 coefficients, after 5000 steps from init_sd = .5, they are up
    to 1.21 times too wide, and 1.04 with .99 (three seeds; after 10,000 both are within 1.5%).
    """
    import optax

    return optax.scale_by_adam(b2=0.99)


def _draws(problem, family, params, key, num_samples):
    """Draw S times from q; a Gaussian in pairs eps, -eps.

    A batch's noise in the gradient at the mean, g, enters that of rho as the average of eps g;
    pairs remove it.
    """
    if isinstance(family, Reparameterised):
        keys = jax.random.split(key, num_samples)
        return jax.vmap(lambda key: family.draw(problem, params, key))(keys)
    center = family.center
    half = jax.random.normal(key, ((num_samples + 1) // 2, center.size), center.dtype)
    eps = jnp.concatenate([half, -half])[:num_samples]
    return jax.vmap(lambda e: family.place(params, e))(eps)


@partial(jax.jit, static_argnames=("optimizer", "num_samples", "kl_weights"))
def _advance(
    problem, family, carry, entries, key, first, count, rate,
    *, optimizer, num_samples, kl_weights,
):  # fmt: skip
    """Take `count` steps from step `first`, and return the ELBO's estimate at each."""
    blocks = problem.num_blocks

    def objective(params, step, entry):
        batch = problem.source.fetch(entry) if problem.has_rows else None
        weight = kl_weight(kl_weights, step % blocks, blocks)

        def one(z, log_q):
            return block_objective(problem, batch, weight.astype(z.dtype), z, log_q)

        drawn = _draws(problem, family, params, jax.random.fold_in(key, step), num_samples)
        energy, bound = jax.vmap(one)(*drawn)
        return blocks * jnp.mean(energy), jnp.mean(bound)

    def body(i, both):
        (params, state, average, failed_at), trace = both
        step = first + i
        entry = None if entries is None else entries[i]
        (_, bound), slope = jax.value_and_grad(objective, has_aux=True)(params, step, entry)
        with relaxed():
            updates, state = optimizer.update(slope, state, params)
        if rate is not None:
            updates = jax.tree.map(lambda u: -rate[0].astype(u.dtype) * u, updates)
        params = jax.tree.map(lambda p, u: p + u.astype(p.dtype), params, updates)
        if rate is not None:
            share = 1 / jnp.maximum(step - rate[1] + 1, 1).astype(bound.dtype)
            closer = lambda a, p: a + share.astype(p.dtype) * (p - a)  # noqa: E731
            average = jax.tree.map(closer, average, params)
        leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(params)]
        bad = ~(jnp.isfinite(bound) & jnp.all(jnp.stack(leaves)))
        failed_at = jnp.where(bad & (failed_at < 0), step, failed_at)
        return _Carry(params, state, average, failed_at), trace.at[i].set(bound)

    trace = jnp.zeros(MAX_CALL_STEPS, problem.layout.dtype)
    return jax.lax.fori_loop(0, count, body, (carry, trace))


def _optimise(problem, family, params, optimizer, num_steps, num_samples, kl_weights, seed):
    """Return parameters after `num_steps`, and the trace; the split into calls changes no bit."""
    rate = average = None
    if optimizer is None:
        # in the first half the average is the parameters themselves
        optimizer, average = _adam(), params
        rate = (problem.array(LEARNING_RATE), jnp.int32(num_steps // 2))
    carry = _Carry(params, optimizer.init(params), average, jnp.int32(-1))
    key = jax.random.fold_in(jax.random.key(seed), OPTIMISATION_STREAM)
    parts = []
    with Work("optimising") as work:
        for done, now in work.pieces(0, num_steps, most=MAX_CALL_STEPS):
            entries = None
            if problem.has_rows:
                entries = jnp.asarray(problem.source.chunk((seed, 0), done, MAX_CALL_STEPS))
            carry, trace = _advance(
                problem, family, carry, entries, key, jnp.int32(done), jnp.int32(now), rate,
                optimizer=optimizer, num_samples=int(num_samples), kl_weights=kl_weights,
            )  # fmt: skip
            parts.append(np.asarray(trace)[:now])
            failed = int(carry.failed_at)
            if failed >= 0:
                raise RunError(
                    f"the ELBO or q's parameters became non-finite at step {failed}; use an "
                    "optimizer with a smaller learning rate, a smaller init_sd, or another start."
                )
    found = carry.params if carry.average is None else carry.average
    return found, np.concatenate(parts)


def elbo(
    posterior: Posterior, data: PyTree, q: Any, *, num_samples: int = 1000, seed: int = 0
) -> Elbo:
    """Estimate the evidence lower bound of any q, by draws of it, on all rows.

    It is a bound of the log evidence if log_prior and log_likelihood are normalised densities;
    constants that they omit are omitted here. If q is the posterior, every draw gives the log
    evidence itself.

    Args:
      posterior: as for `sgld.sample`.
      data: as for `sgld.sample`.
      q: the result of `sgld.bayes_by_backprop`, or a NumPyro distribution of the position (a
        pytree of them for a position that is a pytree).
      num_samples: draws of q.
      seed: another seed gives other draws.

    Raises: UsageError and DataError for wrong arguments.

    Example:
      >>> import numpyro.distributions as dist, jax.numpy as jnp, sgld
      >>> prior = lambda t: dist.Normal(0.0, 1.0).log_prob(t)
      >>> posterior = sgld.Posterior(prior, lambda t, x: dist.Normal(t, 1.0).log_prob(x))
      >>> q = dist.Normal(1.0, 2**-0.5)                          # the posterior, given one x = 2
      >>> value, se, _ = sgld.variational.elbo(posterior, jnp.array([2.0]), q)
      >>> evidence = dist.Normal(0.0, 2**0.5).log_prob(2.0)
      >>> round(value, 4), round(float(evidence), 4), se < 1e-6
      (-2.2655, -2.2655, True)
    """
    whole_number("num_samples", num_samples)
    if isinstance(q, Variational):
        init, family, params = q.problem.target.position(jnp.asarray(q.z)), q.family, q.params
    else:
        need("numpyro.distributions", "numpyro")
        made, treedef = find_distributions(q)
        with relaxed():
            at = [one.sample(jax.random.key(i)) for i, one in enumerate(made)]
        init = jax.tree.unflatten(treedef, at)
        # the distribution is its own parameters: NumPyro's are pytrees
        family, params = Reparameterised(_itself, q, "position"), q
    problem = prepare(posterior, data, init, seed=seed)
    if isinstance(family, Reparameterised):
        family.check(problem)
    return elbo_values(problem, family, params, num_samples, seed)


def _itself(q: Any) -> Any:
    return q
