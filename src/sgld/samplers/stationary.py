"""Stationary distributions of samplers on a Gaussian, and the largest step size for a tolerance.

SGLD. The coordinates are those of the preconditioner's factor P, rotated so that A = P^T J P is
diagonal with entries `a`. J is the curvature of -log posterior at the mode, and C the covariance of
the gradient estimate, P^T Cov P. With decay r_i = 1 - h a_i and p = r_i r_j, independent batches give

    S_ij = (2 h T delta_ij + h^2 C_ij) / (1 - p)

and R blocks in a new random order each pass give, averaged over the pass,

    S_ij = 2 h T delta_ij / (1 - p) + mean over k < R of (p^k v_ij + w_ij(k)),
    w(k) = h^2 C R/(R-1) [s(k) - t_i(k) t_j(k) / R],   v = w(R) / (1 - p^R),

where s(k) is the sum of p^l and t_i(k) the sum of r_i^l over l < k. Within a pass the noise of the
blocks sums to zero, so its part of the bias is of order (h R)^2 instead of h R.

Samplers whose step is affine. In the eigenbasis of A a step of SGHMC, BAOA, UBU or a similar sampler is,
for each direction i, s_i' = A_i s_i + B_i xi_i + G_i e_i, with s_i = (position, momentum, ...) and e_i
the gradient's error. A_i, B_i and G_i are Jacobians of `sampler.step` itself. With A_i = V L V^{-1} and
its eigenvalues l_ia, each of which decays as SGLD's r_i does,

    S_ij = C_ij sum_ab w_ia w_jb* accumulated(l_ia, l_jb*) + delta_ij I_i,

where w_ia is the part of G_i that reaches the position through mode a, and I_i is the same sum for B_i,
with new noise at every step. `accumulated` accounts for the order of the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .preconditioners.fixed import Scalar
from .replica_exchange import ReplicaExchange
from .sgld import SGLD

Matrix = Float[np.ndarray, "*laws d d"]


def _mean_power(x: np.ndarray, count: int) -> np.ndarray:
    """Return the mean over k < count of x^k."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if np.iscomplexobj(x):
            value = -np.expm1(count * np.log(x)) / (count * (1 - x))
            return np.where(np.abs(1 - x) < 1e-14, 1.0, np.where(x == 0, 1 / count, value))
        value = -np.expm1(count * np.log(x)) / (count * (1 - x))
    return np.where(np.abs(1 - x) < 1e-14, 1.0, np.where(x > 0, value, _alternating(x, count)))


def _alternating(x: np.ndarray, count: int) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return (1 - np.power(x, count)) / (count * (1 - x))


def accumulated(r: np.ndarray, q: np.ndarray, period: int) -> np.ndarray:
    """Return the covariance [d, d] that noises of covariance 1, decaying by r_i and q_j, reach.

    These are the module's formulas for C = 1 and noise that enters with weight 1.
    """
    p, R = np.outer(r, q), period
    if R == 1:
        return 1 / (1 - p)
    scale = R / (R - 1)
    mean_p, mean_r, mean_q = _mean_power(p, R), _mean_power(r, R), _mean_power(q, R)
    s_mean = (1 - mean_p) / (1 - p)
    t_mean = (1 - mean_r[:, None] - mean_q[None, :] + mean_p) / np.outer(1 - r, 1 - q)
    end = scale * R * (mean_p - np.outer(mean_r, mean_q))
    start = end / (R * mean_p * (1 - p))
    return mean_p * start + scale * (s_mean - t_mean / R)


@dataclass(frozen=True)
class Law:
    """A Gaussian target and a noisy gradient, in the coordinates of a preconditioner's factor.

    `basis` = P times A's eigenvectors maps A's eigenbasis to the original coordinates, `noise`
    is C in that basis, `out` maps it to the m reported parameters. `period` is the number
    of blocks of a reshuffled pass, 1 for independent batches.
    """

    a: Float[np.ndarray, " d"]
    basis: Matrix
    noise: Matrix
    out: Float[np.ndarray, "m d"]
    period: int = 1

    longest: ClassVar[float] = 1.0  # the tuner's largest step size times curvature

    @classmethod
    def of(
        cls,
        curvature: Matrix,
        factor: Matrix,
        noise: Matrix,
        *,
        period: int = 1,
        out: Float[np.ndarray, "m d"] | None = None,
    ) -> Law:
        """Build the target from J, P and Cov(gradient), all in the original coordinates."""
        a, turn = np.linalg.eigh(factor.T @ curvature @ factor)
        basis = factor @ turn
        out = basis if out is None else out @ basis
        return cls(a, basis, basis.T @ noise @ basis, out, period)

    def covariance(self, h: float, temperature: float = 1.0) -> Matrix:
        """Return S in A's eigenbasis. The steps must be stable: h a < 2."""
        r = 1 - h * self.a
        injected = np.diag(2 * h * temperature / (1 - r**2))
        if not self.noise.any():
            return injected
        return injected + h**2 * self.noise * accumulated(r, r, self.period)

    def stable(self, h: float) -> bool:
        """Return whether the steps contract."""
        return bool(0 < h < 2 / self.a.max())

    def rate(self, h: float) -> float:
        """Return the share of the distance that a step removes in the slowest direction."""
        return min(1.0, h * float(self.a.min()))

    def noise_ratio(self, h: float, temperature: float) -> float:
        """Return the gradient noise's variance over the injected one's, in the worst direction."""
        return h / (2 * temperature) * float(np.linalg.eigvalsh(self.noise)[-1])

    def ratio(self, h: float, temperature: float = 1.0) -> Float[np.ndarray, " m"]:
        """Return the run's sd over the posterior's, per reported parameter; inf if unstable."""
        if not self.stable(h):
            return np.full(self.out.shape[0], np.inf)
        return self.ratio_of(self.covariance(h, temperature), temperature)

    def ratio_of(self, covariance: Matrix, temperature: float) -> Float[np.ndarray, " m"]:
        """Return the reported parameters' sd under covariance S over the posterior's.

        The value is NaN for a constant parameter.
        """
        wrong = np.sum((self.out @ covariance) * self.out, axis=1)
        true = np.einsum("mi,i,mi->m", self.out, temperature / self.a, self.out)
        with np.errstate(invalid="ignore"):
            return np.sqrt(wrong / true)


