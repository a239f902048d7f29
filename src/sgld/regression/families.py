"""Families of outcomes: the distribution of one outcome y given its linear predictor eta.

    eta = x . coefficients + offset,     y | eta ~ family(mean(eta), dispersion)

A family is one entry at the end of this file. Its log likelihood is one function of (position,
datum) for the whole process, so that every model of the family shares one compiled step.
`position` is {"coefficients": [p]} plus one scalar per name in `dispersion`. `datum` is (x [p],
y), or (x, y, {"offset", "weight", "trials"}) with those of the three that the model has. A weight w
counts a row w times. The functions outside compiled code (`mean`, `sd`, `sample`, `check`) use NumPy in
float64.

The log densities are functions (eta, y, position, extra) -> scalar, with their normalising constants.
`position` holds the family's dispersion by name, and `extra` the trials, if any. They use NumPyro's
densities where these exist and float32 can represent them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float
from scipy.special import expit

from ..errors import DataError, UsageError, did_you_mean, need

# -- log density ---------------------------------------------------------------------------


PyTree = Any
LOG_2PI = float(np.log(2 * np.pi))
SMALLEST_POSITIVE = float(np.finfo(np.float32).tiny)


def gaussian(eta: Array, y: Array, position: PyTree, extra: PyTree) -> Float[Array, ""]:
    """Return log N(y; eta, sigma^2) = -((y - eta) / sigma)^2 / 2 - log sigma - log(2 pi) / 2."""
    sigma = position["sigma"]
    residual = (y - eta) / sigma
    return -0.5 * residual**2 - jnp.log(sigma) - 0.5 * LOG_2PI


def student_t(eta: Array, y: Array, position: PyTree, extra: PyTree) -> Float[Array, ""]:
    """Return log t_df((y - eta) / sigma) - log sigma."""
    from numpyro.distributions import StudentT

    return StudentT(position["df"], eta, position["sigma"]).log_prob(y)


def bernoulli(eta: Array, y: Array, position: PyTree, extra: PyTree) -> Float[Array, ""]:
    """Return log P(y) = log sigmoid((2 y - 1) eta), which neither overflows nor cancels."""
    return jax.nn.log_sigmoid((2 * y - 1) * eta)


def binomial(eta: Array, y: Array, position: PyTree, extra: PyTree) -> Float[Array, ""]:
    """Return log P(y) of y successes in the trials, each with log odds eta."""
    from numpyro.distributions import BinomialLogits

    return BinomialLogits(eta, extra["trials"]).log_prob(y)


def categorical(eta: Array, y: Array, position: PyTree, extra: PyTree) -> Float[Array, ""]:
    """Return log P(y) = logits_y - log sum_k exp(logits_k), logits = (0, eta)."""
    from numpyro.distributions import CategoricalLogits

    logits = jnp.concatenate([jnp.zeros_like(eta[:1]), eta])
    return CategoricalLogits(logits).log_prob(y.astype(jnp.int32))


def poisson(eta: Array, y: Array, position: PyTree, extra: PyTree) -> Float[Array, ""]:
    """Return log P(y) = y eta - exp(eta) - log y!"""
    return y * eta - jnp.exp(eta) - gammaln(y + 1)


def negative_binomial(eta: Array, y: Array, position: PyTree, extra: PyTree) -> Float[Array, ""]:
    """Return log P(y) with mean mu = exp(eta) and variance mu + overdispersion mu^2.

    It uses the concentration k = 1 / overdispersion. For nearly Poisson data k is large, and NumPyro's
    differences of log gamma functions are then mere rounding errors of float32.
    """
    log_k = -jnp.log(position["overdispersion"])
    k = jnp.exp(log_k)  # 1 / x loses its derivative where x^2 is 0 in float32
    excess = eta - log_k
    rising = _log_rising(k, y) - gammaln(y + 1)
    return rising + y * excess - (k + y) * jax.nn.softplus(excess)


def _log_rising(k: Array, y: Array) -> Float[Array, ""]:
    """Return log Gamma(k + y) - log Gamma(k) for k, y >= 0, without cancellation.

    The function takes four steps of Gamma(x + 1) = x Gamma(x), then Stirling's series, whose first four terms
    are exact to 2e-8 from 4 on. It takes a quarter of the time of `betaln` and half of its compilation. Its
    second derivative is correct at k = y + 1, where that of betaln, which orders its arguments, is not.
    """
    a = k + 4
    b = a + y

    def series(z: Array) -> Array:
        u = 1 / z**2
        return (1 / 12 - u * (1 / 360 - u * (1 / 1260 - u / 1680))) / z

    steps = sum(jnp.log1p(y / (k + j)) for j in range(4))
    return (a - 0.5) * jnp.log1p(y / a) + y * jnp.log(b) - y + series(b) - series(a) - steps


def gamma(eta: Array, y: Array, position: PyTree, extra: PyTree) -> Float[Array, ""]:
    """Return log p(y), mean mu = exp(eta), variance mu^2 / shape: y / mu ~ gamma(shape, shape)."""
    from numpyro.distributions import Gamma

    shape = position["shape"]
    return Gamma(shape, shape).log_prob(y * jnp.exp(-eta)) - eta


def lognormal(eta: Array, y: Array, position: PyTree, extra: PyTree) -> Float[Array, ""]:
    """Return log p(y) = log N(log y; eta, sigma^2) - log y: exp(eta) is the median of y."""
    log_y = jnp.log(y)
    return gaussian(eta, log_y, position, extra) - log_y


# -- family --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """One family of outcomes; eta and the functions of it may have any shape.

    Attributes:
      name: the name that the user types.
      link: the scale of eta, in words.
      log_likelihood: (position, datum) -> scalar, normalising constant included.
      check: (y [N], column name) -> None; DataError with the first data row out of range.
      centre: y [N] (its log where `log_outcome`) -> a typical eta, finite for any y; the centre of the
        intercept's prior. It uses only `sum()`, `mean()` and `size` of y, which are available for
        rows on disk; families with `levels` are an exception.
      mean: (eta, given) -> E[y | eta]; `given` holds the other parameters by name, dispersions
        and trials, broadcasting against eta.
      sd: (eta, given) -> sd[y | eta].
      sample: (rng, eta, given) -> draws of y given eta.
      dispersion: names of the positive parameters besides the coefficients.
      location_scale: y and eta may be shifted and scaled together, with sigma scaled too; such an
        outcome is standardised before sampling.
      log_outcome: eta and sigma refer to log y minus the offset; sigma's prior uses its sd.
      trials: y counts successes among trials, which the table must name.
      levels: y is the number of a level, and eta has one entry per level but the first.
    """

    name: str
    link: str
    log_likelihood: Callable[[PyTree, PyTree], Array]
    check: Callable[[np.ndarray, str], None]
    centre: Callable[[np.ndarray], Any]
    mean: Callable[[np.ndarray, PyTree], np.ndarray]
    sd: Callable[[np.ndarray, PyTree], np.ndarray]
    sample: Callable[[np.random.Generator, np.ndarray, PyTree], np.ndarray]
    dispersion: tuple[str, ...] = ()
    location_scale: bool = False
    log_outcome: bool = False
    trials: bool = False
    levels: bool = False

    @property
    def has_log_mean(self) -> bool:
        """Whether eta is the log of the mean."""
        return self.link == "log of the mean"

    def bare(self, y: np.ndarray, extra: dict[str, np.ndarray]) -> np.ndarray:
        """Return outcomes [N] in the unit of eta: minus the offset, per trial, or unchanged."""
        if self.log_outcome or self.location_scale:
            return (np.log(y) if self.log_outcome else y) - extra.get("offset", 0.0)
        return y / extra.get("trials", 1.0)


def find_family(name: str) -> Family:
    """Return the family called `name`, or by a common alias of it ("logistic", "negbin").

    Raises UsageError, with the nearest name, for an unknown one, and MissingExtra where it needs
    NumPyro and NumPyro is not installed.
    """
    plain = str(name).lower().replace("_", "-").replace(" ", "-")
    plain = ALIASES.get(plain.replace("-", ""), ALIASES.get(plain, plain))
    if plain not in FAMILIES:
        nearest = did_you_mean(plain, [*FAMILIES, *ALIASES])
        hint = f" {ALTERNATIVES[plain]}" if plain in ALTERNATIVES else nearest
        if "link=" in plain:
            hint = " A family has one link: gaussian the identity, bernoulli the log odds, counts the log."
        raise UsageError(f"family must be one of {', '.join(FAMILIES)}. Got {name!r}.{hint}")
    if plain not in ("gaussian", "bernoulli", "poisson", "lognormal"):
        need("numpyro", "numpyro")
    return FAMILIES[plain]


def check_trials(kind: Family, trials: Any) -> None:
    """Raise UsageError where trials are missing, or the family has none."""
    if kind.trials != (trials is not None):
        needs = "needs trials, the column of their numbers" if kind.trials else "has no trials"
        other = " An outcome of single trials is the bernoulli family's." if kind.trials else ""
        raise UsageError(f"the {kind.name} family {needs}. Got trials={trials!r}.{other}")


def _likelihood(
    density: Callable, *, log_concave: bool = False
) -> Callable[[PyTree, PyTree], Array]:
    """Build (position, datum) -> weight log p(y | eta) from density(eta, y, position, extra).

    `log_concave`: the density is log-concave in eta and has no dispersion, so it is log-concave in the coefficients.
    """

    def log_likelihood(position: PyTree, datum: PyTree) -> Float[Array, ""]:
        x, y, *more = datum
        extra = more[0] if more else {}
        eta = jnp.dot(position["coefficients"], x)
        if "offset" in extra:
            eta = eta + extra["offset"]
        value = density(eta, y, position, extra)
        return extra["weight"] * value if "weight" in extra else value

    log_likelihood.__name__ = density.__name__
    log_likelihood.log_concave = log_concave
    return log_likelihood


def _refuse(bad: np.ndarray, y: np.ndarray, name: str, needed: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"outcome {name!r} is {y[row]:.10g} in data row {row + 1}; {needed}; "
            "fix the rows or choose another family."
        )


def _check_varies(y: np.ndarray, name: str) -> None:
    if np.ptp(y) == 0:
        raise DataError(
            f"outcome {name!r} is constant ({y[0]:.10g} in every row), so its sd cannot be estimated; "
            "choose another outcome."
        )


def _check_bernoulli(y: np.ndarray, name: str) -> None:
    _refuse((y != 0) & (y != 1), y, name, "the bernoulli family needs 0 or 1")


def _check_counts(family: str) -> Callable[[np.ndarray, str], None]:
    def check(y: np.ndarray, name: str) -> None:
        bad = (y < 0) | (y != np.floor(y))
        _refuse(bad, y, name, f"the {family} family needs counts 0, 1, 2, ...")
        _refuse(y > 2**24, y, name, "float32 holds counts up to 2^24 exactly")

    return check


def _check_gamma(y: np.ndarray, name: str) -> None:
    _refuse(y <= 0, y, name, "the gamma family needs positive numbers")
    _check_varies(y, name)


def _check_lognormal(y: np.ndarray, name: str) -> None:
    _refuse(y <= 0, y, name, "the lognormal family needs positive numbers")
    _refuse(
        y < SMALLEST_POSITIVE,
        y,
        name,
        f"float32 holds positive numbers from {SMALLEST_POSITIVE:.2g}",
    )
    _check_varies(y, name)


def _check_levels(y: np.ndarray, name: str) -> None:
    if y.max() == 0:
        raise DataError(
            f"outcome {name!r} has one level; the categorical family needs two or more."
        )


def _log_odds(y: Any) -> float:
    probability = (y.sum() + 0.5) / (y.size + 1)
    return float(np.log(probability / (1 - probability)))


def _log_mean(y: Any) -> float:
    return float(np.log((y.sum() + 0.5) / y.size))


def _log_shares(y: np.ndarray) -> list[float]:
    counts = np.bincount(y.astype(np.int64)) + 0.5
    return [float(value) for value in np.log(counts[1:] / counts[0])]


def _bernoulli_sd(eta: np.ndarray, given: PyTree) -> np.ndarray:
    return np.sqrt(expit(eta) * expit(-eta))


def _student_t_sd(eta: np.ndarray, given: PyTree) -> np.ndarray:
    df = np.asarray(given["df"], np.float64)
    spread = np.sqrt(np.where(df > 2, df / np.where(df > 2, df - 2, 1.0), np.inf))
    return np.broadcast_to(given["sigma"] * spread, np.shape(eta))


def _sample_poisson(rng: np.random.Generator, eta: np.ndarray, given: PyTree) -> np.ndarray:
    # NumPy rejects means above 9.2e18
    return rng.poisson(np.exp(np.minimum(eta, 43.0))).astype(np.float64)


def _sample_negative_binomial(
    rng: np.random.Generator, eta: np.ndarray, given: PyTree
) -> np.ndarray:
    concentration = np.broadcast_to(1 / given["overdispersion"], np.shape(eta))
    rate = rng.gamma(concentration) / concentration * np.exp(np.minimum(eta, 40.0))
    return rng.poisson(np.minimum(rate, 1e18)).astype(np.float64)


def _probabilities(eta: np.ndarray, given: PyTree) -> np.ndarray:
    """Return probabilities [..., K] for eta [..., K - 1]."""
    logits = np.concatenate([np.zeros((*eta.shape[:-1], 1)), eta], axis=-1)
    logits = logits - logits.max(axis=-1, keepdims=True)
    weights = np.exp(logits)
    return weights / weights.sum(axis=-1, keepdims=True)


def _sample_levels(rng: np.random.Generator, eta: np.ndarray, given: PyTree) -> np.ndarray:
    above = np.cumsum(_probabilities(eta, given), axis=-1)
    return np.sum(rng.random((*above.shape[:-1], 1)) > above[..., :-1], axis=-1).astype(np.float64)


def _size(eta: np.ndarray, given: PyTree) -> np.ndarray:
    return np.broadcast_to(given["trials"], np.shape(eta))


GAUSSIAN = Family(
    "gaussian",
    "the outcome itself",
    _likelihood(gaussian),
    check=_check_varies,
    centre=lambda y: float(y.mean()),
    mean=lambda eta, given: eta,
    sd=lambda eta, given: np.broadcast_to(given["sigma"], np.shape(eta)),
    sample=lambda rng, eta, given: eta + given["sigma"] * rng.standard_normal(np.shape(eta)),
    dispersion=("sigma",),
    location_scale=True,
)

STUDENT_T = Family(
    "student-t",
    "the outcome itself",
    _likelihood(student_t),
    check=_check_varies,
    centre=lambda y: float(y.mean()),
    mean=lambda eta, given: eta,
    sd=_student_t_sd,
    sample=lambda rng, eta, given: (
        eta + given["sigma"] * rng.standard_t(given["df"], np.shape(eta))
    ),
    dispersion=("df", "sigma"),
    location_scale=True,
)

BERNOULLI = Family(
    "bernoulli",
    "log odds",
    _likelihood(bernoulli, log_concave=True),
    check=_check_bernoulli,
    centre=_log_odds,
    mean=lambda eta, given: expit(eta),
    sd=_bernoulli_sd,
    sample=lambda rng, eta, given: (rng.random(np.shape(eta)) < expit(eta)).astype(np.float64),
)

BINOMIAL = Family(
    "binomial",
    "log odds of a trial",
    _likelihood(binomial, log_concave=True),
    check=_check_counts("binomial"),
    centre=lambda y: 0.0,
    mean=lambda eta, given: _size(eta, given) * expit(eta),
    sd=lambda eta, given: np.sqrt(_size(eta, given)) * _bernoulli_sd(eta, given),
    sample=lambda rng, eta, given: rng.binomial(
        _size(eta, given).astype(np.int64), expit(eta)
    ).astype(np.float64),
    trials=True,
)

CATEGORICAL = Family(
    "categorical",
    "log odds against the first level",
    _likelihood(categorical, log_concave=True),
    check=_check_levels,
    centre=_log_shares,
    mean=_probabilities,
    sd=lambda eta, given: np.sqrt(_probabilities(eta, given) * (1 - _probabilities(eta, given))),
    sample=_sample_levels,
    levels=True,
)

POISSON = Family(
    "poisson",
    "log of the mean",
    _likelihood(poisson, log_concave=True),
    check=_check_counts("poisson"),
    centre=_log_mean,
    mean=lambda eta, given: np.exp(eta),
    sd=lambda eta, given: np.exp(0.5 * eta),
    sample=_sample_poisson,
)

NEGATIVE_BINOMIAL = Family(
    "negative-binomial",
    "log of the mean",
    _likelihood(negative_binomial),
    check=_check_counts("negative-binomial"),
    centre=_log_mean,
    mean=lambda eta, given: np.exp(eta),
    sd=lambda eta, given: np.sqrt(np.exp(eta) + np.exp(2 * eta) * given["overdispersion"]),
    sample=_sample_negative_binomial,
    dispersion=("overdispersion",),
)

GAMMA = Family(
    "gamma",
    "log of the mean",
    _likelihood(gamma),
    check=_check_gamma,
    centre=lambda y: float(np.log(y.mean())),
    mean=lambda eta, given: np.exp(eta),
    sd=lambda eta, given: np.exp(eta) / np.sqrt(given["shape"]),
    sample=lambda rng, eta, given: (
        np.exp(eta) * rng.gamma(np.broadcast_to(given["shape"], np.shape(eta))) / given["shape"]
    ),
    dispersion=("shape",),
)

LOGNORMAL = Family(
    "lognormal",
    "log of the median",
    _likelihood(lognormal),
    check=_check_lognormal,
    centre=lambda y: float(y.mean()),
    mean=lambda eta, given: np.exp(eta + 0.5 * np.square(given["sigma"])),
    sd=lambda eta, given: (
        np.exp(eta + 0.5 * np.square(given["sigma"])) * np.sqrt(np.expm1(np.square(given["sigma"])))
    ),
    sample=lambda rng, eta, given: np.exp(
        eta + given["sigma"] * rng.standard_normal(np.shape(eta))
    ),
    dispersion=("sigma",),
    log_outcome=True,
)

FAMILIES = {
    family.name: family
    for family in (
        GAUSSIAN, STUDENT_T, BERNOULLI, BINOMIAL, CATEGORICAL, POISSON, NEGATIVE_BINOMIAL, GAMMA,
        LOGNORMAL,
    )
}  # fmt: skip
# common aliases
ALIASES = {
    "normal": "gaussian", "linear": "gaussian", "logistic": "bernoulli", "logit": "bernoulli",
    "binary": "bernoulli", "multinomial": "categorical", "softmax": "categorical",
    "negbin": "negative-binomial", "negbinomial": "negative-binomial", "nb": "negative-binomial",
    "ols": "gaussian", "lm": "gaussian", "multiclass": "categorical",
    "student": "student-t", "t": "student-t", "robust": "student-t", "count": "poisson",
    "log-normal": "lognormal", "nbinom": "negative-binomial", "nbinom2": "negative-binomial",
}  # fmt: skip
# names of unsupported families, and the nearest alternative
NOT_A_FAMILY = "It is not supported; docs/recipes.md shows such outcomes in NumPyro models."
ALTERNATIVES = {
    "exponential": "Use gamma, which also estimates its shape.",
    "quasipoisson": "Use negative-binomial for counts that vary more than Poisson counts.",
    "probit": "Use bernoulli, whose link is the log odds.",
    **dict.fromkeys(
        (
            "beta", "beta-binomial", "ordinal", "cumulative", "zip", "zinb", "zero-inflated",
            "zero-inflated-poisson", "zero-inflated-negative-binomial", "hurdle", "hurdle-poisson",
            "hurdle-negative-binomial", "hurdle-gamma", "weibull", "cox", "survival", "tweedie",
            "inverse-gaussian",
        ),
        NOT_A_FAMILY,
    ),
}  # fmt: skip
