"""The exact stationary law on a Gaussian of any sampler whose step is affine there.

In the eigenbasis of A = P^T J P (overdamped.py) a step of SGHMC, BAOA, UBU or the like is, in each
direction i apart, s_i' = A_i s_i + B_i xi_i + G_i e_i, with s_i = (position, momentum, ...) and e_i
the gradient's error; A_i, B_i and G_i are Jacobians of `sampler.step` itself. With A_i = V L V^{-1},
l_ia its eigenvalues, each of which decays as SGLD's r_i does,

    S_ij = C_ij sum_ab w_ia w_jb* accumulated(l_ia, l_jb*) + delta_ij I_i,

w_ia being what of G_i reaches the position through mode a, and I_i the same sum for B_i, fresh
at every step. The data's order is in `accumulated`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..preconditioners.fixed import Scalar
from ..replica_exchange import ReplicaExchange
from ..sgld import SGLD
from .overdamped import Law, accumulated

__all__ = ["AffineLaw", "is_affine", "of_sampler"]

Matrix = Float[np.ndarray, "d d"]


class Maps(NamedTuple):
    """Of every direction: state by state, state by noise, state by gradient."""

    A: Float[np.ndarray, "d m m"]
    B: Float[np.ndarray, "d m n"]
    G: Float[np.ndarray, "d m"]


@dataclass(frozen=True)
class AffineLaw:
    """The stationary law of a sampler's steps; what overdamped.py's Law is for SGLD's."""

    gaussian: Law
    sampler: Any

    longest: ClassVar[float] = 0.6  # nothing on a Gaussian bounds the step of exact samplers

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
        """From A's eigenbasis to the reported parameters."""
        return self.gaussian.out

    def maps(self, h: float, temperature: float = 1.0) -> Maps:
        """The step's Jacobians."""
        return maps(self.sampler, self.a, h, temperature)

    def covariance(self, h: float, temperature: float = 1.0) -> Matrix:
        """S of the positions in A's eigenbasis. The steps must be stable."""
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
        """Whether the steps contract."""
        return h > 0 and self._slowest(h) < 1

    def rate(self, h: float) -> float:
        """The share that a step forgets in the slowest direction."""
        slowest = self._slowest(h)
        return 1 - slowest if slowest < 1 else 1.0  # no length helps an unstable step

    def noise_ratio(self, h: float, temperature: float) -> float:
        """Variance of the gradient's noise over the injected one's, in the worst direction.

        0 without gradient noise; else infinite for a sampler that injects none.
        """
        _, B, G = self.maps(h, temperature)
        loudest = np.linalg.eigvalsh(self.noise)[-1]
        injected = np.sum(B**2, (1, 2))
        if loudest <= 0 or not injected.all():
            return math.inf if loudest > 0 else 0.0
        return float(np.max(np.sum(G**2, 1) / injected) * loudest)

    def ratio(self, h: float, temperature: float = 1.0) -> Float[np.ndarray, " m"]:
        """sd of the run over sd of the posterior, per reported parameter; inf if unstable."""
        if not self.stable(h):
            return np.full(self.out.shape[0], np.inf)
        return self.gaussian.ratio_of(self.covariance(h, temperature), temperature)

    def _slowest(self, h: float) -> float:
        return float(np.abs(np.linalg.eigvals(self.maps(h).A)).max())


def is_affine(sampler: Any) -> bool:
    """Whether a step on a Gaussian is affine, direction by direction.

    A sampler that cannot step with any number of directions (one that reshapes its position, say), or asks for
    the log density, has no such step.
    """
    try:
        with jax.enable_x64(True):
            return all(_steps(sampler, d) for d in (1, 3)) and _affine_for_two(sampler)
    except (
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
    ):  # shapes that do not fit; a gradient alone
        return False


def _steps(sampler: Any, d: int) -> bool:
    """Whether the state is vectors like the position. Raises where it cannot step at all."""
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
    # far out too, where a step that is cut off, or a force that saturates, is another map
    here, *others = (jacobian(jnp.asarray(s * rng.standard_normal(size))) for s in (1.0, 1.0, 1e4))
    blocks = np.asarray(here).reshape(-1, 2, size // 2, 2)
    apart = np.abs(blocks[:, 0, :, 1]).max() + np.abs(blocks[:, 1, :, 0]).max()
    same = (np.allclose(here, there, rtol=1e-9, atol=1e-12) for there in others)
    return all(same) and bool(apart < 1e-12)


def maps(sampler: Any, a: Float[np.ndarray, " d"], h: float, temperature: float) -> Maps:
    """The Jacobians of one step at curvatures `a`, in double precision."""
    with jax.enable_x64(True):
        numbers = (np.asarray(a, np.float64), np.float64(h), np.float64(temperature))
        J = np.asarray(_jacobian(_double(sampler), *numbers)).transpose(2, 1, 0)  # [d, m, input]
        m = J.shape[1]
        return Maps(J[:, :, :m], J[:, :, m:-1], J[:, :, -1])


@jax.jit
def _jacobian(sampler, a, h, T):
    """[input, m, d]: all directions at once, as none depends on another."""
    step, size = _flat(sampler, a, h, T)
    inputs = size // a.size
    seeds = jnp.repeat(jnp.eye(inputs), a.size, axis=1)
    columns = jax.vmap(lambda seed: jax.jvp(step, (jnp.zeros(size),), (seed,))[1])(seeds)
    return columns.reshape(inputs, -1, a.size)


def _flat(sampler, a, h, T):
    """The step as a function of one vector: the state's leaves, the noises, the gradient's error."""
    d, n = a.size, sampler.num_noises
    treedef = jax.tree.structure(sampler.init(jnp.zeros(d)))
    m = treedef.num_leaves

    def step(vector):
        rows = vector.reshape(m + n + 1, d)
        noise = rows[m] if n == 1 else rows[m:-1]
        state = treedef.unflatten(list(rows[:m]))
        grad = lambda q: rows[-1] - a * q  # no log density: a step that asks for it is not affine  # noqa: E731
        new = sampler.step(state, grad, h, noise, preconditioner=Scalar(1.0), temperature=T)
        return jnp.concatenate(jax.tree.leaves(new))

    return step, (m + n + 1) * d


def _double(sampler: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), sampler)


def of_sampler(law: Law, sampler: Any) -> Law | AffineLaw | None:
    """The law of a sampler's steps, `law` being that of SGLD's; None where it has no closed form."""
    if isinstance(sampler, ReplicaExchange):
        sampler = sampler.sampler  # exchanges leave the cold chain's law as it is
    if type(sampler) is SGLD:  # of a class derived from it, the step may be another
        return law
    return AffineLaw(law, sampler) if is_affine(sampler) else None