def off(law: Any, h: float, temperature: float) -> float:
    """Return the largest |sd ratio - 1| over the parameters that are not constants."""
    wrong = np.abs(law.ratio(h, temperature) - 1)
    return float(np.max(wrong, where=~np.isnan(wrong), initial=0.0))


def largest_step(law: Any, bias: float, temperature: float = 1.0) -> float:
    """Find by bisection the largest h whose sd ratio is within `bias` of 1 in every parameter.

    `law` is a Law or an AffineLaw; h times the largest curvature is at most `law.longest`.
    """
    low, high = 0.0, law.longest / law.a.max()
    for _ in range(60):
        middle = np.sqrt(low * high) if low > 0 else high / 4
        if off(law, middle, temperature) <= bias:
            low = middle
        else:
            high = middle
        if low > 0 and high / low < 1.001:
            break
    return low if low > 0 else high


# -- affine steps --------------------------------------------------------------------------


class Maps(NamedTuple):
    """The step's Jacobians per direction: state by state, state by noise, state by gradient."""

    A: Float[np.ndarray, "d m m"]
    B: Float[np.ndarray, "d m n"]
    G: Float[np.ndarray, "d m"]


@dataclass(frozen=True)
class AffineLaw:
    """The stationary distribution of an affine sampler; the counterpart of `Law` for SGLD."""

    gaussian: Law
    sampler: Any

    longest: ClassVar[float] = 0.6  # a Gaussian gives no bound on the step of exact samplers

    @property
    def a(self) -> Float[np.ndarray, " d"]:
        """The eigenvalues of A."""
        return self.gaussian.a

    @property
    def noise(self) -> Matrix:
        """C in A's eigenbasis."""
        return self.gaussian.noise

    @property
    def out(self) -> Float[np.ndarray, "m d"]:
        """The map from A's eigenbasis to the reported parameters."""
        return self.gaussian.out

    def maps(self, h: float, temperature: float = 1.0) -> Maps:
        """Return the step's Jacobians."""
        return maps(self.sampler, self.a, h, temperature)

    def covariance(self, h: float, temperature: float = 1.0) -> Matrix:
        """Return S of the positions in A's eigenbasis. The steps must be stable."""
        A, B, G = self.maps(h, temperature)
        decay, V = np.linalg.eig(A)
        if np.linalg.cond(V).max() > 1e7:  # critical damping: no basis of eigenvectors
            A = A + 1e-10 * np.diag(np.arange(1.0, A.shape[-1] + 1))
            decay, V = np.linalg.eig(A)
        decay, into = decay.astype(complex), np.linalg.inv(V)
        arrives = V[:, 0, :] * (into @ G[:, :, None])[:, :, 0]
        injected = V[:, 0, :, None] * (into @ B)  # [d, mode, noise]
        modes = range(decay.shape[1])
        S = np.zeros((self.a.size,) * 2, complex)
        for i in modes:
            for j in modes:
                other = decay[:, j].conj()
                both = np.sum(injected[:, i] * injected[:, j].conj(), -1)
                S += np.diag(both / (1 - decay[:, i] * other))
                if self.noise.any():
                    weight = np.outer(arrives[:, i], arrives[:, j].conj())
                    grown = accumulated(decay[:, i], other, self.gaussian.period)
                    S += self.noise * weight * grown
        return np.real(S)

    def stable(self, h: float) -> bool:
        """Return whether the steps contract."""
        return h > 0 and self._slowest(h) < 1

    def rate(self, h: float) -> float:
        """Return the share of the distance that a step removes in the slowest direction."""
        slowest = self._slowest(h)
        return 1 - slowest if slowest < 1 else 1.0  # longer runs do not help an unstable step

    def noise_ratio(self, h: float, temperature: float) -> float:
        """Return the gradient noise's variance over the injected one's, in the worst direction.

        It is 0 without gradient noise, and otherwise infinite for a sampler that injects none.
        """
        _, B, G = self.maps(h, temperature)
        loudest = np.linalg.eigvalsh(self.noise)[-1]
        injected = np.sum(B**2, (1, 2))
        if loudest <= 0 or not injected.all():
            return math.inf if loudest > 0 else 0.0
        return float(np.max(np.sum(G**2, 1) / injected) * loudest)

    def ratio(self, h: float, temperature: float = 1.0) -> Float[np.ndarray, " m"]:
        """Return the run's sd over the posterior's, per reported parameter; inf if unstable."""
        if not self.stable(h):
            return np.full(self.out.shape[0], np.inf)
        return self.gaussian.ratio_of(self.covariance(h, temperature), temperature)

    def _slowest(self, h: float) -> float:
        return float(np.abs(np.linalg.eigvals(self.maps(h).A)).max())


