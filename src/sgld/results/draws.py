"""Draws: what every run returns. Step-size weights travel with the draws into every summary."""

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
from .late import late
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
class Draws:
    """Posterior draws with their weights, where they came from and how far to trust them.

    Attributes:
      position: pytree like the model's position, or what `keep` of `sgld.sample` returned;
        leaves [chain, draw, ...].
      log_weight: [chain, draw]; the log of the step taken FROM each draw.
      step_size, temperature: [chain, draw].
      step: [draw], the step at which each draw was taken (burn-in included).
      status: one sentence per chain; "ok", or where and how it failed. Failed chains are
        left out of every summary.
      verdict: what the run says about itself (TRUST: `trusted`, `biased`, `not mixed`, `unknown`);
        `unknown` where nothing judged the draws (`verdict.judged` is then False).
      info: num_data, num_steps, seconds, plan and notes of the run that made them.
      plan: the plan itself, of a run made in this session: print it, or run it again with
        `sgld.sample(posterior, data, init, **draws.plan.arguments())`.
      names: [m], one per entry of the position, for tables.
      moments: of a run that kept moments alone (`keep="moments"`); `position` is then where each
        chain ended, and mean, var, sd, quantiles (up to 16,384 parameters) and the summary are those of all
        its draws.
      origin: the posterior and the rows they were drawn from, where this session knows them: what
        `sgld.loo`, `to_arviz` and `plot` ask. Not stored, and None in a pickled copy.

    Example:
      >>> import numpy as np, sgld
      >>> two = {"a": np.array([[0.0, 1.0, 2.0], [2.0, 3.0, np.inf]])}
      >>> draws = sgld.Draws.of(two, status=("ok", "chain 1 failed at step 7: inf in 'a'"))
      >>> draws
      Draws(2 chains x 3 draws of 1 parameters, not judged)
      >>> draws.num_chains, draws.num_draws
      (2, 3)
      >>> draws.healthy, draws.failures  # what failed is in no summary
      (array([0]), ("chain 1 failed at step 7: inf in 'a'",))
      >>> draws.weights.round(4)  # [healthy chain, draw]
      array([[0.3333, 0.3333, 0.3333]])
      >>> draws.phase, draws.modes  # of runs of this library that have them
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
        """Draws of equal weight from arrays [chain, draw, ...], from wherever they come.

        Args:
          position: a pytree of arrays [chain, draw, ...].
          names: one per entry, for tables; None: made from the pytree's.
          fields: any other attribute, such as log_weight [chain, draw] or status.

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
        """Draws at free positions of a problem, as they are reported.

        Args:
          problem: of `sgld.model.prepare`, whose target constrains and reports them.
          zs: free positions [chain, draw, d].
          fields: any attribute of Draws.

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
        """The number of chains, failed ones included."""
        return self.log_weight.shape[0]

    @property
    def num_draws(self) -> int:
        """Kept draws per chain."""
        return self.log_weight.shape[1]

    @property
    def healthy(self) -> Int[np.ndarray, " ok"]:
        """The chains that did not fail."""
        return np.array([i for i, status in enumerate(self.status) if status == "ok"], int)

    @property
    def failures(self) -> tuple[str, ...]:
        """What the failed chains say; one sentence where all failed."""
        failed = tuple(status for status in self.status if status != "ok")
        if len(failed) == self.num_chains > 1:
            return (f"all {self.num_chains} chains failed; {failed[0]}",)
        return failed

    @property
    def weights(self) -> Float[np.ndarray, "ok draw"]:
        """Weights of the healthy chains' draws; they sum to 1."""
        log_weight = self.log_weight[self.healthy]
        if log_weight.size == 0:
            raise RunError(f"there is nothing to summarise: {self.failures[0]}")
        weight = np.exp(log_weight - log_weight.max())
        return weight / weight.sum()

    def __getitem__(self, name: str) -> np.ndarray:
        """Draws of one parameter, [chain, draw, ...], failed chains included.

        Args:
          name: a leaf of a position that has names (all of its entries), or one entry, as tables call it.

        Raises: UsageError where there is none of that name.

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
        """Values [ok, draw, m] of h(position) and the function that restores h's pytree.

        Args:
          h: a function of one position, of JAX; None: the position itself.

        Raises: RunError where every chain failed, or the run kept moments alone.

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
        """RunError where the run kept moments alone: `position` is where each chain ended, and no draws.

        Example:
          >>> import numpy as np, sgld
          >>> sgld.Draws.of({"a": np.array([[0.0, 1.0, 2.0]])}).check_kept()
        """
        if self.moments is None:
            return
        more = "" if self.moments.histogram is None else ", quantiles"
        raise RunError(
            f"this run kept moments and no draws: it has mean, var, sd{more} of the position, and its "
            "summary; for more, sample with keep=function or without keep."
        )

    def _flat(self, h: Callable[[PyTree], PyTree] | None) -> tuple[np.ndarray, Callable]:
        if self.healthy.size == 0:
            raise RunError(f"there is nothing to summarise: {self.failures[0]}")
        whole = self.healthy.size == self.num_chains  # then nothing is copied
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
        """Weighted mean of h(position).

        Args:
          h: a function of one position, of JAX; None: the position itself.

        Returns: a pytree of the shapes that h returns.

        Raises: RunError where every chain failed.

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
        """Weighted variance of h(position), over 1 - sum of the squared weights (n - 1 of n equal ones).

        Args:
          h: as for `mean`.

        Returns: a pytree of the shapes that h returns.

        Raises: RunError where every chain failed.

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
        """Weighted standard deviation of h(position): the root of `var`.

        Args:
          h: as for `mean`.

        Raises: RunError where every chain failed.

        Example:
          >>> import numpy as np, sgld
          >>> round(float(sgld.Draws.of({"a": np.array([[0.0, 2.0]])}).sd()["a"]), 4)
          1.4142
        """
        return jax.tree.map(np.sqrt, self.var(h))

    def quantile(self, q: float, h: Callable[[PyTree], PyTree] | None = None) -> PyTree:
        """Weighted q-quantile of h(position).

        Args:
          q: from 0 to 1.
          h: as for `mean`.

        Raises: UsageError for another q; RunError where every chain failed.

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
        """Equal-tailed credible interval of h(position) holding probability `prob`.

        Args:
          prob: above 0 and below 1.
          h: as for `mean`.

        Returns: the lower and the upper ends, each a pytree of the shapes that h returns.

        Raises: UsageError for another prob; RunError where every chain failed.

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
        """Posterior mean, sd and interval of f(position, x): the Bayesian model average.

        Args:
          f: a function of one position and x, of JAX; a pytree of any shapes.
          x: handed to f as it is.
          interval: the probability between `lower` and `upper`.

        Returns: Prediction(mean, sd, lower, upper), each of the shapes that f returns. That is the
        law of f alone: an outcome's own noise is f's to add.

        Raises: UsageError for another interval, and what f raises, with its line; RunError where every
        chain failed.

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
        """Optimisation or sampling, along the run and per chain: Welling & Teh's alpha.

        None where gradients are exact, and for draws that no sampler of this library made.
        """
        from .verdict import Phase

        stored = self.info.get("phase")
        return None if stored is None else Phase.from_dict(stored)

    @property
    def modes(self) -> Modes | None:
        """All modes that the run found, with their masses; None where it found one."""
        from .verdict import Modes

        stored = self.info.get("modes")
        return None if stored is None else Modes.from_dict(stored)

    def summary(self) -> Summary:
        """The table of every parameter, ending with the verdict.

        Raises: RunError where every chain failed.

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
        """An ArviZ DataTree of the healthy chains, with every group that is known.

        `posterior` and `sample_stats` (log_weight, step_size, temperature) of any draws; where they know
        the posterior they are of, `log_likelihood` of every row and `constant_data`; of a formula or a
        NumPyro model also `posterior_predictive`, `prior`, `observed_data`, and its names and levels
        as dims and coords.

        Args:
          posterior, data: those the draws are of, where the draws do not know them.
          outcome: of a posterior of two functions, which of the data is the outcome: the key of a
            dict, the place in a tuple.
          simulate: of such a posterior, (key, position, datum) -> one outcome of a row.
          max_bytes: of log_likelihood, and of posterior_predictive: beyond it a subsample of the rows
            is taken, which the groups' `row` coordinate and their attribute `subsample` name. Of more
            than a million predicted outcomes one of so many draws is (`draw` says which).
          weights: "resample": draws of unequal weights are resampled to equal ones, which a warning
            says; "keep" leaves them to sample_stats.
          seed: of what is drawn here.
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
        """The same as an InferenceData, for ArviZ before 1.0, which PyMC 5 brings.

        Args:
          posterior, data, how: as `to_arviz` takes them.

        Raises: MissingExtra where no ArviZ before 1.0 is installed; UsageError for a wrong argument.

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
        """A matplotlib figure of the draws, weights included: ArviZ's plots where ArviZ has one.

        Args:
          kind: "forest" (intervals of 50% and 90%), "trace", "marginal", "pair", "ppc" (outcomes that the
            model makes beside those that came) or "verdict" (what was measured, beside the limits).
          names: of the parameters, or of what they are entries of; left out: those with the lowest ESS
            where there are many.
          how: of "ppc", where the draws do not know them, `posterior`, `data`, `outcome` and `simulate` as
            for `to_arviz`, and `seed`.

        Raises: UsageError for a wrong argument or outcomes that are not known, MissingExtra without
        matplotlib and arviz-plots (the extra `report`).

        Example:
          >>> import numpy as np, sgld
          >>> draws = sgld.Draws.of({"a": np.random.default_rng(0).normal(size=(4, 100, 2))})
          >>> figure = draws.plot("verdict", names=["a"])
          >>> type(figure).__name__
          'Figure'
        """
        return late("plot")(self, kind, names=names, **how)

    def report(self, path: str | Path, posterior: Any = None, data: Any = None, **how: Any) -> Path:
        """Write the page of the run, one file that needs nothing else, to `path`; return it.

        Args:
          path: of the page, such as "report.html".
          posterior, data: where the draws do not know their model, for the predictive check.
          how: `outcome` and `simulate` as for `to_arviz`.

        Raises: UsageError for a wrong posterior, RunError where it cannot be written, MissingExtra without matplotlib.

        Example:
          >>> import tempfile, numpy as np, sgld
          >>> draws = sgld.Draws.of({"a": np.random.default_rng(0).normal(size=(4, 100))})
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     draws.report(f"{folder}/page.html").name
          'page.html'
        """
        return late("report")(self, path, posterior, data, **how)

    def save(self, path: str | Path) -> Path:
        """Write a run directory at `path` (arrays and JSON only); `sgld.load` reads it.

        Args:
          path: of a folder that does not exist yet.

        Returns: the path.

        Raises: RunError where something stands there, or it cannot be written.

        Example:
          >>> import tempfile, numpy as np, sgld
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     path = sgld.Draws.of({"a": np.zeros((4, 100))}).save(f"{folder}/run")
          ...     sgld.load(path)
          Draws(4 chains x 100 draws of 1 parameters, not judged)
        """
        return late("save")(self, path)

    def with_verdict(self, verdict: Verdict) -> Draws:
        """The same draws, judged.

        Args:
          verdict: of another run, or of a check of one's own.

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

    def _repr_html_(self) -> str:
        return late("html")(self)
