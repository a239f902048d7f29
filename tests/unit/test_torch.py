"""The PyTorch optimisers: JAX's iterates, torch's own at T = 0, exact laws, resume, the loss."""

import copy
import io
import math
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.errors import DataError, UsageError

torch = pytest.importorskip("torch")

torch.set_num_threads(1)  # small tensors: threads would only wait for each other

import sgld.torch as st  # noqa: E402
from sgld.torch import loss as loss_module  # noqa: E402

F = torch.nn.functional
KINDS = [st.SGLD, st.PSGLD, st.SGHMC]
each = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def leaf(values, dtype=torch.float64):
    return torch.nn.Parameter(torch.as_tensor(values, dtype=dtype).clone())


def step_on(optimizer, grads):
    """A step with gradients written by hand, one per parameter."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for p, g in zip(params, grads, strict=True):
        p.grad = None if g is None else torch.as_tensor(g, dtype=p.dtype)
    optimizer.step()


# -- importing -------------------------------------------------------------------------------


def run_python(text):
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)


def test_sgld_does_not_import_torch():
    found = run_python("import sgld, sys; sgld.SGLD; sys.exit('torch' in sys.modules)")
    assert found.returncode == 0, found.stderr


def test_without_torch_the_command_is_named():
    found = run_python(
        "import sys; sys.modules['torch'] = None\n"
        "import sgld.errors\n"
        "try:\n    import sgld.torch\n"
        "except sgld.errors.MissingExtra as error:\n    print(error)\n"
    )
    assert "pip install 'sgld[torch]'" in found.stdout, found.stderr


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
    # g / sqrt(g^2): rounding is magnified where g is near 0
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-9)


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


# -- resume ------------------------------------------------------------------------------------


def session(kind, dtype):
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(4, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3)).to(dtype)  # fmt: skip
    groups = [
        {"params": net[0].parameters(), "step_size": 1e-5, "prior_precision": 4.0},
        {"params": net[2].parameters(), "temperature": 0.5},
    ]
    optimizer = kind(groups, step_size=1e-4, num_data=64, seed=9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    return net, optimizer, scheduler


def advance(net, optimizer, scheduler, first, last):
    for k in range(first, last):
        generator = torch.Generator().manual_seed(k)
        X = torch.randn(8, 4, generator=generator).to(next(net.parameters()).dtype)
        y = torch.randint(0, 3, (8,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
        scheduler.step()


def bits(net):
    return [p.detach().clone() for p in net.parameters()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@each
def test_a_run_continues_bit_for_bit(kind, dtype):
    whole = session(kind, dtype)
    advance(*whole, 0, 30)
    part = session(kind, dtype)
    advance(*part, 0, 13)
    file = io.BytesIO()
    torch.save([thing.state_dict() for thing in part], file)
    file.seek(0)
    fresh = session(kind, dtype)
    torch.rand(100)  # the global generator is somewhere else
    for thing, state in zip(fresh, torch.load(file, weights_only=True), strict=True):
        thing.load_state_dict(state)
    advance(*fresh, 13, 30)
    for a, b in zip(bits(whole[0]), bits(fresh[0]), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(bits(whole[0])[0], bits(part[0])[0])


@each
def test_a_pickled_optimiser_continues_bit_for_bit(kind):
    net, optimizer, scheduler = session(kind, torch.float32)
    advance(net, optimizer, scheduler, 0, 5)
    twin_net, twin = pickle.loads(pickle.dumps((net, optimizer)))
    for model, one in ((net, optimizer), (twin_net, twin)):
        one.zero_grad()
        model(torch.ones(8, 4)).mean().backward()
        one.step()
    for a, b in zip(bits(net), bits(twin_net), strict=True):
        assert torch.equal(a, b)


def test_states_of_others_are_refused():
    w = leaf([1.0])
    theirs = torch.optim.SGD([w], lr=0.1).state_dict()
    ours = st.SGLD([w], step_size=0.1, num_data=1).state_dict()
    for state, kind in ((theirs, st.SGLD), (ours, st.SGHMC)):
        with pytest.raises(UsageError, match="state_dict must be one of"):
            kind([w], step_size=0.1, num_data=1).load_state_dict(state)


# -- schedulers, groups, frozen parameters, dtypes ---------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10, eta_min=1e-4),
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda k: (1 + k) ** -0.55),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 4e-3, total_steps=20, cycle_momentum=False),
        lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0),
    ],
)  # fmt: skip
def test_schedulers_scale_the_step_size(make):
    w = leaf([1.0])
    optimizer = st.SGLD([w], step_size=2e-3, num_data=10, temperature=0.0)
    scheduler = make(optimizer)
    steps = []
    for _ in range(8):
        h, before = optimizer.param_groups[0]["lr"], w.item()
        step_on(optimizer, [[3.0]])
        assert w.item() == pytest.approx(before - h * 10 * 3.0, rel=1e-12)
        plateau = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
        scheduler.step(1.0) if plateau else scheduler.step()
        steps.append(h)
    assert len(set(steps)) > 2


def test_groups_have_their_own_numbers():
    a, b = leaf([1.0, 1.0]), leaf([1.0, 1.0])
    optimizer = st.SGLD(
        [{"params": [a], "step_size": 1e-3, "prior_precision": 5.0}, {"params": b, "num_data": 20}],
        step_size=1e-2, num_data=10, temperature=0.0,
    )  # fmt: skip
    step_on(optimizer, [[1.0, 2.0]] * 2)
    torch.testing.assert_close(a.data, 1 - 1e-3 * (10 * torch.tensor([1.0, 2.0]).double() + 5.0))
    torch.testing.assert_close(b.data, 1 - 1e-2 * 20 * torch.tensor([1.0, 2.0]).double())
    assert [g["lr"] for g in optimizer.param_groups] == [1e-3, 1e-2]


@each
def test_frozen_parameters_are_left_alone(kind):
    moving, without, frozen = leaf([1.0, 2.0]), leaf([3.0]), leaf([4.0])
    optimizer = kind([moving, without, frozen], step_size=1e-3, num_data=10)
    step_on(optimizer, [[1.0, 1.0], None, [1.0]])
    frozen.requires_grad_(False)
    before = [p.detach().clone() for p in (moving, without, frozen)]
    step_on(optimizer, [[1.0, 1.0], None, [1.0]])
    assert not torch.equal(before[0], moving)
    assert torch.equal(before[1], without) and torch.equal(before[2], frozen)
    assert without not in optimizer.state or not optimizer.state[without]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@each
def test_dtypes_noise_and_the_global_generator(kind, dtype):
    n, h, T = 40_000, 1e-2, 0.5
    w = leaf(torch.zeros(n), dtype)
    own = {"friction": 0.5} if kind is st.SGHMC else {}
    optimizer = kind([w], step_size=h, num_data=10, temperature=T, **own)
    torch.manual_seed(4)
    before = torch.get_rng_state()
    step_on(optimizer, [torch.zeros(n)])
    assert torch.equal(before, torch.get_rng_state())
    assert w.dtype == dtype
    metric = 1 / (1 + 1e-5) if kind is st.PSGLD else 1.0
    sd = math.sqrt(2 * h * T * metric * (0.5 if kind is st.SGHMC else 1.0))
    found = w.detach().double()
    # five standard errors
    assert float(found.std()) == pytest.approx(sd, rel=5 / math.sqrt(2 * n) + 1e-3)
    assert abs(float(found.mean())) < 5 * sd / math.sqrt(n)
    other = leaf(torch.zeros(n), dtype)
    step_on(kind([other], step_size=h, num_data=10, temperature=T, seed=1, **own), [torch.zeros(n)])
    corr = float(torch.corrcoef(torch.stack([found, other.detach().double()]))[0, 1])
    assert abs(corr) < 5 / math.sqrt(n)


def test_half_precision_does_not_overflow():
    w = leaf([1.0], torch.float16)
    optimizer = st.SGLD([w], step_size=1e-8, num_data=10**6, temperature=0.0)
    step_on(optimizer, [[10.0]])  # num_data x gradient = 1e7 is inf in float16
    assert w.item() == pytest.approx(0.9, abs=1e-3)


# -- the loss is a mean ------------------------------------------------------------------------

NET = torch.nn.Linear(3, 2)
X, Y, REAL = torch.randn(6, 3), torch.tensor([0, 1, 1, 0, 1, 0]), torch.randn(6, 2)
SUMS = {
    "cross entropy": lambda f: F.cross_entropy(f, Y, reduction="sum"),
    "mse": lambda f: F.mse_loss(f, REAL, reduction="sum"),
    "bce": lambda f: F.binary_cross_entropy_with_logits(f, REAL.sigmoid(), reduction="sum"),
    "log_prob": lambda f: -torch.distributions.Normal(f, 1.0).log_prob(REAL).sum(),
    "rows of sums": lambda f: ((f - REAL) ** 2).sum(1).sum(),
    "mean of outputs": lambda f: ((f - REAL) ** 2).mean(1).sum(),
    "last mean": lambda f: ((f - REAL) ** 2).mean(-1).sum(),
    "two sums": lambda f: F.cross_entropy(f, Y, reduction="sum") + (NET.weight**2).sum(),
}
MEANS = {
    "cross entropy": lambda f: F.cross_entropy(f, Y),
    "nll": lambda f: F.nll_loss(f.log_softmax(1), Y),
    "mse": lambda f: F.mse_loss(f, REAL),
    "log_prob": lambda f: -torch.distributions.Normal(f, 1.0).log_prob(REAL).sum(1).mean(),
    "divided": lambda f: F.cross_entropy(f, Y, reduction="sum") / 6,
    "mean over rows, then sum": lambda f: ((f - REAL) ** 2).mean(0).sum(),
    "penalty": lambda f: F.cross_entropy(f, Y) + 0.1 * (NET.weight**2).sum(),
    "bare penalty": lambda f: F.cross_entropy(f, Y) + (NET.weight**2).sum(),
    "scaled": lambda f: 1024 * F.cross_entropy(f, Y),
    "smooth": lambda f: F.cross_entropy(f, Y, label_smoothing=0.1),
}


def backward_and_step(loss, how="plain", **kwargs):
    optimizer = st.SGLD(NET.parameters(), step_size=1e-9, num_data=100, **kwargs)
    optimizer.zero_grad()
    if how == "closure":

        def closure():
            value = loss(NET(X))
            value.backward()
            return value

        return optimizer.step(closure)
    value = loss(NET(X))
    value.backward()
    return optimizer.step(loss=value) if how == "loss" else optimizer.step()


@pytest.mark.parametrize("how", ["plain", "closure", "loss"])
@pytest.mark.parametrize("name", SUMS)
def test_a_sum_is_explained(name, how):
    before = NET.weight.detach().clone()
    with pytest.raises(UsageError, match=r"MEAN.* sum over 6 rows .*6 times too large.*reduction"):
        backward_and_step(SUMS[name], how)
    assert torch.equal(before, NET.weight)
    backward_and_step(SUMS[name], how, check_loss=False)
    assert not torch.equal(before, NET.weight)


@pytest.mark.parametrize("how", ["plain", "closure", "loss"])
@pytest.mark.parametrize("name", MEANS)
def test_a_mean_is_accepted(name, how):
    backward_and_step(MEANS[name], how)


def test_one_row_is_both():
    net = torch.nn.Linear(3, 2)
    optimizer = st.SGLD(net.parameters(), step_size=1e-9, num_data=100)
    F.cross_entropy(net(X[:1]), Y[:1], reduction="sum").backward()
    optimizer.step()


def test_after_a_refusal_the_next_pass_is_looked_at_and_then_never_again():
    net = torch.nn.Linear(3, 2)
    optimizer = st.SGLD(net.parameters(), step_size=1e-9, num_data=100)
    for loss in (SUMS["mse"], SUMS["mse"], MEANS["mse"]):
        optimizer.zero_grad()
        loss(net(X)).backward()
        if loss is MEANS["mse"]:
            optimizer.step()
        else:
            with pytest.raises(UsageError, match="sum over 6 rows"):
                optimizer.step()
    assert not net.weight._post_accumulate_grad_hooks
    SUMS["mse"](net(X)).backward()
    optimizer.step()


def test_more_rows_than_data():
    net = torch.nn.Linear(3, 2)
    optimizer = st.SGLD(net.parameters(), step_size=1e-9, num_data=5)
    F.cross_entropy(net(X), Y).backward()
    with pytest.raises(UsageError, match=r"num_data must be .* at least the batch's 6. Got 5"):
        optimizer.step()


def test_the_loss_is_found_from_another_thread_too():
    found = []

    def look(_):
        thread = threading.Thread(target=lambda: found.append(loss_module._root_of_backward()))
        thread.start()
        thread.join()

    w = leaf([1.0, 2.0])
    w.register_post_accumulate_grad_hook(look)
    loss = (w**2).mean()
    loss.backward()
    assert found[0] is loss


# -- wrong use ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step_size": -0.1}, "step_size must be positive and finite. Got -0.1."),
        ({"step_size": 0.0}, "step_size must be positive"),
        ({"num_data": 0}, "num_data must be positive"),
        ({"num_data": "ten"}, "num_data must be a positive number. Got 'ten'"),
        ({"temperature": -1.0}, "temperature must be zero or positive and finite. Got -1.0."),
        ({"prior_precision": math.nan}, "prior_precision must be zero or positive"),
        ({"seed": -1}, "seed must be a whole number"),
    ],
)
@each
def test_numbers_out_of_range(kind, change, message):
    with pytest.raises(UsageError, match=message):
        kind([leaf([1.0])], **{"step_size": 0.1, "num_data": 10, **change})


def test_wrong_parameters_and_groups():
    w = leaf([1.0])
    make = lambda params, **own: st.SGLD(params, step_size=0.1, num_data=10, **own)  # noqa: E731
    for params in ([w, w], [{"params": [w]}, {"params": [w]}]):
        with pytest.raises(UsageError, match="given twice"):
            make(params)
    with pytest.raises(UsageError, match=r"floating-point tensors. Got torch.complex64"):
        make([torch.zeros(2, dtype=torch.complex64, requires_grad=True)])
    with pytest.raises(UsageError, match=r"step_size = lr / num_data"):
        make([{"params": [w], "lr": 0.1}])
    with pytest.raises(UsageError, match="Did you mean 'temperature'"):
        make([{"params": [w], "temprature": 0.1}])
    with pytest.raises(UsageError, match=r"friction must be above 0 and below 1. Got 1.0"):
        st.SGHMC([w], step_size=0.1, num_data=1, friction=1.0)
    with pytest.raises(UsageError, match=r"noise_estimate must be below its friction 0.1. Got 0.2"):
        st.SGHMC([w], step_size=0.1, num_data=1, noise_estimate=0.2)
    with pytest.raises(UsageError, match=r"decay must lie in \[0, 1\)"):
        st.PSGLD([w], step_size=0.1, num_data=1, decay=1.0)


@each
def test_no_gradient_anywhere(kind):
    optimizer = kind([leaf([1.0])], step_size=0.1, num_data=10)
    with pytest.raises(UsageError, match=r"call loss.backward\(\) before step"):
        optimizer.step()
    with pytest.raises(UsageError, match=r"step\(loss=loss\)"):
        optimizer.step(torch.tensor(1.0))


# -- Ensemble ----------------------------------------------------------------------------------


class Mixed(torch.nn.Module):
    """Several dtypes, a buffer, a name with a dot, dropout; a module and a weight with two names."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
        self.tied = self.net[0]
        self.other = torch.nn.Linear(3, 3)
        self.other.weight = self.tied.weight
        self.narrow = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
        self.register_buffer("file", torch.arange(3))

    def forward(self, x):
        return self.other(self.tied(self.net(x))) * self.narrow.float() + self.file