def is_affine(sampler: Any) -> bool:
    """Return whether a step on a Gaussian is affine, direction by direction.

    This is False for a sampler that asks for the log density or that cannot step with any number of
    directions, for example because it reshapes its position.
    """
    try:
        with jax.enable_x64(True):
            return all(_steps(sampler, d) for d in (1, 3)) and _affine_for_two(sampler)
    # shapes that do not fit, or an estimate without a log density
    except (TypeError, ValueError, IndexError, AttributeError):
        return False


def _steps(sampler: Any, d: int) -> bool:
    """Return whether the state is vectors like the position.

    Raises where the sampler cannot step at all.
    """
    state = jax.eval_shape(lambda: sampler.init(jnp.zeros(d)))
    if any(leaf.shape != (d,) for leaf in jax.tree.leaves(state)):
        return False
    step, size = _flat(_double(sampler), jnp.ones(d), 0.1, 1.0)
    jax.eval_shape(step, jnp.zeros(size))
    return True


def _affine_for_two(sampler: Any) -> bool:
    step, size = _flat(_double(sampler), jnp.array([0.5, 2.0]), 0.1, 1.0)
    rng = np.random.default_rng(0)
    jacobian = jax.jit(jax.jacfwd(step))
    # also far out, where a clipped step or a force that saturates is a different map
    here, *others = (jacobian(jnp.asarray(s * rng.standard_normal(size))) for s in (1.0, 1.0, 1e4))
    blocks = np.asarray(here).reshape(-1, 2, size // 2, 2)
    apart = np.abs(blocks[:, 0, :, 1]).max() + np.abs(blocks[:, 1, :, 0]).max()
    same = (np.allclose(here, there, rtol=1e-9, atol=1e-12) for there in others)
    return all(same) and bool(apart < 1e-12)


def maps(sampler: Any, a: Float[np.ndarray, " d"], h: float, temperature: float) -> Maps:
    """Return the Jacobians of one step at curvatures `a`, in double precision."""
    with jax.enable_x64(True):
        numbers = (np.asarray(a, np.float64), np.float64(h), np.float64(temperature))
        J = np.asarray(_jacobian(_double(sampler), *numbers)).transpose(2, 1, 0)  # [d, m, input]
        m = J.shape[1]
        return Maps(J[:, :, :m], J[:, :, m:-1], J[:, :, -1])


@jax.jit
def _jacobian(sampler, a, h, T):
    """Return [input, m, d]: all directions at once, because none depends on another."""
    step, size = _flat(sampler, a, h, T)
    inputs = size // a.size
    seeds = jnp.repeat(jnp.eye(inputs), a.size, axis=1)
    columns = jax.vmap(lambda seed: jax.jvp(step, (jnp.zeros(size),), (seed,))[1])(seeds)
    return columns.reshape(inputs, -1, a.size)


def _flat(sampler, a, h, T):
    """Return the step as a function of one vector: state leaves, noises, gradient error."""
    d, n = a.size, sampler.num_noises
    treedef = jax.tree.structure(sampler.init(jnp.zeros(d)))
    m = treedef.num_leaves

    def step(vector):
        rows = vector.reshape(m + n + 1, d)
        noise = rows[m] if n == 1 else rows[m:-1]
        state = treedef.unflatten(list(rows[:m]))
        grad = lambda q: rows[-1] - a * q  # a step that needs the log density is not affine  # noqa: E731
        new = sampler.step(state, grad, h, noise, preconditioner=Scalar(1.0), temperature=T)
        return jnp.concatenate(jax.tree.leaves(new))

    return step, (m + n + 1) * d


def _double(sampler: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), sampler)


def of_sampler(law: Law, sampler: Any) -> Law | AffineLaw | None:
    """Return a sampler's stationary distribution, or None where it has no closed form.

    `law` is that of SGLD.
    """
    if isinstance(sampler, ReplicaExchange):
        sampler = sampler.sampler  # exchanges do not change the cold chain's distribution
    if type(sampler) is SGLD:  # a subclass may define another step
        return law
    return AffineLaw(law, sampler) if is_affine(sampler) else None
