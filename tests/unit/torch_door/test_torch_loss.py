"""The loss given to the PyTorch optimisers is a mean, and a sum is explained."""

import threading

import pytest

from sgld.errors import UsageError

torch = pytest.importorskip("torch")

from torch_parts import F, leaf  # noqa: E402

import sgld.torch as st  # noqa: E402
from sgld.torch.loss_graph import root_of_backward  # noqa: E402

NET = torch.nn.Linear(3, 2)

X, Y, REAL = torch.randn(6, 3), torch.tensor([0, 1, 1, 0, 1, 0]), torch.randn(6, 2)

SMOOTH = torch.tensor([[1.0, -1.0], [0.0, 1.0], [1.0, 0.0]])


def penalty():
    return (NET.weight**2).sum()


def to_prior():
    return F.mse_loss(NET.weight, torch.ones(2, 3), reduction="sum")


class Own(torch.autograd.Function):
    """A mean that no node of torch's says."""

    @staticmethod
    def forward(ctx, f):
        ctx.save_for_backward(f)
        return f.square().mean()

    @staticmethod
    def backward(ctx, g):
        (f,) = ctx.saved_tensors
        return 2 * g * f / f.numel()


SUMS = {
    "cross entropy": lambda f: F.cross_entropy(f, Y, reduction="sum"),
    "mse": lambda f: F.mse_loss(f, REAL, reduction="sum"),
    "bce": lambda f: F.binary_cross_entropy_with_logits(f, REAL.sigmoid(), reduction="sum"),
    "log_prob": lambda f: -torch.distributions.Normal(f, 1.0).log_prob(REAL).sum(),
    "rows of sums": lambda f: ((f - REAL) ** 2).sum(1).sum(),
    "mean of outputs": lambda f: ((f - REAL) ** 2).mean(1).sum(),
    "last mean": lambda f: ((f - REAL) ** 2).mean(-1).sum(),
    "two sums": lambda f: F.cross_entropy(f, Y, reduction="sum") + (NET.weight**2).sum(),
    "scaled penalty": lambda f: F.cross_entropy(f, Y, reduction="sum") + 0.5 * penalty(),
    "mse, norm": lambda f: F.mse_loss(f.tanh(), REAL, reduction="sum") + 0.1 * NET.weight.norm(),
    "none, then sum": lambda f: F.cross_entropy(f, Y, reduction="none").sum() + penalty() / 2,
    "mean penalty": lambda f: F.cross_entropy(f, Y, reduction="sum") + (NET.weight**2).mean(),
    "beside a mean": lambda f: F.cross_entropy(f, Y, reduction="sum") + F.mse_loss(f, REAL),
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
    "loss as penalty": lambda f: F.cross_entropy(f, Y) + to_prior(),
    "large penalty": lambda f: F.cross_entropy(f, Y) + 20 + 5 * to_prior(),
    "divided, penalty": lambda f: F.cross_entropy(f, Y, reduction="sum") / 6 + penalty(),
    "divided, loss as penalty": lambda f: F.cross_entropy(f, Y, reduction="sum") / 6 + to_prior(),
    "divided, linear penalty": lambda f: ((f - REAL) ** 2).sum() / 6 + (SMOOTH @ NET.weight).sum(),
    "divided within": lambda f: ((f - REAL) ** 2 / 6).sum() + 0.5 * penalty(),
    "at fewer places": lambda f: (
        F.cross_entropy(f, Y) + F.mse_loss(f[:4], REAL[:4], reduction="sum")
    ),
    "of one's own": lambda f: Own.apply(f) + F.mse_loss(f, REAL, reduction="sum"),
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
    # one goes on, to follow the course of the loss
    assert sum(bool(p._post_accumulate_grad_hooks) for p in net.parameters()) == 1
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
        thread = threading.Thread(target=lambda: found.append(root_of_backward()))
        thread.start()
        thread.join()

    w = leaf([1.0, 2.0])
    w.register_post_accumulate_grad_hook(look)
    loss = (w**2).mean()
    loss.backward()
    assert found[0] is loss
