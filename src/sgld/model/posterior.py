"""The posterior that every method samples: a log prior plus a sum of log likelihoods per datum.

    log p(theta | data) = log_prior(theta) + sum_i log_likelihood(theta, datum_i) + constant

Functions are static parts of the pytree and numbers bound to them are leaves. A change of
numbers (a prior's scale, for example) therefore needs no compilation. Constrained parameters are
sampled in free coordinates: theta = constrain(phi), and log |d theta / d phi| is added once, to
the prior.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.tree_util import Partial
from jaxtyping import Array, ArrayLike, Float

from ..core.pytrees import as_pytree, leaf_names
from ..errors import UsageError, did_you_mean, need

PyTree = Any


@runtime_checkable
class Transform(Protocol):
    """A bijection from free (unconstrained) pytrees to positions; itself a pytree."""

    def forward(self, free: PyTree) -> PyTree: ...  # noqa: D102
    def inverse(self, position: PyTree) -> PyTree: ...  # noqa: D102
    def log_det(self, free: PyTree) -> Float[Array, ""]: ...  # noqa: D102


def _as_pytree(function: Callable) -> Callable:
    """Return a callable pytree: plain functions are static and bound numbers are leaves."""
    if jax.tree_util.all_leaves([function]):
        return Partial(function)
    return function


def _log_concave(function: Any) -> bool:
    """Return whether a function and all functions bound to it are marked as log-concave."""
    if not isinstance(function, Partial):
        return getattr(function, "log_concave", False) is True
    bound = [value for value in (*function.args, *function.keywords.values()) if callable(value)]
    return all(map(_log_concave, (function.func, *bound)))


class Labels(tuple[str, ...]):
    """Names that compiled code treats as equal: other labels on a model need no compilation."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Labels)

    def __hash__(self) -> int:
        return 0