def drawn(model, n=5, weights=(0.5, 1.0, 0.25, 2.0, 1.0)):
    ensemble = st.Ensemble(model)
    generator = torch.Generator().manual_seed(8)
    for k in range(n):
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape, generator=generator))
        ensemble.collect(weight=weights[k])
    return ensemble


def test_an_ensemble_is_saved_and_loaded(tmp_path):
    model = Mixed()
    ensemble = drawn(model)
    path = tmp_path / "ensemble"
    ensemble.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["ensemble"]
    loaded = st.Ensemble.load(path, Mixed())
    assert torch.equal(loaded.weights, ensemble.weights) and len(loaded) == 5
    for a, b in zip(loaded.states, ensemble.states, strict=True):
        assert list(a) == list(b)
        for name in a:
            assert a[name].dtype == b[name].dtype and torch.equal(a[name], b[name])
    x = torch.randn(4, 3)
    torch.testing.assert_close(loaded.outputs(x), ensemble.outputs(x, batch_size=3))
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    with pytest.raises(UsageError, match="give a model of the same architecture"):
        st.Ensemble.load(path, torch.nn.Linear(3, 3))


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


def test_pickles_and_other_files_are_refused(tmp_path):
    path = tmp_path / "file"
    about = np.frombuffer(b'{"format": "sgld.torch.Ensemble 1", "entries": []}', np.uint8)
    trap = np.array([Trap()], dtype=object)
    for about_entry, weights in ((about, trap), (trap, np.ones(1))):
        with path.open("wb") as file:
            np.savez(file, about=about_entry, weights=weights)
        with pytest.raises(DataError, match="not an ensemble"):
            st.Ensemble.load(path, torch.nn.Linear(1, 1))
    one_array = io.BytesIO()
    np.save(one_array, np.ones(3))
    for content in (pickle.dumps(Trap()), b"", b"PK\x03\x04 cut short", one_array.getvalue()):
        path.write_bytes(content)
        with pytest.raises(DataError, match="not an ensemble"):
            st.Ensemble.load(path, torch.nn.Linear(1, 1))
    torch.save(torch.nn.Linear(1, 1).state_dict(), path)
    with pytest.raises(DataError, match="not an ensemble"):
        st.Ensemble.load(path, torch.nn.Linear(1, 1))
    drawn(torch.nn.Linear(1, 1)).save(path)
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(DataError, match="not an ensemble"):
        st.Ensemble.load(path, torch.nn.Linear(1, 1))


