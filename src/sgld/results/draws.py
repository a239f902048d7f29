"""Draws: the result of every run. Step-size weights travel with the draws into every summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np
from jaxtyping import Float, Int

from ..core.pytrees import Layout
from ..core.validation import fraction
from ..errors import RunError, UsageError, did_you_mean
from ..model.problem import Problem
from . import statistics
from .late import Shown, late
from .plan import Origin
from .statistics import Prediction, predict
from .verdict import NOT_JUDGED, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import DataTree

    from ..typing import PlotKind
    from .plan import Plan
    from .statistics import Moments
    from .summary import Summary
    from .verdict import Modes, Phase

PyTree = Any


@dataclass(frozen=True, repr=False)
class Draws(Shown):
    """Posterior draws with their weights, their origin, and the verdict on them.

    Attributes:
      position: pytree like the model's position, or the value that `keep` of `sgld.sample`
        returned; leaves [chain, draw, ...].
      log_weight: [chain, draw]; the log of the step taken FROM each draw.
      step_size, temperature: [chain, draw].
      step: [draw], the step at which each draw was taken (burn-in included).
      status: one sentence per chain; "ok", or where and how it failed. Failed chains are left out
        of every summary.
      verdict: the verdict on the run (`trusted`, `biased`, `not mixed`, `unknown`). It is `unknown`
        if nothing judged the draws (`verdict.judged` is then False).
      info: num_data, num_steps, seconds, plan and notes of the run that made them.
      plan: the plan of a run that was made in this session. Print it, or run it again with
        `sgld.sample(posterior, data, init, **draws.plan.arguments())`.
      names: [m], one per entry of the position, for tables.
      moments: the moments of a run that kept only those (`keep="moments"`). `position` then holds
        the last position of each chain; mean, var, sd, quantiles (up to 16,384 parameters) and the
        summary cover all draws.
      origin: the posterior and the rows of the draws, if this session knows them. `sgld.loo`,
        `to_arviz` and `plot` use it. It is not stored, and is None in a pickled copy.

    Example:
      >>> import numpy as np, sgld
      >>> two = {"a": np.array([[0.0, 1.0, 2.0], [2.0, 3.0, np.inf]])}
      >>> draws = sgld.Draws.of(two, status=("ok", "chain 1 failed at step 7: inf in 'a'"))
      >>> draws
      Draws(2 chains x 3 draws of 1 parameters, not judged)
      >>> draws.num_chains, draws.num_draws
      (2, 3)
      >>> draws.healthy, draws.failures  # failed chains are in no summary
      (array([0]), ("chain 1 failed at step 7: inf in 'a'",))
      >>> draws.weights.round(4)  # [healthy chain, draw]
      array([[0.3333, 0.3333, 0.3333]])
      >>> draws.phase, draws.modes  # only for runs of this library that measured them
      (None, None)
    """

    position: PyTree
    log_weight: Float[np.ndarray, "chain draw"]
    step_size: Float[np.ndarray, "chain draw"]
    temperature: Float[np.ndarray, "chain draw"]
    step: Int[np.ndarray, " draw"]
    status: tuple[str, ...]
    names: tuple[str, ...]
    verdict: Verdict = NOT_JUDGED
    info: dict[str, Any] = field(default_factory=dict)
    plan: Plan | None = None
    moments: Moments | None = None
    origin: Origin | None = None

    @classmethod
    def of(cls, position: PyTree, *, names: tuple[str, ...] | None = None, **fields: Any) -> Draws:
        """Create draws of equal weight from arrays [chain, draw, ...] of any source.

        Args:
          position: a pytree of arrays [chain, draw, ...].
          names: one per entry, for tables; None: derived from the pytree.
          **fields: any other attribute, such as log_weight [chain, draw] or status.

        Example:
          >>> import numpy as np, sgld
          >>> sgld.Draws.of({"b": np.zeros((4, 100, 2))}).names
          ('b[0]', 'b[1]')
        """
        position = jax.tree.map(np.asarray, position)
        leaf = jax.tree.leaves(position)[0]
        shape = leaf.shape[:2]
        if names is None:
            one = jax.tree.map(lambda a: a[0, 0].astype(float), position)
            names = tuple(Layout.of(one).element_names())
        defaults = {
            "log_weight": np.zeros(shape),
            "step_size": np.ones(shape),
            "temperature": np.ones(shape),
            "step": np.arange(shape[1]),
            "status": ("ok",) * shape[0],
        }
        return cls(position=position, names=tuple(names), **{**defaults, **fields})

    @classmethod
    def at(cls, problem: Problem, zs: Any, **fields: Any) -> Draws:
        """Create draws from free positions of a problem, in the form in which they are reported.

        Args:
          problem: the result of `sgld.model.prepare`; its target constrains and reports the
            positions.
          zs: free positions [chain, draw, d].
          **fields: any attribute of Draws.

        Example:
          >>> import numpy as np, sgld
          >>> from sgld.model.prepare import prepare
          >>> problem = prepare(sgld.Posterior(lambda t: -0.5 * t**2), None, 0.0)
          >>> sgld.Draws.at(problem, np.ones((2, 5, 1), np.float32)).position.shape
          (2, 5)
        """
        position = problem.reported(zs)
        one = jax.tree.map(lambda leaf: np.asarray(leaf[0, 0], np.float32), position)
        names = problem.posterior.names or Layout.of(one).element_names()
        return cls.of(position, names=tuple(names), **fields)

    @property
    def num_chains(self) -> int:
        """Number of chains, failed chains included."""
        return self.log_weight.shape[0]

    @property
    def num_draws(self) -> int:
        """Number of kept draws per chain."""
        return self.log_weight.shape[1]

    @property
    def healthy(self) -> Int[np.ndarray, " ok"]:
        """Indices of the chains that did not fail."""
        return np.array([i for i, status in enumerate(self.status) if status == "ok"], int)

    @property
    def failures(self) -> tuple[str, ...]:
        """Status sentences of the failed chains; a single sentence if all chains failed."""
        failed = tuple(status for status in self.status if status != "ok")
        if len(failed) == self.num_chains > 1:
            return (f"all {self.num_chains} chains failed; {failed[0]}",)
        return failed

    @property
    def weights(self) -> Float[np.ndarray, "ok draw"]:
        """Weights of the healthy chains' draws; they sum to 1."""
        log_weight = self.log_weight[self.healthy]
        if log_weight.size == 0:
            raise RunError(f"there are no draws to summarise: {self.failures[0]}")
        weight = np.exp(log_weight - log_weight.max())
        return weight / weight.sum()

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the draws of one parameter, [chain, draw, ...], failed chains included.

        Args:
          name: the name of a leaf of the position (all of its entries), or of one entry as in the
            tables.

        Raises: UsageError if no parameter has that name.

        Example:
          >>> import numpy as np, sgld
          >>> draws = sgld.Draws.of({"a": np.arange(6.0).reshape(1, 3, 2)})
          >>> draws["a"].shape, draws["a[1]"]
          ((1, 3, 2), array([[1., 3., 5.]]))
        """
        leaves = self.position if isinstance(self.position, Mapping) else {}
        if name in leaves:
            return np.asarray(leaves[name])
        if name not in self.names:
            known = [*leaves, *(n for n in self.names if n not in leaves)]
            raise UsageError(
                f"these draws have no parameter {name!r}; they have {', '.join(map(repr, known[:8]))}{', ...' * (len(known) > 8)}."
                f"{did_you_mean(str(name), known)}"
            )
        flat = [np.reshape(leaf, (*leaf.shape[:2], -1)) for leaf in jax.tree.leaves(self.position)]
        return np.concatenate(flat, axis=-1)[..., self.names.index(name)]

    def flat(
        self, h: Callable[[PyTree], PyTree] | None = None
    ) -> tuple[Float[np.ndarray, "ok draw m"], Callable[[np.ndarray], PyTree]]:
        """Return the values [ok, draw, m] of h(position), and a function that restores h's pytree.

        Args:
          h: a JAX function of one position; None: the position itself.

        Raises: RunError if every chain failed, or if the run kept only moments.

        Example:
          >>> import numpy as np, sgld
          >>> draws = sgld.Draws.of({"a": np.array([[0.0, 1.0, 2.0]])})
          >>> values, restore = draws.flat(lambda p: {"square": p["a"] ** 2})
          >>> values.shape, restore(values[0, 2])
          ((1, 3, 1), {'square': array(4.)})
        """
        self.check_kept()
        return self._flat(h)

    def check_kept(self) -> None:
        """Raise RunError if the run kept only moments, so that `position` holds no draws.

        Example:
          >>> import numpy as np, sgld
          >>> sgld.Draws.of({"a": np.array([[0.0, 1.0, 2.0]])}).check_kept()
        """
        if self.moments is None:
            return
        more = "" if self.moments.histogram is None else ", quantiles"
        raise RunError(
            f"this run kept only moments, not draws: mean, var, sd{more} of the position and the summary are "
            "available. For other results, sample with keep=function or without keep."
        )

    def _flat(self, h: Callable[[PyTree], PyTree] | None) -> tuple[np.ndarray, Callable]:
        if self.healthy.size == 0:
            raise RunError(f"there are no draws to summarise: {self.failures[0]}")
        whole = self.healthy.size == self.num_chains  # no copy is needed
        position = jax.tree.map(lambda leaf: leaf if whole else leaf[self.healthy], self.position)
        values = position if h is None else jax.jit(jax.vmap(jax.vmap(h)))(position)
        leaves, treedef = jax.tree.flatten(values)
        shapes = [leaf.shape[2:] for leaf in leaves]
        sizes = [int(np.prod(shape)) for shape in shapes]
        flat = np.empty((*leaves[0].shape[:2], sum(sizes)))
        parts = np.split(flat, np.cumsum(sizes)[:-1], axis=-1)
        for part, leaf in zip(parts, leaves, strict=True):
            part[...] = np.asarray(leaf).reshape(part.shape)

        def restore(row: np.ndarray) -> PyTree:
            parts = np.split(row, np.cumsum(sizes)[:-1])
            return treedef.unflatten([p.reshape(s) for p, s in zip(parts, shapes, strict=True)])

        return flat, restore

    def mean(self, h: Callable[[PyTree], PyTree] | None = None) -> PyTree:
        """Return the weighted mean of h(position).

        Args:
          h: a JAX function of one position; None: the position itself.

        Returns: a pytree of the shapes that h returns.

        Raises: RunError if every chain failed.

        Example:
          >>> import numpy as np, sgld
          >>> draws = sgld.Draws.of({"a": np.array([[0.0, 1.0, 2.0]])})
          >>> float(draws.mean()["a"]), round(float(draws.mean(lambda p: p["a"] > 0.5)), 4)
          (1.0, 0.6667)
        """
        if self.moments is not None and h is None:
            return self._flat(None)[1](self.moments.mean(self.healthy))
        values, restore = self.flat(h)
        return restore(statistics.mean(values, self.weights))

    def var(self, h: Callable[[PyTree], PyTree] | None = None) -> PyTree:
        """Return the weighted variance of h(position).

        The divisor is 1 - sum of the squared weights, which is (n - 1) / n for n equal weights.

        Args:
          h: as for `mean`.

        Returns: a pytree of the shapes that h returns.

        Raises: RunError if every chain failed.

        Example:
          >>> import numpy as np, sgld
          >>> draws = sgld.Draws.of({"a": np.array([[0.0, 2.0]])}, log_weight=np.log([[0.75, 0.25]]))
          >>> float(draws.var()["a"].round(4))  # about the mean .5, over 1 - .75^2 - .25^2
          2.0
        """
        if self.moments is not None and h is None:
            return self._flat(None)[1](self.moments.var(self.healthy))
        values, restore = self.flat(h)
        return restore(statistics.var(values, self.weights))

    def sd(self, h: Callable[[PyTree], PyTree] | None = None) -> PyTree:
        """Return the weighted standard deviation of h(position), the square root of `var`.

        Args:
          h: as for `mean`.

        Raises: RunError if every chain failed.

        Example:
          >>> import numpy as np, sgld
          >>> round(float(sgld.Draws.of({"a": np.array([[0.0, 2.0]])}).sd()["a"]), 4)
          1.4142
        """
        return jax.tree.map(np.sqrt, self.var(h))

    def quantile(self, q: float, h: Callable[[PyTree], PyTree] | None = None) -> PyTree:
        """Return the weighted q-quantile of h(position).

        Args:
          q: from 0 to 1.
          h: as for `mean`.

        Raises: UsageError for another q; RunError if every chain failed.

        Example:
          >>> import numpy as np, sgld
          >>> draws = sgld.Draws.of({"a": np.linspace(0.0, 1.0, 101)[None]})
          >>> round(float(draws.quantile(0.25)["a"]), 2)
          0.25
        """
        fraction("q", q, ends=True)
        if self.moments is not None and self.moments.histogram is not None and h is None:
            restore = self._flat(None)[1]
            return restore(self.moments.histogram.quantile(q, self.healthy))
        values, restore = self.flat(h)
        return restore(statistics.quantile(values, self.weights, q))

    def interval(
        self, prob: float = 0.9, h: Callable[[PyTree], PyTree] | None = None
    ) -> tuple[PyTree, PyTree]:
        """Return the equal-tailed credible interval of h(position) that holds probability `prob`.

        Args:
          prob: above 0 and below 1.
          h: as for `mean`.

        Returns: the lower and the upper ends, each a pytree of the shapes that h returns.

        Raises: UsageError for another prob; RunError if every chain failed.

        Example:
          >>> import numpy as np, sgld
          >>> draws = sgld.Draws.of({"a": np.linspace(0.0, 1.0, 101)[None]})
          >>> lower, upper = draws.interval(0.8)
          >>> round(float(lower["a"]), 2), round(float(upper["a"]), 2)
          (0.1, 0.9)
        """
        fraction("prob", prob)
        return self.quantile((1 - prob) / 2, h), self.quantile((1 + prob) / 2, h)

    def predict(
        self, f: Callable[[PyTree, PyTree], PyTree], x: PyTree = None, interval: float = 0.9
    ) -> Prediction:
        """Return the posterior mean, sd and interval of f(position, x): the Bayesian model average.

        Args:
          f: a JAX function of one position and x; it returns a pytree of any shapes.
          x: passed to f unchanged.
          interval: the probability between `lower` and `upper`.

        Returns: Prediction(mean, sd, lower, upper), each of the shapes that f returns. It describes
        the distribution of f alone; f must add the noise of an outcome itself.

        Raises: UsageError for another interval, and for an error inside f (with its line); RunError
        if every chain failed.

        Example:
          >>> import numpy as np, sgld
          >>> draws = sgld.Draws.of({"slope": np.array([[1.0, 3.0]])})
          >>> found = draws.predict(lambda p, x: p["slope"] * x, np.array([0.0, 2.0]))
          >>> found.mean, found.sd.round(4)
          (array([0., 4.]), array([0.    , 2.8284]))
        """
        return predict(self, f, x, interval)

    @property
    def phase(self) -> Phase | None:
        """Optimisation or sampling phase, along the run and per chain: Welling & Teh's alpha.

        None if gradients are exact, and for draws that no sampler of this library made.
        """
        from .verdict import Phase

        stored = self.info.get("phase")
        return None if stored is None else Phase.from_dict(stored)

    @property
    def modes(self) -> Modes | None:
        """All modes that the run found, with their masses; None if it found one mode."""
        from .verdict import Modes

        stored = self.info.get("modes")
        return None if stored is None else Modes.from_dict(stored)

    def summary(self) -> Summary:
        """Return the table of every parameter, which ends with the verdict.

        Raises: RunError if every chain failed.

        Example:
          >>> import numpy as np, sgld
          >>> draws = sgld.Draws.of({"a": np.random.default_rng(0).normal(size=(4, 500))})
          >>> round(draws.summary().parameters["a"]["sd"], 1)
          1.0
        """
        return late("summarise")(self)

    def to_arviz(
        self,
        posterior: Any = None,
        data: Any = None,
        *,
        outcome: str | int | None = None,
        simulate: Callable[[Any, PyTree, PyTree], Any] | None = None,
        max_bytes: int = 2**28,
        weights: Literal["resample", "keep"] = "resample",
        seed: int = 0,
        progress: bool = True,
    ) -> DataTree:
        """Return an ArviZ DataTree of the healthy chains, with every group that is available.

        Any draws have `posterior` and `sample_stats` (log_weight, step_size, temperature). If the
        draws know their posterior, the tree also holds `log_likelihood` of every row and
        `constant_data`. For a formula or a NumPyro model it also holds `posterior_predictive`,
        `prior`, `observed_data`, and the model's names and levels as dims and coords.

        Args:
          posterior: the posterior of the draws, if the draws do not know it.
          data: the data of the draws, likewise.
          outcome: for a posterior of two functions, the part of the data that is the outcome: the
            key of a dict, or the position in a tuple.
          simulate: for such a posterior, a function (key, position, datum) -> one outcome of a row.
          max_bytes: the size limit of log_likelihood and of posterior_predictive. Beyond it the
            tree holds a subsample of the rows, given by the groups' `row` coordinate and
            `subsample` attribute. Beyond a million predicted outcomes only every k-th draw is used
            (`draw` says which).
          weights: "resample": resample draws of unequal weights to equal weights, with a warning;
            "keep": leave the weights in sample_stats.
          seed: the seed of the simulated outcomes and the resampling.
          progress: show the stages, as `sgld.sample` does.

        Raises: UsageError for a wrong argument.

        Example:
          >>> import numpy as np, sgld
          >>> x = np.random.default_rng(0).normal(size=200)
          >>> fit = sgld.fit({"x": x, "y": (x > 0.3) * 1.0 + (x > 1)}, "y ~ x", progress=False)
          >>> sorted(fit.draws.to_arviz().children)
          ['constant_data', 'log_likelihood', 'observed_data', 'posterior', 'posterior_predictive',
           'prior', 'sample_stats']
        """
        how: dict[str, Any] = {"outcome": outcome, "simulate": simulate, "max_bytes": max_bytes}
        return late("to_arviz")(
            self, posterior, data, **how, weights=weights, seed=seed, progress=progress
        )

    def to_inferencedata(self, posterior: Any = None, data: Any = None, **how: Any) -> Any:
        """Return the groups of `to_arviz` as an InferenceData, for ArviZ before 1.0 (as PyMC 5 uses).

        Args:
          posterior: as for `to_arviz`.
          data: as for `to_arviz`.
          **how: as for `to_arviz`.

        Raises: MissingExtra if no ArviZ before 1.0 is installed; UsageError for a wrong argument.

        Example:
          >>> import numpy as np, sgld
          >>> draws = sgld.Draws.of({"a": np.zeros((4, 100))})
          >>> draws.to_inferencedata()                               # doctest: +SKIP
          Inference data with groups:
              > posterior
              > sample_stats
        """
        return late("to_inferencedata")(self, posterior, data, **how)

    def plot(
        self, kind: PlotKind = "forest", *, names: Sequence[str] | None = None, **how: Any
    ) -> Figure:
        """Return a matplotlib figure of the draws, weights included; ArviZ makes most kinds.

        Args:
          kind: "forest" (intervals of 50% and 90%), "trace", "marginal", "pair", "ppc" (outcomes
            simulated from the model compared with the observed ones) or "verdict" (measured values
            and their limits).
          names: names of parameters, or of the arrays they are entries of; by default those with
            the lowest ESS if there are many parameters.
          **how: for "ppc", if the draws do not know them: `posterior`, `data`, `outcome` and
            `simulate` as for `to_arviz`, and `seed`.

        Raises: UsageError for a wrong argument or unknown outcomes; MissingExtra without matplotlib
        and arviz-plots (the extra `report`).

        Example:
          >>> import numpy as np, sgld
          >>> draws = sgld.Draws.of({"a": np.random.default_rng(0).normal(size=(4, 100, 2))})
          >>> figure = draws.plot("verdict", names=["a"])
          >>> type(figure).__name__
          'Figure'
        """
        return late("plot")(self, kind, names=names, **how)

    def report(
        self, path: str | Path, posterior: Any = None, data: Any = None, *, title: str = "", **how: Any
    ) -> Path:  # fmt: skip
        """Write the report of the run to `path` as one self-contained HTML page; return the path.

        Args:
          path: the file of the page, such as "report.html".
          posterior: the posterior for the predictive check, if the draws do not know it.
          data: the data for the predictive check, likewise.
          title: the heading of the page; by default the formula or the name of the file.
          **how: `outcome` and `simulate` as for `to_arviz`.

        Raises: UsageError for a wrong posterior; RunError if the page cannot be written;
        MissingExtra without matplotlib.

        Example:
          >>> import tempfile, numpy as np, sgld
          >>> draws = sgld.Draws.of({"a": np.random.default_rng(0).normal(size=(4, 100))})
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     draws.report(f"{folder}/page.html").name
          'page.html'
        """
        return late("report")(self, path, posterior, data, title=title, **how)

    def save(self, path: str | Path) -> Path:
        """Write a run directory at `path` (arrays and JSON only); `sgld.load` reads it.

        Args:
          path: a folder that does not exist yet.

        Returns: the path.

        Raises: RunError if the path exists, or cannot be written.

        Example:
          >>> import tempfile, numpy as np, sgld
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     path = sgld.Draws.of({"a": np.zeros((4, 100))}).save(f"{folder}/run")
          ...     sgld.load(path)
          Draws(4 chains x 100 draws of 1 parameters, not judged)
        """
        return late("save")(self, path)

    def with_verdict(self, verdict: Verdict) -> Draws:
        """Return the same draws with another verdict.

        Args:
          verdict: the verdict of another run, or of your own check.

        Example:
          >>> import numpy as np, sgld
          >>> draws = sgld.Draws.of({"a": np.zeros((4, 100))})
          >>> from sgld.results.verdict import Verdict
          >>> draws.with_verdict(Verdict("trusted", ("they are exact.",)))
          Draws(4 chains x 100 draws of 1 parameters, trusted)
        """
        return replace(self, verdict=verdict)

    def __repr__(self) -> str:
        word = self.verdict.word if self.verdict.judged else "not judged"
        return (
            f"Draws({self.num_chains} chains x {self.num_draws} draws of "
            f"{len(self.names)} parameters, {word})"
        )
