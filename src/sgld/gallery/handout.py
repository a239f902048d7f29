"""The handout's regression with its exact answer, shared by X1, X2 and X3.

    y_i | beta, sigma2 ~ N(x_i' beta, sigma2)
    beta | sigma2      ~ N(mu, sigma2 V)
    sigma2             ~ IG(phi, psi)              density proportional to s^(-phi-1) exp(-psi/s)

(handout, section 4, whose figures have mu = 0, V = 100 I, phi = psi = 1.) The sampled parameters
are w = (beta, gamma) with gamma = log sigma2, whose density is

    p(w) ~ exp{-(phi + p/2) gamma - exp(-gamma) [psi + (beta - mu)' V^-1 (beta - mu) / 2]},

where p is the length of beta and the Jacobian exp(gamma) is counted once. The family is closed
under data and, in these coordinates, under temperature: `NIG.condition` and `NIG.tempered`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.scipy.special import gammaln
from jaxtyping import Array, ArrayLike, Float
from scipy import special, stats
from scipy.linalg import cho_factor, cho_solve

import sgld
from sgld.gallery.make import columns

from ..core.validation import positive
from ..errors import DataError, UsageError
from ..model.posterior import Posterior

# -- nig -----------------------------------------------------------------------------------


def nig(
    num_features: int,
    *,
    mu: npt.ArrayLike = 0.0,
    V: npt.ArrayLike = 100.0,
    phi: float = 1.0,
    psi: float = 1.0,
) -> NIG:
    """Build the prior beta | sigma2 ~ N(mu, sigma2 V), sigma2 ~ IG(phi, psi); by default the handout's.

    Args:
      num_features: p, the number of columns of X (a column of ones for the intercept included).
      mu: the prior mean of beta, [p] or a scalar for all.
      V: the prior covariance of beta in units of sigma2: a scalar (times I), the diagonal [p], or
        a matrix [p, p].
      phi: the shape of the inverse gamma, positive.
      psi: its scale, positive, in units of y squared.

    Raises UsageError where a shape does not fit p, V is not symmetric positive definite, or phi or
    psi is not positive.

    Example: the handout's model of four points; `prior.model()` is what `sgld.sample` takes.
      >>> import numpy as np
      >>> from sgld.gallery.handout import nig
      >>> X = np.array([[1.0, -1.0], [1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
      >>> prior = nig(2)
      >>> posterior = prior.condition(X, y=np.array([-1.0, 0.1, 1.0, 1.9]))
      >>> posterior.mu.round(3), posterior.phi
      (array([0.021, 0.958]), 3.0)
      >>> posterior.beta.std().round(3), round(float(posterior.sigma2.mean()), 3)
      (array([0.389, 0.318]), 0.505)
      >>> prior.model()
      Posterior(log prior + sum of log likelihoods)
    """
    if num_features < 1:
        raise UsageError(f"num_features must be at least 1. Got {num_features}.")
    mean, cov = np.asarray(mu, float), np.asarray(V, float)
    if mean.shape not in ((), (num_features,)):
        raise UsageError(f"mu must be a number or [{num_features}]. Got shape {mean.shape}.")
    if cov.ndim < 2 and cov.shape in ((), (num_features,)):
        cov = np.diag(np.broadcast_to(cov, (num_features,)))
    if cov.shape != (num_features, num_features):
        raise UsageError(
            f"V must be a number, [{num_features}] or [{num_features}, {num_features}]. "
            f"Got shape {np.shape(V)}."
        )
    smallest, asymmetry = np.linalg.eigvalsh(cov)[0], abs(cov - cov.T).max()
    if not (smallest > 0 and np.allclose(cov, cov.T)):
        raise UsageError(
            "V must be symmetric positive definite. Got smallest eigenvalue "
            f"{smallest:g} and asymmetry {asymmetry:g}."
        )
    for name, value in (("phi", phi), ("psi", psi)):
        positive(name, value)
    return NIG(np.broadcast_to(mean, (num_features,)).copy(), cov, float(phi), float(psi))


@dataclass(frozen=True, eq=False)
class NIG:
    """The law beta | sigma2 ~ N(mu, sigma2 V), sigma2 ~ IG(phi, psi), in float64; made by `nig`.

    Attributes:
      mu: [p], the mean of beta.
      V: [p, p], the covariance of beta in units of sigma2.
      phi: the shape of sigma2's inverse gamma.
      psi: its scale.
    """

    mu: Float[np.ndarray, " p"]
    V: Float[np.ndarray, "p p"]
    phi: float
    psi: float

    def condition(self, X: Float[ArrayLike, "n p"], y: Float[ArrayLike, " n"]) -> NIG:
        """Return the posterior given rows X [n, p] and outcomes y [n].

            V_n = (V^-1 + X'X)^-1               mu_n = V_n (V^-1 mu + X'y)
            phi_n = phi + n/2                   psi_n = psi + |y - X mu_n|^2 / 2
                                                            + (mu_n - mu)' V^-1 (mu_n - mu) / 2

        Raises DataError where the shapes disagree, with p or each other, or a cell is not finite.
        """
        X, y = np.asarray(X, float), np.asarray(y, float)
        if X.ndim != 2 or y.shape != X.shape[:1] or X.shape[1] != self.mu.size:
            raise DataError(
                f"X must be [n, {self.mu.size}] and y [n]. Got shapes {X.shape} and {y.shape}."
            )
        if not (np.isfinite(X).all() and np.isfinite(y).all()):
            row = int(np.argmin(np.isfinite(X).all(axis=1) & np.isfinite(y)))
            raise DataError(f"X and y must be finite. Row {row} is not; drop or fill it.")
        precision = _inverse(self.V)
        V_n = _inverse(precision + X.T @ X)
        # the same as V_n (V^-1 mu + X'y), and as psi + (y'y + ...)/2, without their cancellation
        move = V_n @ (X.T @ (y - X @ self.mu))
        mu_n = self.mu + move
        residual = y - X @ mu_n
        psi_n = self.psi + 0.5 * (residual @ residual + move @ precision @ move)
        return NIG(mu_n, V_n, self.phi + 0.5 * len(y), float(psi_n))

    def tempered(self, temperature: float) -> NIG:
        """Return the distribution proportional to p(w)^(1/T) in the sampled coordinates w = (beta, log sigma2).

            mu' = mu,  V' = T V,  phi' = (phi + p/2) / T - p/2,  psi' = psi / T

        The exponent of p(w) (top of this file) divided by T is one of the same form with psi' and
        V' as above and phi' + p/2 = (phi + p/2) / T. It is what a sampler at temperature T aims at
        (handout eq. 3.6): prior, Jacobian and likelihood are all tempered.

        Raises UsageError where T is not positive, or at least 1 + 2 phi / p: the law is improper.
        """
        p = self.mu.size
        limit = 1 + 2 * self.phi / p
        if not 0 < temperature < limit:
            raise UsageError(
                f"temperature must be positive and below 1 + 2 phi / p = {limit:g}, where the "
                f"tempered law becomes improper. Got {temperature}."
            )
        phi = (self.phi + 0.5 * p) / temperature - 0.5 * p
        return NIG(self.mu, temperature * self.V, phi, self.psi / temperature)

    @property
    def beta(self) -> Any:
        """The marginals of beta, Student-t_{2 phi}(mu_j, (psi / phi) V_jj): scipy's, [p] at once.

        `.mean()`, `.std()`, `.logpdf(x)`, `.cdf(x)`, `.ppf(q)`, `.interval(prob)`.
        """
        scale = np.sqrt(self.psi / self.phi * np.diag(self.V))
        return stats.t(df=2 * self.phi, loc=self.mu, scale=scale)

    @property
    def sigma2(self) -> Any:
        """The law of sigma2, IG(phi, psi): scipy's, with `.mean()`, `.std()`, `.logpdf(x)` ..."""
        return stats.invgamma(self.phi, scale=self.psi)

    def predictive(self, X: Float[ArrayLike, "n p"]) -> Any:
        """Return the distribution of new outcomes at rows X: Student-t_{2 phi}(X mu, (psi / phi)(1 + x' V x))."""
        X = np.asarray(X, float)
        scale = np.sqrt(self.psi / self.phi * (1 + np.einsum("ij,jk,ik->i", X, self.V, X)))
        return stats.t(df=2 * self.phi, loc=X @ self.mu, scale=scale)

    @property
    def mean(self) -> dict[str, Any]:
        """E[w], in the structure of a position; E[log sigma2] = log psi - digamma(phi)."""
        log_sigma2 = np.log(self.psi) - special.digamma(self.phi)
        return {"beta": self.mu, "log_sigma2": log_sigma2}

    @property
    def sd(self) -> dict[str, Any]:
        """The sd of w, in the structure of a position; Var(log sigma2) = trigamma(phi).

        beta and log sigma2 are uncorrelated. The sd of beta is infinite for phi <= 1.
        """
        return {"beta": self.beta.std(), "log_sigma2": np.sqrt(special.polygamma(1, self.phi))}

    @property
    def mode(self) -> dict[str, Any]:
        """The maximum of the density of w: beta = mu, sigma2 = psi / (phi + p/2)."""
        log_sigma2 = np.log(self.psi / (self.phi + 0.5 * self.mu.size))
        return {"beta": self.mu, "log_sigma2": log_sigma2}

    def logpdf(
        self, beta: Float[ArrayLike, "*batch p"], log_sigma2: ArrayLike
    ) -> np.ndarray | np.floating:
        """Return the normalised log density of w = (beta, log sigma2), in the batch shape of the arguments."""
        gamma, p = np.asarray(log_sigma2, float), self.mu.size
        away = np.asarray(beta, float) - self.mu
        square = np.einsum("...i,ij,...j->...", away, _inverse(self.V), away)
        constant = -0.5 * (p * np.log(2 * np.pi) + np.linalg.slogdet(self.V)[1])
        constant += self.phi * np.log(self.psi) - special.gammaln(self.phi)
        return constant - (self.phi + 0.5 * p) * gamma - np.exp(-gamma) * (self.psi + 0.5 * square)

    def model(self) -> Posterior:
        """Return the Posterior with this prior, for data (X [n, p], y [n]).

        Positions are {"beta": [p], "log_sigma2": ()}, both unconstrained; a datum is (x, y), a row
        [p] and a number. The prior's numbers are pytree leaves: others compile nothing.
        """
        precision = _inverse(self.V)
        log_det = np.linalg.slogdet(self.V)[1]
        numbers = (self.mu, precision, log_det, self.phi, self.psi)
        leaves = [jnp.asarray(number, float) for number in numbers]
        return Posterior(jax.tree_util.Partial(_log_prior, *leaves), _log_likelihood)


def _log_prior(
    mu: Array, precision: Array, log_det_V: Array, phi: Array, psi: Array, position: dict
) -> Float[Array, ""]:
    """Return log N(beta | mu, e^gamma V) + log IG(e^gamma | phi, psi) + gamma (handout, section 4)."""
    beta, gamma = position["beta"], position["log_sigma2"]
    away = beta - mu
    normal = -0.5 * (
        mu.shape[0] * (jnp.log(2 * jnp.pi) + gamma)
        + log_det_V
        + jnp.exp(-gamma) * (away @ precision @ away)
    )
    inverse_gamma = phi * jnp.log(psi) - gammaln(phi) - (phi + 1) * gamma - psi * jnp.exp(-gamma)
    return normal + inverse_gamma + gamma


def _log_likelihood(position: dict, datum: tuple[Array, Array]) -> Float[Array, ""]:
    """Return log N(y | x'beta, e^gamma) of one datum."""
    x, y = datum
    gamma = position["log_sigma2"]
    return -0.5 * (jnp.log(2 * jnp.pi) + gamma + (y - x @ position["beta"]) ** 2 * jnp.exp(-gamma))


def _inverse(matrix: np.ndarray) -> np.ndarray:
    """Invert a symmetric positive definite matrix."""
    return cho_solve(cho_factor(matrix), np.eye(len(matrix)))


# -- handout -------------------------------------------------------------------------------


H, HANDOUT_STEPS = 1e-5, 1000  # the author's code: a constant step, and the second half kept
HANDOUT_NAMES = ("b0", "b1", "σ²")
HANDOUT_KEY = (("accent-soft", "draws"), ("contrast", "exact: Student-t, inverse gamma"))
HANDOUT_SETTINGS = (
    "The data are the handout's own: 10,000 pairs, slope .9, noise variance .19. As in its "
    "author's code the step is constant, h = 0.00001; 1,000 steps start at (b0, b1, log σ²) = "
    "(1.1, −2, 0), and each takes a fresh subset of m rows without replacement."
)
HALF_NOTE = (
    "The update is printed with noise √(η τ) ε. With η = h that is the temperature τ/2, half of "
    "what is meant: the handout's own stochastic differential equation has √(2τ), and so have the "
    "author's later editions. As printed, τ = 1 is T = 1/2."
)
STEP_TOO_LARGE_NOTE = (
    "At h = 0.00001 what spreads is the noise of the batches, not the posterior: var = [2hT + h² "
    "(N²/m)(1 − m/N) s²] / [1 − (1 − hλ)²] predicts the sd."
)


@cache
def problem() -> tuple[Any, NIG]:
    """Return the data (X [N, 2], y [N]), float32, and the exact posterior."""
    table = columns("handout_regression")
    X = np.stack([np.ones_like(table["x"]), table["x"]], axis=1)
    data = (X.astype(np.float32), table["y"].astype(np.float32))
    return data, nig(2).condition(X, table["y"])


def start() -> dict[str, Any]:
    """Return the position that the author's code starts from."""
    return {"beta": jnp.array([1.1, -2.0], jnp.float32), "log_sigma2": jnp.float32(0.0)}


def exact(temperature: float = 1.0) -> dict[str, Any]:
    """Return the exact marginals of b0, b1 (Student-t) and sigma^2 (inverse gamma) as scipy distributions."""
    law = problem()[1].tempered(temperature)
    scale = np.sqrt(law.psi / law.phi * np.diag(law.V))
    b0, b1 = (stats.t(2 * law.phi, m, s) for m, s in zip(law.mu, scale, strict=True))
    return {"b0": b0, "b1": b1, "σ²": law.sigma2}


def flat(draws: sgld.Draws) -> dict[str, np.ndarray]:
    """Return b0, b1 and sigma^2, each [chain, draw], in float64."""
    beta = np.asarray(draws.position["beta"], np.float64)
    sigma2 = np.exp(np.asarray(draws.position["log_sigma2"], np.float64))
    return {"b0": beta[..., 0], "b1": beta[..., 1], "σ²": sigma2}


def run_of(m: int, T: float, chains: int, seed: int) -> dict[str, np.ndarray]:
    """Run the handout's sampler, [chain, HANDOUT_STEPS], with batches of m at temperature T; T = 0 is SGD."""
    draws = sgld.sample(
        nig(2).model(), problem()[0], start(), sampler=sgld.SGLD(None), batch_size=m,
        gradient=sgld.Minibatch(), order="subset", step_size=H, temperature=T, num_chains=chains,
        num_draws=HANDOUT_STEPS, burn_in=0, thin=1, seed=seed, progress=False,
    )  # fmt: skip
    return flat(draws)


def predicted(m: int, T: float, name: str = "b1") -> Any:
    """Return the Gaussian that the formula of STEP_TOO_LARGE_NOTE predicts for b0 or b1 of `run_of`."""
    (X, y), law = problem()
    X, N, j = X.astype(np.float64), len(y), HANDOUT_NAMES.index(name)
    sigma2 = np.exp(law.mode["log_sigma2"])
    curvature = (X[:, j] @ X[:, j] + 1 / 100) / sigma2
    s2 = np.var(X[:, j] * (y - X @ law.mu) / sigma2)  # of the gradients of single rows
    noise = H**2 * N**2 / m * (1 - m / N) * s2
    variance = (2 * H * T + noise) / (1 - (1 - H * curvature) ** 2)
    return stats.norm(law.mu[j], np.sqrt(variance))


def well_spent(temperature: float, seed: int) -> tuple[dict[str, np.ndarray], sgld.Draws, int]:
    """Run `sgld.sample` with only a temperature and 4,000 draws a chain; return its number of passes."""
    data, _ = problem()
    draws = sgld.sample(
        nig(2).model(), data, start(), temperature=temperature, num_draws=4000, seed=seed,
        progress=False,
    )  # fmt: skip
    plan = draws.info["plan"]
    # control variates take two gradients of every row
    rows = 2 * plan["num_chains"] * draws.info["num_steps"] * plan["batch_size"]
    return flat(draws), draws, round(rows / len(data[1]))