def test_draws_are_copies_and_the_model_is_left_as_it_is():
    model = Mixed().train()
    ensemble = drawn(model)
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(0.5)  # the weights of no draw
    before = {k: v.clone() for k, v in model.state_dict().items()}
    modes = [m.training for m in model.modules()]
    x = torch.randn(7, 3)
    again = ensemble.outputs(x, batch_size=1)
    torch.testing.assert_close(ensemble.outputs(x), again)  # dropout is off
    assert modes == [m.training for m in model.modules()]
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not torch.equal(ensemble.draws_of("narrow")[0], ensemble.draws_of("narrow")[1])
    eager = Mixed().eval()
    eager.load_state_dict(ensemble.states[3])
    torch.testing.assert_close(ensemble.outputs(x)[3], eager(x).detach().double())


@pytest.mark.parametrize("outputs", [4, 1])
def test_entropies_add_up(outputs):
    ensemble = drawn(torch.nn.Linear(3, outputs))
    x = 3 * torch.randn(50, 3)
    found = ensemble.predict_classes(x, batch_size=7)
    logits, w = ensemble.outputs(x), ensemble.weights / ensemble.weights.sum()
    p = logits.softmax(-1)
    if outputs == 1:
        p = torch.cat([1 - logits.sigmoid(), logits.sigmoid()], -1)
    H = lambda q: -(q * q.log()).sum(-1)  # noqa: E731
    mean = torch.einsum("s,src->rc", w, p)
    torch.testing.assert_close(found.probabilities, mean)
    torch.testing.assert_close(found.aleatoric, torch.einsum("s,sr->r", w, H(p)))
    torch.testing.assert_close(found.entropy, H(mean))
    divergence = torch.einsum("s,src->r", w, p * (p.log() - mean.log()))
    torch.testing.assert_close(found.epistemic, divergence, rtol=1e-7, atol=1e-12)
    torch.testing.assert_close(found.aleatoric + found.epistemic, found.entropy)
    assert bool((found.epistemic > 0).all())


