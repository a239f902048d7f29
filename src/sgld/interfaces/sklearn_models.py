"""Rows, prior and posterior of regressions and classifiers on arrays, without a formula.

A position is {"coef": [p] or [p, K], "intercept": () or [K], "sigma": ()}. A network also has
"hidden", one {"kernel": [n, m], "bias": [m]} per hidden layer, and coef has one row per unit of the
last layer. Positions are sampled for standardised columns and, in regressions, a standardised
outcome, as for formulas (`models.formula`),

    x_j -> (x_j - center_j) / scale_j,     y -> (y - shift) / stretch

and, without hidden layers, reported on the original scale of the columns. A datum is (x [p], y,
weight). Functions are module-level, numbers are leaves, and rows are padded with weight 0 to a
rounded number. Fits of one structure, such as the folds of a cross-validation, therefore share all
compiled code.

`sklearn_predictor` computes predictions for new rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

from ..core.devices import sent
from ..model.posterior import Labels, Posterior
from ..regression.formula import DEFAULT_PRIOR_SDS
from ..regression.priors import Positive, normal

PyTree = Any
Kind = Literal["gaussian", "bernoulli", "categorical"]
# least number of padded rows; number up to which rows are padded to a power of 2
MIN_PADDED_ROWS, MAX_POWER_OF_2_ROWS = 64, 4096


@dataclass(frozen=True)
class Rows:
    """Distinct rows, each with the sum of its weights.

    Attributes:
      x: [n, p].
      y: [n], numbers, or indices of classes.
      weight: [n], positive.
      given: the number of rows before equal rows were merged; 0: the same number.
    """

    x: Float[np.ndarray, "n p"]
    y: Float[np.ndarray, " n"]
    weight: Float[np.ndarray, " n"]
    given: int = 0

    @property
    def count(self) -> int:
        """Number of the user's rows with positive weight."""
        return self.given or len(self.y)

    def said(self, note: str) -> str:
        """Replace the padded number of rows in a note by the user's number of rows."""
        of = (
            f"{len(self.y):,} different rows"
            if self.count != len(self.y)
            else f"{self.count:,} rows"
        )
        padded = rounded(len(self.y))
        return re.sub(rf"\b(?:{padded:,}|{padded}) rows\b", of, note)