@as_pytree
@dataclass(frozen=True, repr=False)
class Posterior:
    """A posterior from its log prior and the log likelihood of ONE datum.

    Args:
      log_prior: `log_prior(position) -> scalar`. With `log_likelihood=None` it is the
        log density itself, to be sampled with `data=None`.
      log_likelihood: `log_likelihood(position, datum) -> scalar`, of one datum: a row of
        every array of the data. The library sums it over rows.
      constraints: a pytree like the position, with its names, whose leaves are constraints of
        `numpyro.distributions.constraints` (None: unconstrained); one for a whole part of the
        position (a network, for example) applies to all its leaves. The priors and likelihoods receive
        constrained values; the Jacobian is added once by the library.
      transform: instead of `constraints`, any object with `forward`, `inverse`, `log_det`.
      init: a position to start from if `sgld.sample` is given none.
      output: `output(position) -> pytree`, what draws report instead of the position (a
        regression sampled in standardised coordinates reports original ones).
      names: one name per flat entry of the reported pytree, for tables.
      predict: `predict(position, datum) -> array`, the model's prediction for one datum: one or
        several numbers, or the log probabilities of classes (their exponentials sum to 1). If given, runs are
        tuned and judged by predictions at some rows, not by single parameters, as for
        networks (`docs/networks.md`). A module as the position needs no `predict`: its output is used.
      predict_at: the rows for these predictions, arrays like the data's with a leading row axis (None: 64 rows
        of the data). Predictions far from the data mix more slowly than predictions at them.
      data: the rows, if `sgld.sample` is given none (`sgld.from_numpyro` sets them).
      notes: sentences that the summary of every run repeats.

    A function's numbers can be bound with `jax.tree_util.Partial(f, scale)`; a change of them
    then needs no compilation.

    Example:
      >>> import jax.numpy as jnp, sgld
      >>> posterior = sgld.Posterior(
      ...     lambda theta: -0.5 * jnp.sum(theta**2),
      ...     lambda theta, datum: -0.5 * (datum - theta[0]) ** 2,
      ... )
      >>> posterior
      Posterior(log prior + sum of log likelihoods)
    """

    log_prior: Callable[[PyTree], Array]
    log_likelihood: Callable[[PyTree, PyTree], Array] | None = None
    _: KW_ONLY
    constraints: Any = field(default=None, metadata={"static": True})
    transform: Any = None
    init: Any = None
    output: Any = None
    names: Labels | None = field(default=None, metadata={"static": True})
    predict: Any = None
    predict_at: Any = None
    data: Any = None
    notes: Labels = field(default=Labels(), metadata={"static": True})

    def __post_init__(self) -> None:
        if jax.tree_util.all_leaves([self.log_prior]) and not callable(self.log_prior):
            # JAX rebuilds pytrees with placeholders; only values that a user gave are checked.
            if isinstance(self.log_prior, (int, float, str)):
                raise UsageError(
                    f"log_prior must be a function of a position. Got {self.log_prior!r}."
                )
            return
        if callable(self.log_prior):
            object.__setattr__(self, "log_prior", _as_pytree(self.log_prior))
        if callable(self.log_likelihood):
            object.__setattr__(self, "log_likelihood", _as_pytree(self.log_likelihood))
        if self.names is not None:
            object.__setattr__(self, "names", Labels(self.names))
        object.__setattr__(self, "notes", Labels(self.notes))
        for name in ("output", "predict"):
            if callable(getattr(self, name)):
                object.__setattr__(self, name, _as_pytree(getattr(self, name)))
        if self.constraints is not None and self.transform is None:
            object.__setattr__(self, "transform", Constraints.build(self.constraints))
            object.__setattr__(self, "constraints", None)

    @property
    def log_concave(self) -> bool:
        """Whether prior and likelihood are known to be log-concave in the position.

        A log-concave density has one mode and no heavy tail, so the search for other modes is skipped. Functions declare
        it (`function.log_concave = True`), as those of formulas do where it holds. False means that it is not known.

        Example:
          >>> import sgld
          >>> def log_prior(theta):
          ...     return -(theta**2) / 2
          >>> sgld.Posterior(log_prior).log_concave
          False
          >>> log_prior.log_concave = True
          >>> sgld.Posterior(log_prior).log_concave
          True
        """
        functions = [f for f in (self.log_prior, self.log_likelihood) if f is not None]
        return self.transform is None and all(map(_log_concave, functions))

    def __repr__(self) -> str:
        what = (
            "log density" if self.log_likelihood is None else "log prior + sum of log likelihoods"
        )
        return f"Posterior({what}{', constrained' if self.transform is not None else ''})"

    def constrain(self, free: PyTree) -> PyTree:
        """Return the position of a free pytree.

        Args:
          free: a pytree like the position, unconstrained.

        Example:
          >>> import jax.numpy as jnp, sgld
          >>> from numpyro.distributions import constraints
          >>> posterior = sgld.Posterior(
          ...     lambda p: -p["rate"], constraints={"rate": constraints.positive})
          >>> float(posterior.constrain({"rate": jnp.array(0.0)})["rate"])  # exp(0)
          1.0
        """
        return free if self.transform is None else self.transform.forward(free)

    def unconstrain(self, position: PyTree) -> PyTree:
        """Return the free pytree of a position, the inverse of `constrain`.

        Args:
          position: the position, as the prior and the likelihood receive it.

        Raises: UsageError if it violates its constraint.

        Example:
          >>> import jax.numpy as jnp, sgld
          >>> from numpyro.distributions import constraints
          >>> posterior = sgld.Posterior(
          ...     lambda p: -p["rate"], constraints={"rate": constraints.positive})
          >>> float(posterior.unconstrain({"rate": jnp.array(1.0)})["rate"])  # log(1)
          0.0
        """
        return position if self.transform is None else self.transform.inverse(position)

    def log_prior_free(self, free: PyTree, temperature: ArrayLike = 1.0) -> Float[Array, ""]:
        """Return the log prior of the position plus T log |Jacobian|.

        At T = 1 this is the log density of the free pytree. p(theta | data)^(1/T) is a density of the position on
        its own scale. Its free coordinates have the density p^(1/T) |J| = exp((log p + T log |J|) / T): the Jacobian
        is not tempered.

        Args:
          free: a pytree like the position, unconstrained.
          temperature: T.

        Example:
          >>> import jax.numpy as jnp, sgld
          >>> from numpyro.distributions import constraints
          >>> posterior = sgld.Posterior(
          ...     lambda p: -p["rate"], constraints={"rate": constraints.positive})
          >>> posterior.log_prior_free({"rate": jnp.array(0.0)})  # log p(1) + log |d rate / d free|
          Array(-1., dtype=float32)
        """
        value = self.log_prior(self.constrain(free))
        if self.transform is None:
            return value
        return value + temperature * self.transform.log_det(free)

    def log_likelihood_free(
        self, free: PyTree, rows: PyTree, weight: Float[Array, " n"] | None = None
    ) -> Float[Array, ""]:
        """Return the weighted sum of the log likelihoods over `rows`, which have a leading axis.

        Args:
          free: a pytree like the position, unconstrained.
          rows: a pytree like the data.
          weight: the weight of each row, [n]; None: 1.

        Example:
          >>> import jax.numpy as jnp, sgld
          >>> posterior = sgld.Posterior(
          ...     lambda t: -0.5 * t**2, lambda t, x: -0.5 * (x - t) ** 2)
          >>> posterior.log_likelihood_free(jnp.array(0.0), jnp.array([1.0, 2.0]))
          Array(-2.5, dtype=float32)
        """
        assert self.log_likelihood is not None
        values = jax.vmap(self.log_likelihood, (None, 0))(self.constrain(free), rows)
        if weight is None:
            return jnp.sum(values)
        return jnp.sum(weight * values)


def _bijection(constraint: Any) -> Any:
    dist = need("numpyro.distributions", "numpyro")
    try:
        return dist.biject_to(constraint)
    except NotImplementedError as error:  # NumPyro has no bijection to a discrete set or a surface
        raise UsageError(
            f"constraints holds {constraint!r}, and no bijection from free numbers to it exists; sum a discrete parameter "
            "out of the density, or write the position in free coordinates (or give transform=)."
        ) from error


