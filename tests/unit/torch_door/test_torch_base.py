"""The base of the PyTorch optimisers: importing, resume, schedulers and groups, wrong use."""

import inspect
import io
import math
import pickle
import subprocess
import sys

import pytest

from sgld.errors import UsageError

torch = pytest.importorskip("torch")

from torch_parts import F, each, leaf, step_on  # noqa: E402

import sgld.torch as st  # noqa: E402

# -- importing ---------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("args", "numbers", "said"),
    [
        (
            (),
            {"lr": 1e-3, "num_data": 10},
            r"takes step_size, not lr\. .* step_size = lr / num_data",
        ),
        ((), {"step_size": 0.1}, "needs num_data: .* the number of rows in all the data"),
        ((), {"num_data": 10}, "needs step_size: "),
        ((), {"step_size": 0.1, "num_dat": 10}, "Got 'num_dat'. Did you mean 'num_data'"),
        ((0.1,), {"num_data": 10}, r"numbers by name, such as step_size=\. Got 0\.1"),
    ],
)
@each
def test_a_wrong_call_of_a_constructor_is_one_sentence(kind, args, numbers, said):
    with pytest.raises(UsageError, match=f"^{kind.__name__} .*{said}"):
        kind([leaf([1.0])], *args, **numbers)
    assert "num_data: 'int', temperature" in str(inspect.signature(kind))


@each
def test_no_gradient_anywhere(kind):
    optimizer = kind([leaf([1.0])], step_size=0.1, num_data=10)
    with pytest.raises(UsageError, match=r"call loss.backward\(\) before step"):
        optimizer.step()
    with pytest.raises(UsageError, match=r"step\(loss=loss\)"):
        optimizer.step(torch.tensor(1.0))
