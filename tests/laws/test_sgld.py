"""SGLD on Gaussians: the exact step and the exact stationary law, without sampling.

The matrices here are written out from the papers, or by brute force, apart from the code.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.samplers.stationary import Law, largest_step
from sgld.testing import stationary_covariance

pytestmark = pytest.mark.usefixtures("x64")

DIMENSIONS, TEMPERATURES, BLOCKS = (1, 2, 10, 50), (0.1, 1.0, 4.0), (1, 10, 100)


def problem(d, seed=0, low=1.0, high=100.0):
    """Curvature J with eigenvalues from low to high, and a factor L of a preconditioner."""
    rng = np.random.default_rng(seed + d)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    J = turn @ np.diag(np.geomspace(low, high, d) if d > 1 else [high]) @ turn.T
    L = np.tril(rng.standard_normal((d, d))) / (3 * d) + np.eye(d)
    B = rng.standard_normal((d, d))
    return J, L, B @ B.T / d * high


def preconditioners(L):
    diagonal = np.diag(L) ** 2
    return [
        (sgld.Scalar(0.3), np.sqrt(0.3) * np.eye(len(L))),
        (sgld.Diagonal(diagonal), np.diag(np.sqrt(diagonal))),
        (sgld.Dense(L @ L.T), L),
    ]


@pytest.mark.parametrize("d", DIMENSIONS)
def test_one_step_is_the_matrix_of_the_paper(d):
    J, L, _ = problem(d)
    rng = np.random.default_rng(1)
    q, xi, mode = rng.standard_normal((3, d))
    for T, (D, root) in itertools.product(TEMPERATURES, preconditioners(L)):
        h = 0.9 / 100
        step = lambda q, xi: sgld.SGLD(None).step(  # noqa: E731
            sgld.SGLD(None).init(q), lambda x: -J @ (x - mode), h, xi,  # noqa: B023
            preconditioner=jax.tree.map(jnp.asarray, D), temperature=T,  # noqa: B023
        ).position  # fmt: skip
        exact = q + h * root @ root.T @ (-J @ (q - mode)) + np.sqrt(2 * h * T) * root @ xi
        np.testing.assert_allclose(step(q, xi), exact, rtol=1e-12, atol=1e-12)
        A, B = jax.jacfwd(step, (0, 1))(jnp.asarray(q), jnp.asarray(xi))
        np.testing.assert_allclose(A, np.eye(d) - h * root @ root.T @ J, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(B, np.sqrt(2 * h * T) * root, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("T", TEMPERATURES)
def test_independent_batches(d, T):
    J, L, C = problem(d)
    for D, root in preconditioners(L):
        top = np.linalg.eigvalsh(root.T @ J @ root)[-1]
        for h in (1e-3 / top, 0.1 / top, 1.5 / top):
            found = stationary_covariance(
                sgld.SGLD(None), J, h, temperature=T, gradient_noise=C, preconditioner=D
            )
            law = Law.of(J, root, C)
            S = law.basis @ law.covariance(h, T) @ law.basis.T
            np.testing.assert_allclose(S, found, rtol=1e-8, atol=1e-8 * np.abs(found).max())
            truth = T * np.diag(np.linalg.inv(J))
            basis = Law.of(J, root, C, out=np.eye(d))
            np.testing.assert_allclose(basis.ratio(h, T) ** 2, np.diag(found) / truth, rtol=1e-7)


def reshuffled(J, root, C, h, T, R):
    """The covariance averaged over a pass of R blocks whose noises sum to zero, by brute force.

    The R noises of a pass have covariance C each and -C / (R - 1) between two; every position
    of the pass is a matrix times all of them, composed step by step.
    """
    d, D = len(J), root @ root.T
    A = np.eye(d) - h * D @ J
    joint = np.kron(np.eye(R) - (1 - np.eye(R)) / (R - 1), C)
    maps, noise = [np.zeros((d, R * d))], [np.zeros((d, d))]
    for k in range(R):
        new = A @ maps[-1]
        new[:, k * d : (k + 1) * d] += h * D
        maps.append(new)
        noise.append(A @ noise[-1] @ A.T + 2 * h * T * D)
    added = [M @ joint @ M.T + W for M, W in zip(maps, noise, strict=True)]
    power = np.linalg.matrix_power(A, R)
    S = np.linalg.solve(np.eye(d * d) - np.kron(power, power), added[R].reshape(-1)).reshape(d, d)
    total = np.zeros((d, d))
    for k in range(R):
        step = np.linalg.matrix_power(A, k)
        total += step @ S @ step.T + added[k]
    return total / R


@pytest.mark.parametrize(("d", "R"), [(1, 2), (1, 10), (1, 100), (2, 10), (2, 100), (10, 10)])
@pytest.mark.parametrize("T", TEMPERATURES)
def test_reshuffled_batches(d, R, T):
    J, L, C = problem(d)
    for _, root in preconditioners(L):
        top = np.linalg.eigvalsh(root.T @ J @ root)[-1]
        for h in (0.01 / top, 0.5 / top / R, 0.9 / top, 1.3 / top):
            law = Law.of(J, root, C, period=R)
            S = law.basis @ law.covariance(h, T) @ law.basis.T
            exact = reshuffled(J, root, C, h, T, R)
            np.testing.assert_allclose(S, exact, rtol=1e-8, atol=1e-8 * np.abs(exact).max())


@pytest.mark.parametrize("R", [2, 3, 5])
def test_the_brute_force_agrees_with_all_permutations(R):
    """E over the orders of a pass, by running through every one of them with real blocks."""
    rng = np.random.default_rng(R)
    d, h, T = 2, 0.2, 1.0
    J, L = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([[1.0, 0.0], [0.3, 0.8]])
    errors = rng.standard_normal((R, d))
    errors -= errors.mean(0)
    D, A = L @ L.T, np.eye(d) - h * L @ L.T @ J
    S = np.eye(d)
    for _ in range(400):  # the law at the start of a pass, by iterating to its fixed point
        total, end = np.zeros((d, d)), np.zeros((d, d))
        for order in itertools.permutations(range(R)):
            mean, cov = np.zeros(d), S
            for block in order:
                total += (cov + np.outer(mean, mean)) / R
                mean, cov = A @ mean + h * D @ errors[block], A @ cov @ A.T + 2 * h * T * D
            end += cov + np.outer(mean, mean)
        count = len(list(itertools.permutations(range(R))))
        S = end / count
    C = errors.T @ errors / R
    np.testing.assert_allclose(total / count, reshuffled(J, L, C, h, T, R), rtol=1e-10)


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("T", TEMPERATURES)
def test_noise_correction_is_exact(d, T):
    J, _, C = problem(d)
    root = np.linalg.cholesky(np.linalg.inv(J))
    values, turn = np.linalg.eigh(root.T @ C @ root)
    factor, D = root @ turn, np.linalg.inv(J)
    h = min(0.3, 0.8 * T / (T + values[-1]))
    S = stationary_covariance(
        sgld.SGLD(jnp.asarray(values)), J, h, temperature=T, gradient_noise=C,
        preconditioner=sgld.Dense(D, factor),
    )  # fmt: skip
    np.testing.assert_allclose(S, T * D, rtol=1e-10, atol=1e-12)


def test_noise_correction_at_temperature_0_is_the_optimiser():
    sampler = sgld.SGLD(jnp.array([1.0, 2.0]))
    q = jnp.array([1.0, -1.0])
    new = sampler.step(sampler.init(q), lambda x: -x, 0.25, jnp.ones(2), temperature=0.0)
    np.testing.assert_array_equal(new.position, 0.75 * q)


def slope(hs, errors):
    return np.polyfit(np.log(hs), np.log(errors), 1)[0]


@pytest.mark.parametrize("R", BLOCKS)
@pytest.mark.parametrize("T", TEMPERATURES)
def test_order_of_the_bias(R, T):
    """Independent batches: h; what reshuffled gradient noise adds: h^2."""
    J, root = np.eye(1), np.eye(1)
    V = np.array([[float(R)]])
    hs = np.array([0.08, 0.04, 0.02, 0.01]) / R
    independent = [
        stationary_covariance(sgld.SGLD(None), J, h, temperature=T, gradient_noise=V)[0, 0] / T - 1
        for h in hs
    ]
    assert slope(hs, independent) == pytest.approx(1.0, abs=0.15)
    if R == 1:
        return
    clean = [Law.of(J, root, 0 * V).covariance(h, T)[0, 0] for h in hs]
    mixed = [reshuffled(J, root, V, h, T, R)[0, 0] for h in hs]
    ours = [Law.of(J, root, V, period=R).covariance(h, T)[0, 0] for h in hs]
    assert slope(hs, np.subtract(mixed, clean)) >= 1.7
    np.testing.assert_allclose(ours, mixed, rtol=1e-10)
    # at h R = .5 the blocks' noise adds at most a third of what rows drawn at random add
    h = 0.5 / R
    noise = Law.of(J, root, 0 * V).covariance(h, T)[0, 0]
    fresh = Law.of(J, root, V).covariance(h, T)[0, 0] - noise
    blocks = reshuffled(J, root, V, h, T, R)[0, 0] - noise
    assert 0 < blocks <= fresh / 3


@pytest.mark.parametrize("m", [1, 2, 5])
def test_variance_with_independent_subsets(m):
    """[2 h T + h^2 (N^2/m)(1 - m/N) s^2] / [1 - (1 - h l)^2]."""
    N, T, h = 6, 1.5, 0.02
    rows = np.random.default_rng(0).normal(size=N) * 3
    curvature = N + 0.5
    subsets = np.array([rows[list(i)].sum() for i in itertools.combinations(range(N), m)])
    covariance = np.var(N / m * subsets)
    s2 = np.var(rows, ddof=1)
    assert covariance == pytest.approx(N**2 / m * (1 - m / N) * s2, rel=1e-10)
    found = stationary_covariance(
        sgld.SGLD(None), curvature, h, temperature=T, gradient_noise=covariance
    )
    formula = (2 * h * T + h**2 * N**2 / m * (1 - m / N) * s2) / (1 - (1 - h * curvature) ** 2)
    assert found[0, 0] == pytest.approx(formula, rel=1e-10)


@pytest.mark.parametrize("T", TEMPERATURES)
@pytest.mark.parametrize("R", BLOCKS)
def test_largest_step_spends_the_bias_it_was_given(R, T):
    J, _, C = problem(3, high=20.0)
    law = Law.of(J, np.eye(3), C, period=R)
    for bias in (0.01, 0.025, 0.1):
        h = largest_step(law, bias, T)
        assert np.max(law.ratio(h, T)) <= 1 + bias
        stopped = h > 0.99 / law.a.max()
        assert stopped or np.max(law.ratio(1.01 * h, T)) > 1 + bias


def test_ratio_of_an_unstable_step_is_infinite():
    assert np.isinf(Law.of(np.eye(2), np.eye(2), np.eye(2)).ratio(2.0)).all()