@as_pytree
@dataclass(frozen=True)
class Constraints:
    """One NumPyro bijection per leaf of the position."""

    bijections: tuple[Any, ...]
    names: tuple[str, ...] = field(metadata={"static": True})
    paths: tuple[tuple[str, ...], ...] = field(metadata={"static": True})

    @classmethod
    def build(cls, constraints: PyTree) -> Constraints:
        """Return the bijections of a pytree of constraints (None leaves: unconstrained)."""
        dist = need("numpyro.distributions", "numpyro")
        kind = dist.constraints.Constraint
        is_leaf = lambda node: node is None or isinstance(node, kind)  # noqa: E731
        leaves = jax.tree.leaves(constraints, is_leaf=is_leaf)
        for leaf in leaves:
            if leaf is not None and not isinstance(leaf, kind):
                raise UsageError(
                    f"constraints holds {leaf!r}; use constraints of numpyro.distributions.constraints, "
                    "such as constraints.positive, or None."
                )
        real = dist.constraints.real
        bijections = tuple(_bijection(real if leaf is None else leaf) for leaf in leaves)
        shaped = jax.tree.map(lambda _: 0.0, constraints, is_leaf=is_leaf)
        whole = jax.tree_util.treedef_is_leaf(jax.tree.structure(shaped))
        paths = ((),) if whole else tuple(_paths(shaped))
        return cls(bijections, tuple(leaf_names(shaped)), paths)

    def _leaves(self, tree: PyTree) -> tuple[list[tuple[Any, ArrayLike]], Any]:
        """Return every leaf with its bijection."""
        leaves, treedef = jax.tree.flatten(tree)
        paths, given = _paths(tree), dict(zip(self.paths, self.bijections, strict=True))
        # an entry applies to all leaves below it
        found = [[p[:k] for k in range(len(p) + 1) if p[:k] in given] for p in paths]
        used = {*(p for some in found for p in some), *_paths(tree, lambda x: x is None)}
        if not all(found) or not given.keys() <= used:
            self._refuse(tree, [not some for some in found])
        return [(given[p], x) for (p, *_), x in zip(found, leaves, strict=True)], treedef

    def _refuse(self, tree: PyTree, bare: list[bool]) -> None:
        """Raise UsageError for the first constraint or parameter without a counterpart."""
        count, names, paths = len(self.names), leaf_names(tree), _paths(tree)
        head = (
            f"constraints name {count} {'leaf' if count == 1 else 'leaves'} ({_some(self.names)})"
        )
        for name, path in zip(self.names, self.paths, strict=True):
            if not any(path == p[: len(path)] for p in paths):
                raise UsageError(
                    f"{head}; the position has no {name!r}, its leaves are {_some(names)}."
                    f"{did_you_mean(name, names)}"
                )
        raise UsageError(
            f"{head}; the position also has {names[bare.index(True)]!r}: give it an entry, None "
            "for no constraint."
        )

    def forward(self, free: PyTree) -> PyTree:
        """Return constrained leaves."""
        pairs, treedef = self._leaves(free)
        return treedef.unflatten([t(x) for t, x in pairs])

    def inverse(self, position: PyTree) -> PyTree:
        """Return free leaves; raise UsageError if the position violates its constraint."""
        pairs, treedef = self._leaves(position)
        free = []
        for (bijection, leaf), name in zip(pairs, leaf_names(position), strict=True):
            leaf = jnp.asarray(leaf)
            if not isinstance(leaf, Tracer):
                _check_inside(name, leaf, bijection.codomain)
            free.append(bijection.inv(leaf))
        return treedef.unflatten(free)

    def log_det(self, free: PyTree) -> Float[Array, ""]:
        """Return the sum over leaves of log |d position / d free|."""
        pairs, _ = self._leaves(free)
        parts = [jnp.sum(t.log_abs_det_jacobian(x, t(x))) for t, x in pairs]
        return sum(parts, start=jnp.zeros(()))


def _paths(tree: PyTree, is_leaf: Callable | None = None) -> list[tuple[str, ...]]:
    """Return the keys that lead to each leaf; ("x",) for a bare array, as in tables."""
    simple = lambda key: jax.tree_util.keystr((key,), simple=True)  # noqa: E731
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_leaf)
    return [tuple(map(simple, path)) or ("x",) for path, _ in leaves]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def _check_inside(name: str, leaf: Array, constraint: Any) -> None:
    """Raise UsageError for a start outside its constraint, with the first such entry."""
    inside = np.asarray(constraint(leaf))
    if inside.all():
        return
    value = np.asarray(leaf)
    if inside.shape == value.shape and value.ndim:
        at = tuple(int(i) for i in np.argwhere(~inside)[0])
        name, value = f"{name}[{','.join(map(str, at))}]", value[at]
    raise UsageError(
        f"the start of {name!r} is {value}, outside its constraint {constraint}; "
        "choose a start inside it."
    )