def test_values_are_those_of_the_mixture():
    ensemble = drawn(torch.nn.Linear(3, 1))
    x = torch.randn(6, 3)
    f = ensemble.outputs(x)[..., 0].numpy()
    w = (ensemble.weights / ensemble.weights.sum()).numpy()
    noise = np.array([0.3, 0.1, 0.7, 0.2, 0.5])
    found = ensemble.predict_values(x, interval=0.8, noise_sd=noise)
    mean = w @ f
    np.testing.assert_allclose(found.mean[:, 0], mean, rtol=1e-12)
    variance = w @ (f - mean) ** 2
    np.testing.assert_allclose(found.epistemic_sd[:, 0], np.sqrt(variance), rtol=1e-9)
    np.testing.assert_allclose(found.sd[:, 0], np.sqrt(variance + w @ noise**2), rtol=1e-9)
    from scipy.stats import norm

    for bound, q in ((found.lower, 0.1), (found.upper, 0.9)):
        mass = w @ norm.cdf(bound[:, 0].numpy(), f, noise[:, None])
        np.testing.assert_allclose(mass, q, atol=1e-10)
    bare = ensemble.predict_values(x, interval=0.8)
    for bound, q in ((bare.lower, 0.1), (bare.upper, 0.9)):
        at = bound[:, 0].numpy()
        assert (w @ (f <= at) >= q - 1e-9).all() and (w @ (f < at) < q).all()


