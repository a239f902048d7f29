"""The PyTorch optimisers: JAX's iterates, torch's own at T = 0, exact laws."""

import copy
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld

torch = pytest.importorskip("torch")

from torch_parts import F, each, leaf, step_on  # noqa: E402

import sgld.torch as st  # noqa: E402

# -- one source of update rules: the same noise gives JAX's iterates ---------------------------

STEPS, ROWS, BATCH, COLUMNS, CLASSES = 1000, 60, 10, 3, 2

H = {st.SGLD: 2e-3, st.PSGLD: 1e-3, st.SGHMC: 1e-3}

JAX = {st.SGLD: sgld.SGLD(None), st.PSGLD: sgld.SGLD(None), st.SGHMC: sgld.SGHMC(0.2, 0.05)}

OWN = {st.SGLD: {}, st.PSGLD: {"freeze_after": 700}, st.SGHMC: {"friction": 0.2, "noise_estimate": 0.05}}  # fmt: skip


def problem():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((ROWS, COLUMNS))
    y = rng.integers(0, CLASSES, ROWS)
    rows = rng.integers(0, ROWS, (STEPS, BATCH))
    absent = np.ones((STEPS, 1, COLUMNS))
    absent[:100, 0, 2] = 0.0  # a column that no gradient has seen in the first 100 steps
    start = rng.standard_normal((COLUMNS * CLASSES + CLASSES,))
    return X[rows] * absent, y[rows], start


def torch_iterates(kind, X, y, start, T, precision):
    W = leaf(start[: COLUMNS * CLASSES].reshape(COLUMNS, CLASSES))
    b = leaf(start[COLUMNS * CLASSES :])
    optimizer = kind(
        [W, b], step_size=H[kind], num_data=ROWS, temperature=T, prior_precision=precision,
        seed=5, **OWN[kind],
    )  # fmt: skip
    noise, path = [], []
    for k in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(torch.tensor(X[k]) @ W + b, torch.tensor(y[k])).backward()
        if k == 0:  # the generator exists from the first draw on
            twin = copy.deepcopy(optimizer)
            one = [twin._noise(p) for p in (W, b)]
        else:
            generator = torch.Generator()
            generator.set_state(optimizer.state_dict()["generators"]["cpu"])
            one = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in (W, b)]
        noise.append(torch.cat([n.reshape(-1) for n in one]).numpy())
        optimizer.step()
        path.append(torch.cat([W.detach().reshape(-1), b.detach()]).numpy().copy())
    return np.array(noise), np.array(path)


def jax_iterates(kind, X, y, start, T, precision, noise):
    sampler, h = JAX[kind], H[kind]
    rms = sgld.RMSprop()

    def step(carry, inputs):
        state, memory = carry
        x, label, xi, k = inputs

        def log_posterior(z):
            W, b = z[: COLUMNS * CLASSES].reshape(COLUMNS, CLASSES), z[COLUMNS * CLASSES :]
            log_p = jax.nn.log_softmax(x @ W + b[None], -1)
            mean = jnp.take_along_axis(log_p, label[:, None], 1).mean()
            return ROWS * mean - precision / 2 * jnp.sum(z**2)

        grad, D = jax.grad(log_posterior), sgld.Scalar(1.0)
        if kind is st.PSGLD:
            fresh = rms.after(memory, grad(state.position) / ROWS)
            memory = jax.tree.map(lambda a, b: jnp.where(k < 700, a, b), fresh, memory)
            D = rms.at(memory)
        state = sampler.step(state, grad, h, xi, preconditioner=D, temperature=T)
        return (state, memory), state.position

    z = jnp.asarray(start)
    inputs = tuple(map(jnp.asarray, (X, y, noise, np.arange(STEPS))))
    return jax.jit(lambda c, i: jax.lax.scan(step, c, i))((sampler.init(z), rms.start(z)), inputs)[1]  # fmt: skip


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("T", "precision"), [(1.0, 0.0), (0.3, 2.0)])
@each
def test_the_same_noise_gives_the_iterates_of_jax(kind, T, precision):
    X, y, start = problem()
    noise, path = torch_iterates(kind, X, y, start, T, precision)
    exact = np.asarray(jax_iterates(kind, X, y, start, T, precision, noise))
    assert path.shape == exact.shape and np.ptp(exact) > 1 and noise.std() > 0.9
    largest = np.abs(path - exact).max()
    print(f"{kind.__name__}, T = {T}: largest difference {largest:.1e} over {STEPS} steps")
    assert largest < 1e-6


# -- T = 0: torch's own optimisers -------------------------------------------------------------


