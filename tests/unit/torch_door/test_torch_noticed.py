"""What the PyTorch optimisers notice and say: wrong guesses, typed, and the one sentence of each."""

import warnings

import numpy as np
import pytest

from sgld.errors import RunError, SGLDWarning, UsageError

torch = pytest.importorskip("torch")

from torch_parts import F, each, leaf  # noqa: E402

import sgld.torch as st  # noqa: E402

ROWS = 200
GENERATOR = torch.Generator().manual_seed(3)
X = torch.randn(ROWS, 5, generator=GENERATOR)
Y = torch.randint(0, 4, (ROWS,), generator=GENERATOR)
REAL = 30 * X[:, :1] + 100 + torch.randn(ROWS, 1, generator=GENERATOR)


def net(*inner, outputs=4):
    torch.manual_seed(0)
    first, last = torch.nn.Linear(5, 8), torch.nn.Linear(8, outputs)
    return torch.nn.Sequential(first, torch.nn.Tanh(), *inner, last)


def mean(f, y):
    return F.cross_entropy(f, y)


def batches(size=64, targets=Y, seed=0):
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(seed))
    return [(X[rows], targets[rows]) for rows in order.split(size)]


def trained(
    model=None, loss=mean, *, step_size=1e-4, num_data=ROWS, passes=4, size=64, targets=Y,
    kind=st.SGLD, around=lambda optimizer, loader: loader, **numbers,
):  # fmt: skip
    """A training loop as users write it: the optimiser after it."""
    model = net() if model is None else model
    optimizer = kind(model.parameters(), step_size=step_size, num_data=num_data, **numbers)
    for seed in range(passes):
        for rows, y in around(optimizer, batches(size, targets, seed)):
            optimizer.zero_grad()
            loss(model(rows), y).backward()
            optimizer.step()
    return optimizer