def test_weights_are_the_steps_taken_from_the_draws():
    model = torch.nn.Linear(2, 1)
    groups = [{"params": [model.weight]}, {"params": [model.bias], "step_size": 1e-4}]
    optimizer = st.SGLD(groups, step_size=1e-3, num_data=10)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    ensemble = st.Ensemble(model)
    for _ in range(3):
        model(torch.ones(1, 2)).mean().backward()
        optimizer.step()
        scheduler.step()
        ensemble.collect(optimizer)
    np.testing.assert_allclose(ensemble.weights, [5e-4, 2.5e-4, 1.25e-4], rtol=1e-12)
    optimizer.param_groups[1]["lr"] *= 3
    with pytest.raises(UsageError, match="keep their proportion"):
        ensemble.collect(optimizer)


def batch_norm(**kwargs):
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3, **kwargs))


def test_running_statistics_are_refused():
    with pytest.raises(UsageError, match=r"1 \(BatchNorm1d\).*GroupNorm or LayerNorm.*eval\(\)"):
        st.Ensemble(batch_norm())
    with pytest.raises(UsageError, match="statistics of the batch"):
        st.Ensemble(batch_norm(track_running_stats=False).eval())
    model = batch_norm()
    model[1].eval()
    ensemble = st.Ensemble(model)
    ensemble.collect()
    with pytest.raises(UsageError, match="statistics of the batch"):
        ensemble.collect(model=batch_norm())
    model[1].train()
    model(torch.randn(8, 2))
    model[1].eval()
    with pytest.raises(UsageError, match="has changed since the Ensemble was made"):
        ensemble.collect()
    st.Ensemble(torch.nn.Sequential(torch.nn.GroupNorm(1, 2), torch.nn.InstanceNorm1d(2)))