def trained(make, steps=60, dtype=torch.float64):
    torch.manual_seed(0)
    X, y = torch.randn(32, 4, dtype=dtype), torch.randint(0, 3, (32,))
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 5, dtype=dtype), torch.nn.Tanh(), torch.nn.Linear(5, 3, dtype=dtype)
    )
    optimizer = make(net.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


@pytest.mark.parametrize("precision", [0.0, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sgld_without_noise_is_sgd_bit_for_bit(precision, dtype):
    h, N = 2.0**-12, 256  # so that h N is the learning rate without rounding
    ours = trained(
        lambda p: st.SGLD(p, step_size=h, num_data=N, temperature=0.0, prior_precision=precision),
        dtype=dtype,
    )
    theirs = trained(lambda p: torch.optim.SGD(p, lr=h * N, weight_decay=precision / N), dtype=dtype)  # fmt: skip
    assert torch.equal(ours, theirs)


def test_sghmc_without_noise_is_sgd_with_momentum():
    h, N = 2.0**-14, 256
    ours = trained(lambda p: st.SGHMC(p, step_size=h, num_data=N, temperature=0.0, friction=0.25))
    theirs = trained(lambda p: torch.optim.SGD(p, lr=h * N, momentum=0.75))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


def test_psgld_without_noise_is_corrected_rmsprop():
    h, N = 2.0**-14, 256
    ours = trained(lambda p: st.PSGLD(p, step_size=h, num_data=N, temperature=0.0, epsilon=1e-3))
    theirs = trained(lambda p: torch.optim.Adam(p, lr=h * N, betas=(0.0, 0.99), eps=1e-3))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    ours = trained(lambda p: st.PSGLD(p, step_size=h, num_data=N, temperature=0.0, decay=0.0))
    theirs = trained(lambda p: torch.optim.RMSprop(p, lr=h * N, alpha=0.0, eps=1e-5))
    # g / sqrt(g^2): rounding is magnified where g is near 0; one step is .016
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_a_frozen_metric_stays():
    w = leaf([1.0, 2.0])
    optimizer = st.PSGLD([w], step_size=1e-3, num_data=10)
    for k in range(5):
        step_on(optimizer, [[1.0 + k, 0.5]])
    optimizer.freeze()
    before = optimizer.state[w]["v"].clone()
    step_on(optimizer, [[100.0, 100.0]])
    assert torch.equal(before, optimizer.state[w]["v"]) and optimizer.state[w]["count"] == 5
    assert optimizer.state_dict()["param_groups"][0]["freeze_after"] == 0


def test_an_unseen_coordinate_takes_the_mean_of_all_that_were_seen():
    a, b = leaf([0.0, 0.0]), leaf([0.0])
    optimizer = st.PSGLD([a, b], step_size=0.1, num_data=1, decay=0.0, epsilon=1e-5)
    step_on(optimizer, [[2.0, 4.0], None])  # v = 4 and 16
    xi = copy.deepcopy(optimizer)._noise(b)
    step_on(optimizer, [None, [0.0]])
    D = 1 / (1e-5 + math.sqrt(10.0))
    torch.testing.assert_close(b.data, math.sqrt(2 * 0.1 * D) * xi, rtol=1e-10, atol=0.0)


# -- the stationary law, by the step's own matrices --------------------------------------------

CURVATURE = torch.tensor([0.5, 2.0, 8.0], dtype=torch.float64)

V = torch.tensor([4.0, 1.0, 0.5], dtype=torch.float64)  # what PSGLD has learnt


def affine_step(kind, h, T, N, precision):
    """A and B of state' = A state + B xi on the Gaussian: curvature from the data and the prior."""

    def step(theta, v, temperature):
        w = leaf(theta)
        own = {"freeze_after": 0} if kind is st.PSGLD else OWN[kind]
        optimizer = kind(
            [w], step_size=h, num_data=N, temperature=temperature, prior_precision=precision,
            seed=1, check_loss=False, **own,
        )  # fmt: skip
        if kind is st.PSGLD:
            optimizer.state[w].update(v=V * (1 - 0.99**7), count=7)
        if kind is st.SGHMC:
            optimizer.state[w]["velocity"] = v.clone()
        xi = copy.deepcopy(optimizer)._noise(w)
        ((CURVATURE - precision) / (2 * N) * w**2).sum().backward()
        optimizer.step()
        out = [w.detach()] + ([optimizer.state[w]["velocity"]] if kind is st.SGHMC else [])
        return torch.cat(out), xi

    d, zero = 3, torch.zeros(3, dtype=torch.float64)
    eye = torch.eye(d, dtype=torch.float64)
    starts = [(e, zero) for e in eye] + ([(zero, e) for e in eye] if kind is st.SGHMC else [])
    A = torch.stack([step(*start, 0.0)[0] for start in starts], 1)
    moved, xi = step(zero, zero, T)
    B = torch.cat([torch.diag(part / xi) for part in moved.split(d)])
    return A.numpy(), B.numpy()


@pytest.mark.parametrize("T", [0.25, 1.0])
@each
def test_stationary_variance_is_the_closed_form(kind, T):
    h, lam = 0.02, CURVATURE.numpy()
    A, B = affine_step(kind, h, T, N=50, precision=0.3)
    S, term = np.zeros_like(A), B @ B.T
    for _ in range(20000):
        S = A @ S @ A.T + term
    D = 1 / (1e-5 + np.sqrt(V.numpy())) if kind is st.PSGLD else np.ones(3)
    exact = (2 * h * T * D) / (1 - (1 - h * D * lam) ** 2)
    if kind is st.SGHMC:
        exact = np.diag(sgld.testing.stationary_covariance(JAX[kind], lam, h, temperature=T))
    # JAX's law of the momentum sampler is in single precision outside of x64
    np.testing.assert_allclose(np.diag(S)[:3], exact, rtol=1e-5 if kind is st.SGHMC else 1e-9)
    off = S[:3, :3] - np.diag(np.diag(S)[:3])
    assert np.abs(off).max() < 1e-12
    if kind is not st.SGHMC:
        np.testing.assert_allclose(np.diag(S)[:3], T / lam, rtol=0.2)