def said(run):
    """The warnings of a run, each as one sentence; none of another kind."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    assert {w.category for w in caught} <= {SGLDWarning}
    assert {w.filename for w in caught} <= {__file__}  # the user's line, not torch's
    return [str(w.message) for w in caught]


# -- names of other libraries ------------------------------------------------------------------

NAMES = {
    "lr": (
        st.SGLD, {"lr": 0.1},
        r"SGLD takes step_size, not lr. Got lr=0.1; .* lr / num_data = 0.001\.",
    ),
    "lr beside step_size": (
        st.SGLD, {"lr": 0.1, "step_size": 0.1}, "SGLD takes step_size, not lr",
    ),
    "weight_decay": (
        st.SGLD, {"step_size": 0.1, "weight_decay": 1e-2},
        r"prior_precision, not weight_decay. Got .*weight_decay \* num_data = 1, and each weight is N",
    ),
    "momentum": (
        st.SGLD, {"step_size": 0.1, "momentum": 0.9},
        r"SGLD has no momentum. Got momentum=0.9; use sgld.torch.SGHMC, .* 1 - momentum = 0.1\.",
    ),
    "momentum of PSGLD": (st.PSGLD, {"step_size": 0.1, "momentum": 0.9}, "PSGLD has no momentum"),
    "momentum of SGHMC": (
        st.SGHMC, {"step_size": 0.1, "momentum": 0.9},
        r"SGHMC takes friction, not momentum. Got momentum=0.9; friction = 1 - momentum = 0.1\.",
    ),
    "alpha": (st.PSGLD, {"step_size": 0.1, "alpha": 0.99}, "PSGLD takes decay, not alpha"),
    "eps": (st.PSGLD, {"step_size": 0.1, "eps": 1e-8}, "PSGLD takes epsilon, not eps"),
    "not a number": (st.SGLD, {"step_size": 0.1, "momentum": None}, r"friction = 1 - momentum\."),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_what_other_libraries_call_it(name):
    kind, numbers, sentence = NAMES[name]
    with pytest.raises(UsageError, match=sentence):
        kind(net().parameters(), num_data=100, **numbers)


def test_a_group_is_answered_as_well():
    groups = [{"params": net().parameters(), "weight_decay": 1e-2}]
    with pytest.raises(UsageError, match=r"group of SGLD takes prior_precision, .* num_data = 1,"):
        st.SGLD(groups, step_size=0.1, num_data=100)


# -- a loss multiplied by num_data -------------------------------------------------------------

MULTIPLIED = {
    "mean": lambda f, y: ROWS * F.cross_entropy(f, y),
    "sum": lambda f, y: ROWS / len(y) * F.cross_entropy(f, y, reduction="sum"),
    "rows": lambda f, y: (ROWS * F.cross_entropy(f, y, reduction="none")).mean(),
    "by hand": lambda f, y: -ROWS * f.log_softmax(1)[torch.arange(len(y)), y].mean(),
    "and a penalty": lambda f, y: ROWS * F.cross_entropy(f, y) + (f**2).mean(),
    "logistic": lambda f, y: (
        ROWS * F.binary_cross_entropy_with_logits(f[:, 0], (y > 1).float())
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MULTIPLIED)
def test_a_loss_times_num_data_is_refused(name):
    model = net()
    before = model[0].weight.detach().clone()
    with pytest.raises(UsageError, match=r"MEAN .* looks like that mean times num_data = 200"):
        trained(model, MULTIPLIED[name])
    assert torch.equal(before, model[0].weight)
    trained(model, MULTIPLIED[name], check_loss=False, step_size=1e-9, passes=1)


@pytest.mark.parametrize("factor", [0.5, 3.0, 50 * ROWS])
def test_another_factor_is_its_users(factor):
    trained(loss=lambda f, y: factor * mean(f, y), step_size=1e-8, passes=1)


def test_the_factor_of_a_scaler_is_taken_out_by_it():
    model = net()
    optimizer = st.SGLD(model.parameters(), step_size=1e-5, num_data=ROWS)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)  # close to num_data
    for rows, y in batches():
        optimizer.zero_grad()
        scaler.scale(mean(model(rows), y)).backward()
        scaler.step(optimizer)
        scaler.update()


# -- divergence --------------------------------------------------------------------------------


@each
def test_a_learning_rate_given_as_step_size_is_noticed(kind):
    """The first that users try is step_size=0.1."""
    (found,) = said(lambda: diverged(kind))
    first = f"{kind.__name__}: the mean loss rose from 1."
    assert found.startswith(first) and "the run diverges" in found
    assert "step_size = 0.1 is a learning rate of 20 for the mean loss; take a tenth" in found


@pytest.mark.parametrize("factor", [1, ROWS])
def test_where_a_regression_diverges_a_factor_num_data_is_thought_of(factor):
    """No number of classes tells that a squared error was multiplied: what it does, tells."""

    def loss(f, y):
        return factor * F.mse_loss(f, y) if factor > 1 else F.mse_loss(f, y)

    with warnings.catch_warnings(), pytest.raises(RunError) as caught:
        warnings.simplefilter("ignore", SGLDWarning)
        trained(net(outputs=1), loss, step_size=1.0, targets=REAL, passes=20)
    assert ("leave a factor num_data out of the loss" in str(caught.value)) == (factor > 1)


def diverged(kind):
    try:
        trained(kind=kind, step_size=0.1, passes=12)
    except RunError as error:  # PSGLD's and SGHMC's weights may leave float32
        assert "has diverged" in str(error)


def test_a_loss_of_nan_ends_the_run():
    torn = X.clone()
    torn[70] = np.nan
    model = net()
    optimizer = st.SGLD(model.parameters(), step_size=1e-6, num_data=ROWS)
    with pytest.raises(RunError, match=r"SGLD has diverged: the loss is nan between steps 1 and 8"):
        for rows in 9 * list(torch.arange(ROWS).split(64)):
            optimizer.zero_grad()
            mean(model(torn[rows]), Y[rows]).backward()
            optimizer.step()


@each
@pytest.mark.parametrize("size", [1, 16, ROWS])
def test_a_run_that_goes_well_is_silent(kind, size):
    assert said(lambda: trained(kind=kind, size=size, passes=5, prior_precision=1.0)) == []


def test_outcomes_in_units_of_their_own_are_silent():
    def half(f, y):
        return 0.5 * ((f - y) ** 2).sum(1).mean()

    for size in (1, 16):
        run = lambda size=size: trained(  # noqa: E731
            net(outputs=1), half, step_size=1e-6, size=size, targets=REAL
        )
        assert said(run) == []


# -- rows of a pass ----------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [len(range(0, ROWS, 16)) + 3, 10 * ROWS])
def test_num_data_is_held_against_the_rows_of_a_pass(wrong):
    (found,) = said(lambda: trained(num_data=wrong, size=16, step_size=1e-6))
    assert f"num_data must be the number of rows of all the data. Got {wrong}" in found
    assert "where a pass has 200 rows" in found and "give num_data=200" in found


def test_batches_of_one_size_tell_nothing():
    assert said(lambda: trained(num_data=10 * ROWS, size=50, step_size=1e-6)) == []


@pytest.mark.parametrize(
    "sizes",
    [
        [5 + n * 7 % 11 for n in range(30)],
        5 * [10, 4, 8, 6, 5],  # 10 + 4 and 8 + 6 are no passes
        5 * [6, 10, 4, 10],
    ],
)
def test_irregular_batches_tell_nothing(sizes):
    model = net()
    optimizer = st.SGLD(model.parameters(), step_size=1e-6, num_data=10 * ROWS)

    def run():
        for size in sizes:
            optimizer.zero_grad()
            mean(model(X[:size]), Y[:size]).backward()
            optimizer.step()

    assert said(run) == []


def test_rows_with_weights_are_left_to_batches():
    """Those that are in every batch come again and again in a pass."""
    rows = st.Batches(ROWS, 16, always_in=range(9))  # 11 batches of 25 rows and one of 24
    model = net()
    optimizer = st.SGLD(model.parameters(), step_size=1e-6, num_data=ROWS)

    def run(around=lambda loader: loader):
        for _ in range(4):
            for chosen, weight in around(rows):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(X[chosen]), Y[chosen], reduction="none")
                (weight * loss).mean().backward()
                optimizer.step()

    assert said(run) == []
    lines = []
    assert said(lambda: run(lambda loader: optimizer.one_pass(loader, report=lines.append))) == []
    assert len(lines) == 4


# -- layers whose output is not the row's ------------------------------------------------------


def test_batch_normalisation_is_said_at_the_first_step():
    found = said(lambda: trained(net(torch.nn.BatchNorm1d(8))))
    assert len(found) == 1 and "batch normalisation in training mode" in found[0]
    assert "GroupNorm or LayerNorm" in found[0]
    assert said(lambda: trained(net(torch.nn.BatchNorm1d(8)).eval())) == []


@pytest.mark.parametrize("layer", [torch.nn.Dropout(0.2), torch.nn.AlphaDropout(0.2)])
def test_dropout_is_said_when_a_draw_is_kept(layer):
    model = net(layer)
    ensemble = st.Ensemble(model)
    optimizer = trained(model)
    found = said(lambda: [ensemble.collect(optimizer) for _ in range(3)])
    assert len(found) == 1
    assert f"dropout was in training mode (the {type(layer).__name__} at '2')" in found[0]
    assert "model.eval()" in found[0] and "p=0" in found[0]


def test_dropout_that_is_off_or_not_ours_is_not_said():
    for model, kind in (
        (net(torch.nn.Dropout(0.2)).eval(), None),
        (net(torch.nn.Dropout(0.0)), None),
        (net(torch.nn.Dropout(0.2)), torch.optim.Adam),  # a deep ensemble
    ):
        optimizer = trained(model, passes=1) if kind is None else kind(model.parameters())
        assert said(lambda m=model, o=optimizer: st.Ensemble(m).collect(o)) == []


def test_dropout_in_the_graph_is_said_at_the_first_step_and_not_again():
    """Where torch has an operation of that name, as on other devices."""
    model = net()

    def dropping(f, y):
        return mean(torch.native_dropout(f, 0.2, True)[0], y)

    ensemble, kept = st.Ensemble(model), []
    found = said(lambda: kept.append(trained(model, dropping)))
    assert len(found) == 1 and "dropout was in training mode (NativeDropoutBackward0)" in found[0]
    model.add_module("unused", torch.nn.Dropout(0.2))
    assert said(lambda: ensemble.collect(kept[0])) == []


# -- one line a pass ---------------------------------------------------------------------------


@each
@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_the_line_of_a_pass_has_the_laws_numbers(kind, temperature):
    """Gradients with noise of a known sd: the sds of both noises, and the temperature they make."""
    h, N, sd, d, alpha = 1e-6, 100, 0.3, 2000, 0.1
    own = {"friction": alpha} if kind is st.SGHMC else {}
    w = leaf(torch.zeros(d))
    optimizer = kind([w], step_size=h, num_data=N, temperature=temperature, **own)
    noise, lines = np.random.default_rng(0).normal(0, sd, (60, d)), []
    for row in optimizer.one_pass(noise, report=lines.append):
        w.grad = torch.as_tensor(row)
        optimizer.step()
    # PSGLD's metric is 1 / sd of its gradients, once it has seen some
    D = 1 / sd if kind is st.PSGLD else 1.0
    share = alpha if kind is st.SGHMC else 1.0
    injected, gradient = (2 * share * h * temperature * D) ** 0.5, h * N * D * sd
    total = (injected**2 + gradient**2) / (2 * share * h * D)
    (line,) = lines
    words = line.replace(",", "").replace(";", "").split()
    found = [
        float(words[words.index(name) + 1]) for name in ("injected", "gradient", "temperature")
    ]
    np.testing.assert_allclose(found, [injected, gradient, total], rtol=0.05)
    assert line.startswith("pass 1: a step's noise")  # no backward(), no loss


def test_the_line_has_the_loss_and_the_number_of_the_pass(capsys):
    optimizer = trained(around=lambda optimizer, loader: optimizer.one_pass(loader), passes=3)
    lines = capsys.readouterr().out.splitlines()
    assert [line[:15] for line in lines] == [f"pass {n}: loss 1." for n in (1, 2, 3)]
    assert all("; a step's noise in a weight: injected 0.0141, gradient" in line for line in lines)
    for _ in optimizer.one_pass(batches()):
        break  # left early: no line
    assert capsys.readouterr().out == "" and optimizer._meter is None


def test_one_pass_counts_rows_where_all_batches_have_one_size():
    def run():
        around = lambda o, loader: o.one_pass(loader, report=lambda line: None)  # noqa: E731
        trained(num_data=10 * ROWS, size=50, step_size=1e-6, passes=1, around=around)

    (found,) = said(run)
    assert "Got 2000, where a pass has 200 rows: each would count 10 times" in found


def test_a_loss_of_the_opposite_sign():
    """Its chains go away to where rows are least probable, for as long as they are let."""
    flipped = lambda outputs, target: -torch.nn.functional.cross_entropy(outputs, target)  # noqa: E731
    model = torch.nn.Linear(3, 3)
    x, y = torch.randn(40, 3), torch.arange(40) % 3
    with pytest.raises(UsageError, match="it has the opposite sign"):
        st.sample(model, flipped, (x, y), prior_sd=1.0, num_draws=4, step_size=1e-3, progress=False)
    losses = torch.nn.functional.cross_entropy
    for right in (
        lambda outputs, target: 0.5 * losses(outputs, target),
        lambda outputs, target: losses(-outputs, target),  # distances, say
        lambda outputs, target: losses(outputs, target, reduction="none") - 2.0,
        lambda outputs, target: -torch.softmax(outputs, 1).gather(1, target[:, None])[:, 0],
    ):
        st.sample(model, right, (x, y), prior_sd=1.0, num_draws=4, step_size=1e-3, burn_in=0, thin=1, progress=False)  # fmt: skip