def test_wrong_use_of_an_ensemble():
    model = torch.nn.Linear(2, 3)
    ensemble = st.Ensemble(model)
    with pytest.raises(UsageError, match=r"no draws yet; call collect\(\)"):
        ensemble.predict_classes(torch.zeros(1, 2))
    with pytest.raises(UsageError, match="same architecture"):
        ensemble.collect(model=torch.nn.Linear(2, 4))
    ensemble.collect(weight=0.0)
    with pytest.raises(UsageError, match="every draw has weight 0"):
        ensemble.predict_classes(torch.zeros(1, 2))
    with pytest.raises(UsageError, match="weight must be zero or positive"):
        ensemble.collect(weight=-1.0)
    with pytest.raises(UsageError, match="interval must be above 0 and below 1"):
        ensemble.predict_values(torch.zeros(1, 2), interval=90)
    with pytest.raises(UsageError, match="noise_sd must be zero or positive"):
        ensemble.collect(), ensemble.predict_values(torch.zeros(1, 2), noise_sd=-1.0)
    with torch.no_grad():
        model.weight[0, 0] = math.nan
    with pytest.raises(UsageError, match=r"nan or inf in 'weight'.*smaller step_size"):
        ensemble.collect()


def test_the_page_runs(tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "pytorch.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    state, names = torch.get_rng_state(), {}
    exec(compile(block, "pytorch.md", "exec"), names)
    torch.set_rng_state(state)
    assert len(names["ensemble"]) == 20
    found = names["found"].probabilities
    assert found[0, 1] > 0.95 and 0.25 < found[1, 1] < 0.75  # far from the boundary, and on it