def distinct(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Rows:
    """Merge equal rows, leave out rows of weight 0, and sort the rest by their values.

    A row of weight 2 and two rows of weight 1 are then the same data to the last bit, and give the
    same draws. The order in which rows arrive makes no difference either.
    """
    counts = weight > 0
    table = np.column_stack([x[counts], y[counts]]).astype(np.float64) + 0.0  # -0.0 is 0.0
    cells = table.view(np.dtype((np.void, table.strides[0]))).ravel()
    _, first, number = np.unique(cells, return_index=True, return_inverse=True)
    sums = np.bincount(number, weights=weight[counts])
    return Rows(table[first, :-1], table[first, -1], sums, len(table))


def rounded(count: int) -> int:
    """Round `count` up to 64, 128, ... 4096, and then to 5120, 6144, 7168, 8192, ...

    At most a fifth is padding above 4096. For fewer rows a second compilation costs more than the
    padding, so the sizes are coarser: a table and its folds then have the same size more often.
    """
    if count <= MAX_POWER_OF_2_ROWS:
        return max(MIN_PADDED_ROWS, 2 ** (count - 1).bit_length())
    step = 2 ** (count.bit_length() - 3)
    return -(-count // step) * step


@dataclass(frozen=True)
class Standard:
    """Standardisation of columns and outcome.

    Attributes:
      center, scale: [p], of the columns; without an intercept 0 and the root mean square.
      shift, stretch: of the outcome; 0 and 1 for classes.
    """

    center: Float[np.ndarray, " p"]
    scale: Float[np.ndarray, " p"]
    shift: float
    stretch: float

    @classmethod
    def of(cls, rows: Rows, kind: Kind, intercept: bool) -> Standard:
        """Compute weighted means and sds; a constant column has a scale of 1."""
        center, scale = _mean_and_sd(rows.x, rows.weight, intercept)
        if kind != "gaussian":
            return cls(center, scale, 0.0, 1.0)
        shift, stretch = _mean_and_sd(rows.y[:, None], rows.weight, intercept)
        return cls(center, scale, float(shift[0]), float(stretch[0]))

    def columns(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n p"]:
        """Return the standardised columns."""
        return (x - self.center) / self.scale

    def outcome(self, y: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return the standardised outcomes."""
        return (y - self.shift) / self.stretch

    @property
    def numbers(self) -> tuple[Any, ...]:
        """Arguments of `original`."""
        parts = (self.center, self.scale, self.shift, self.stretch)
        return tuple(np.asarray(part, np.float64) for part in parts)


def _mean_and_sd(x: np.ndarray, weight: np.ndarray, centred: bool) -> tuple[np.ndarray, np.ndarray]:
    size = np.abs(x).max(axis=0)
    size[size == 0] = 1.0  # squares of the largest floats must not overflow
    x, share = x / size, weight / weight.sum()
    mean = share @ x if centred else np.zeros(x.shape[1])
    sd = np.sqrt(share @ (x - mean) ** 2)
    return mean * size, np.where(sd <= 1e-13, 1.0, sd * size)


@dataclass(frozen=True)
class Form:
    """Structure of a model, and its prior.

    Attributes:
      kind: the distribution of the outcome.
      names: the names of the columns.
      labels: the names of the K classes of "categorical".
      intercept: whether the model has an intercept.
      hidden: units of the hidden layers.
      density: log density of one coefficient on the scale of its column; None: scaled from the
        data.
      slopes: whether `density` applies only to slopes, and the intercept's prior is scaled from the
        data.
    """

    kind: Kind
    names: tuple[str, ...]
    labels: tuple[str, ...] = ()
    intercept: bool = True
    hidden: tuple[int, ...] = ()
    density: Partial | None = None
    slopes: bool = False

    @property
    def tail(self) -> tuple[int, ...]:
        """Axes of the model's output for one row."""
        return (len(self.labels),) if self.kind == "categorical" else ()

    @property
    def dispersion(self) -> tuple[str, ...]:
        """Names of positive parameters in addition to the coefficients."""
        return ("sigma",) if self.kind == "gaussian" else ()

    def parameters(self) -> tuple[str, ...]:
        """Return the names of a linear model's parameters, in the order of a flat position."""
        coef = [f"{n}[{k}]" for n in self.names for k in self.labels] or list(self.names)
        constant = [f"Intercept[{k}]" for k in self.labels] or ["Intercept"]
        return (*coef, *(constant if self.intercept else ()), *self.dispersion)


@dataclass(frozen=True)
class Model:
    """Model to sample.

    Attributes:
      form: its structure.
      posterior: the posterior of standardised positions.
      data: (x, y, weight) of the rows, standardised and padded, float32.
      standard: the standardisation.
      center: [K] or (), the center of the intercept's prior.
    """

    form: Form
    posterior: Posterior
    data: tuple[Any, Any, Any]
    standard: Standard
    center: np.ndarray


def model_of(rows: Rows, form: Form, seed: int) -> Model:
    """Build the model of some rows; `seed` draws the first weights of a network."""
    standard = Standard.of(rows, form.kind, form.intercept)
    dispersion = {name: jnp.float32(1.0) for name in form.dispersion}
    center = _typical(rows, form)
    init = _start(len(form.names), form, center, np.random.default_rng(seed))
    output = None if form.hidden else Partial(original, *standard.numbers)
    posterior = Posterior(
        _log_prior(form, init, standard, dispersion),
        (LIKELIHOODS if form.hidden else LINEAR_LIKELIHOODS)[form.kind],
        transform=Positive(form.dispersion) if form.dispersion else None,
        init={**init, **dispersion},
        output=output,
        names=None if form.hidden else Labels(form.parameters()),
        predict=PREDICT_OF_FAMILY[form.kind] if form.hidden else None,
    )
    count = rounded(len(rows.y))
    y = rows.y if form.kind != "gaussian" else standard.outcome(rows.y)
    parts = (standard.columns(rows.x), y, rows.weight)
    data = tuple(_padded(part, count) for part in parts)
    return Model(form, posterior, (data[0], data[1], data[2]), standard, center)


def _padded(values: np.ndarray, count: int) -> Float[np.ndarray, "count ..."]:
    out = np.zeros((count, *values.shape[1:]), np.float32)
    out[: len(values)] = values
    return out


def _typical(rows: Rows, form: Form) -> np.ndarray:
    """Return the intercept at the classes' shares, plus half a row each; 0 for regressions."""
    if form.kind == "gaussian" or not form.intercept:
        return np.zeros(form.tail)
    count = max(2, len(form.labels))
    logs = np.log(np.bincount(rows.y.astype(int), rows.weight, count) + 0.5)
    return np.asarray(logs[1] - logs[0]) if form.kind == "bernoulli" else logs - logs.mean()


def _start(p: int, form: Form, center: np.ndarray, rng: np.random.Generator) -> PyTree:
    """Return coefficients of 0, or a draw of weights for a network, where 0 is a saddle point."""
    widths = (p, *form.hidden)
    shape = (widths[-1], *form.tail)
    coef = rng.standard_normal(shape) / np.sqrt(widths[-1]) if form.hidden else np.zeros(shape)
    init: dict[str, Any] = {"coef": sent(coef, np.float32)}
    if form.intercept:
        init["intercept"] = sent(center, np.float32)
    if form.hidden:
        init["hidden"] = tuple(
            {
                "kernel": sent(rng.standard_normal((n, m)) / np.sqrt(n), np.float32),
                "bias": sent(np.zeros(m), np.float32),
            }
            for n, m in zip(widths, form.hidden, strict=False)
        )
    return init


# -- densities: module-level, so that all fits share compiled code ----------------------------


def linear_predictor(position: PyTree, x: Float[Array, " p"]) -> Array:
    """Return coef' h + intercept, with h = x, or the last hidden layer's tanh units."""
    for layer in position.get("hidden", ()):
        x = jnp.tanh(jnp.dot(x, layer["kernel"]) + layer["bias"])
    eta = jnp.dot(x, position["coef"])
    return eta + position["intercept"] if "intercept" in position else eta


def gaussian(position: PyTree, datum: PyTree) -> Float[Array, ""]:
    """Return weight x log N(y; eta, sigma^2)."""
    x, y, weight = datum
    return weight * normal(linear_predictor(position, x), position["sigma"], y)


def bernoulli(position: PyTree, datum: PyTree) -> Float[Array, ""]:
    """Return weight x log sigmoid((2 y - 1) eta)."""
    x, y, weight = datum
    return weight * jax.nn.log_sigmoid((2 * y - 1) * linear_predictor(position, x))


def categorical(position: PyTree, datum: PyTree) -> Float[Array, ""]:
    """Return weight x log softmax(eta)_y."""
    x, y, weight = datum
    return weight * jax.nn.log_softmax(linear_predictor(position, x))[y.astype(jnp.int32)]


def linear_bernoulli(position: PyTree, datum: PyTree) -> Float[Array, ""]:
    """Evaluate `bernoulli` without hidden layers."""
    return bernoulli(position, datum)


def linear_categorical(position: PyTree, datum: PyTree) -> Float[Array, ""]:
    """Evaluate `categorical` without hidden layers."""
    return categorical(position, datum)


def predicted_mean(position: PyTree, datum: PyTree) -> Array:
    """Return eta, the mean of a standardised outcome."""
    return linear_predictor(position, datum[0])


def predicted_pair(position: PyTree, datum: PyTree) -> Float[Array, " 2"]:
    """Return log sigmoid(-eta), log sigmoid(eta)."""
    eta = linear_predictor(position, datum[0])
    return jax.nn.log_sigmoid(jnp.stack([-eta, eta]))


def predicted_classes(position: PyTree, datum: PyTree) -> Float[Array, " K"]:
    """Return log softmax(eta)."""
    return jax.nn.log_softmax(linear_predictor(position, datum[0]))


PREDICT_OF_FAMILY = {
    "gaussian": predicted_mean, "bernoulli": predicted_pair, "categorical": predicted_classes,
}  # fmt: skip
LIKELIHOODS = {"gaussian": gaussian, "bernoulli": bernoulli, "categorical": categorical}
LINEAR_LIKELIHOODS = {
    **LIKELIHOODS,
    "bernoulli": linear_bernoulli,
    "categorical": linear_categorical,
}


def original(
    center: Array, scale: Array, shift: Array, stretch: Array, position: PyTree
) -> dict[str, Array]:
    """Transform a linear model's position to the original scale of the columns."""
    # in float64 where x64 is on, as it is when draws are reported: a large intercept cancels
    center, scale, shift, stretch = map(jnp.asarray, (center, scale, shift, stretch))
    position = {name: value.astype(center.dtype) for name, value in position.items()}
    coef = position["coef"]
    out = {"coef": stretch * coef / scale.reshape(-1, *(1,) * (coef.ndim - 1))}
    if "intercept" in position:
        moved = jnp.matmul(center, out["coef"], precision="highest")
        out["intercept"] = shift + stretch * position["intercept"] - moved
    if "sigma" in position:
        out["sigma"] = stretch * position["sigma"]
    return out


def _log_prior(form: Form, start: PyTree, standard: Standard, dispersion: PyTree) -> Partial:
    """Return the log prior density up to a constant; the prior of sigma is half normal."""
    if form.hidden and form.density is not None:
        return Partial(on_weights, form.density, dispersion)
    center = jax.tree.map(jnp.zeros_like, start)
    if form.intercept:
        center["intercept"] = start["intercept"]
    sd = jax.tree.map(lambda leaf: jnp.float32(DEFAULT_PRIOR_SDS), start)
    if form.hidden:
        sd["hidden"] = tuple(
            {
                "kernel": jnp.float32(DEFAULT_PRIOR_SDS / len(layer["kernel"]) ** 0.5),
                "bias": jnp.float32(1),
            }
            for layer in start["hidden"]
        )
        sd["coef"] = jnp.float32(DEFAULT_PRIOR_SDS / len(start["coef"]) ** 0.5)
    if form.density is None:
        return Partial(independent, center, sd, dispersion)
    # separate arrays: those of the reported draws are temporarily float64
    output = Partial(original, *(sent(number, np.float32) for number in standard.numbers))
    if form.slopes and form.intercept:
        about = (center["intercept"], sd["intercept"])
        return Partial(on_slopes, form.density, output, *about, dispersion)
    return Partial(on_coefficients, form.density, output, dispersion)


def independent(center: PyTree, sd: PyTree, dispersion: PyTree, position: PyTree) -> Array:
    """Evaluate independent normals of the standardised parameters."""
    rest = {name: value for name, value in position.items() if name not in dispersion}
    parts = jax.tree.map(lambda m, s, x: jnp.sum(normal(m, s, x)), center, sd, rest)
    return sum(jax.tree.leaves(parts), start=_half_normal(dispersion, position))


def on_coefficients(density: Partial, of: Partial, dispersion: PyTree, position: PyTree) -> Array:
    """Evaluate one density for every coefficient and intercept, on the scale of the columns."""
    found = of(position)
    value = jnp.sum(density(found["coef"])) + _half_normal(dispersion, position)
    return value + jnp.sum(density(found["intercept"])) if "intercept" in found else value


def on_slopes(
    density: Partial, of: Partial, center: Array, sd: Array, dispersion: PyTree, position: PyTree
) -> Array:
    """Evaluate one density for every slope on its column's scale, and a normal for the intercept.

    The intercept's prior is that of the intercept at the columns' means.
    """
    value = jnp.sum(density(of(position)["coef"])) + _half_normal(dispersion, position)
    return value + jnp.sum(normal(center, sd, position["intercept"]))


def on_weights(density: Partial, dispersion: PyTree, position: PyTree) -> Array:
    """Evaluate one density for every weight and bias of a network, for standardised columns."""
    rest = {name: value for name, value in position.items() if name not in dispersion}
    parts = [jnp.sum(density(leaf)) for leaf in jax.tree.leaves(rest)]
    return sum(parts, start=_half_normal(dispersion, position))


def _half_normal(scale: PyTree, position: PyTree) -> Array:
    parts = [normal(0.0, scale[name], position[name]) for name in scale]
    return sum(parts, start=jnp.zeros(()))


# log-concave without hidden layers and with a log-concave density; `original` is affine
_CONCAVE = (linear_bernoulli, linear_categorical, independent, on_coefficients, on_slopes, original)
for _function in _CONCAVE:
    _function.log_concave = True
