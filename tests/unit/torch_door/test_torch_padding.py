"""An embedding's row of padding is no weight: training leaves it as it is, and so does sampling."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import sgld.torch as st  # noqa: E402
from sgld.torch.likelihood import checked  # noqa: E402
from sgld.torch.rows import read_rows  # noqa: E402
from sgld.torch.target import (  # noqa: E402
    Target,
    Weights,
    prior_of,
)

SD = 0.5
HELD = 0.7  # of the row of padding: a module that was trained may have any


class Effects(torch.nn.Module):
    """An effect of each of four categories, of which the third is padding, looked up twice."""

    def __init__(self, bag=False):
        super().__init__()
        kind = torch.nn.EmbeddingBag if bag else torch.nn.Embedding
        more = {"mode": "sum"} if bag else {}
        self.effects = kind(4, 1, padding_idx=2, **more)
        with torch.no_grad():
            self.effects.weight[2] = HELD

    def forward(self, c):
        return self.effects(c[:, None]).reshape(len(c))


def squares(outputs, target):
    return 0.5 * ((outputs - target) / SD) ** 2


def rows(bag=False):
    c = torch.arange(80) % 4
    if bag:  # whose padding counts nothing in its sum
        c = c[c != 2]
    noise = torch.randn(len(c), generator=torch.Generator().manual_seed(1))
    return c, torch.tensor([0.0, 1.0, HELD, 2.0])[c] + SD * noise


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of torch's, under vmap
@pytest.mark.parametrize("bag", [False, True])
def test_the_gradient_is_that_of_the_density(bag):
    model, data = Effects(bag).double(), rows(bag)
    data = (data[0], data[1].double())
    weights = Weights.of(model)
    known = read_rows(data, weights.device, 0)
    target = Target(checked(model, squares, known), known, weights, prior_of(None, 1.0, None, weights))  # fmt: skip
    z = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    batch, step = known.first(known.num_data), 1e-5 * torch.eye(4, dtype=torch.float64)
    ahead, behind = (
        torch.stack([target.value(z + s * e, batch) for e in step], 1) for s in (1, -1)
    )
    torch.testing.assert_close(
        target.gradient(z, batch, 1.0), (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-5
    )
    torch.testing.assert_close(
        weights.named(z)["effects.weight"][:, 2, 0], torch.full((2,), HELD).double()
    )


def test_others_have_their_law_and_it_is_what_it_was_in_every_draw():
    model, (c, y) = Effects(), rows()
    ensemble = st.sample(
        model, squares, (c, y), prior_sd=1.0, step_size=0.01, num_draws=600, burn_in=100, thin=4,
        progress=False,
    )  # fmt: skip
    drawn = torch.stack([state["effects.weight"][:, 0] for state in ensemble.states]).numpy()
    assert (drawn[:, 2] == np.float32(HELD)).all()
    assert ensemble.verdict.word in ("trusted", "unknown")  # within how much, of a temperature
    for k in (0, 1, 3):
        own = y[c == k].double().numpy()
        variance = 1 / (1 + len(own) / SD**2)
        assert abs(drawn[:, k].mean() - variance * own.sum() / SD**2) < 0.15 * variance**0.5
        assert drawn[:, k].std() == pytest.approx(variance**0.5, rel=0.1)
    found = ensemble.predict_values(torch.arange(4))
    assert float(found.sd[2]) == 0.0 and float(found.mean[2]) == pytest.approx(HELD)


def test_a_run_that_goes_on_has_the_row_that_it_began_with(tmp_path):
    model, data, given = Effects(), rows(), {"step_size": 0.01, "burn_in": 5, "thin": 1}
    st.sample(
        model,
        squares,
        data,
        prior_sd=1.0,
        num_draws=20,
        progress=False,
        path=tmp_path / "run",
        **given,
    )
    other = Effects()
    with torch.no_grad():
        other.effects.weight[2] = 0.0
    back = st.resume(tmp_path / "run", other, squares, data, progress=False)
    assert all(state["effects.weight"][2] == np.float32(HELD) for state in back.states)
    weights = Weights.of(other).starting(torch.full((4,), HELD))
    assert float(weights.named(torch.zeros(1, 4))["effects.weight"][0, 2]) == np.float32(HELD)


def test_the_seconds_of_what_was_done_add_up():
    model, data = Effects(), rows()
    ensemble = st.sample(
        model, squares, data, prior_sd=1.0, step_size=0.01, num_draws=20, burn_in=5, thin=1,
        progress=False,
    )  # fmt: skip
    took = ensemble.info["took"]
    assert [*took] == ["data", "tuning", "sampling", "verdict"] and min(took.values()) >= 0
    assert sum(took.values()) == pytest.approx(ensemble.info["seconds"])
