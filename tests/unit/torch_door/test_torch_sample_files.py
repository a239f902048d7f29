"""Run directories of `sgld.torch.sample`: stopped, gone on with, loaded, refused."""

import re

import numpy as np
import pytest

import sgld
from sgld.errors import RunError, UsageError
from sgld.results.storage import verify

torch = pytest.importorskip("torch")

from torch_parts import linear, squares  # noqa: E402

import sgld.torch as st  # noqa: E402


class Stopped(KeyboardInterrupt):
    """Ctrl-C."""


@pytest.fixture
def short_tuning(monkeypatch):
    monkeypatch.setattr("sgld.inference.tuning.network_rules.MIN_TRAINING_STEPS", 20)
    monkeypatch.setattr("sgld.inference.tuning.network_rules.STAGE_STEPS", 20)


def small(path=None, **given):
    model, data, *_ = linear(120)
    return st.sample(
        model, squares, data, prior_sd=1.0, batch_size=30, num_draws=200, burn_in=40, thin=2,
        path=path, progress=False, checkpoint_every=0, **given,
    )  # fmt: skip


def test_a_killed_run_goes_on_bit_for_bit(tmp_path, monkeypatch, short_tuning):
    whole = small()
    from sgld.torch.run_files import Files

    save, calls = Files.save, []

    def stops(self, chains, now):
        save(self, chains, now)
        calls.append(chains.record.count)
        if chains.record.count > 60:
            raise Stopped

    monkeypatch.setattr(Files, "save", stops)
    monkeypatch.setattr("sgld.torch.run_files.CHECKPOINT_RATIO", 0)  # every save is due
    monkeypatch.setattr("sgld.core.work.PIECE_SECONDS", 0.01)
    with pytest.raises(Stopped) as error:
        small(tmp_path / "run")
    monkeypatch.setattr(Files, "save", save)
    call = re.escape(f"resume it: sgld.torch.resume({str(tmp_path / 'run')!r}, model, loss, dataset)")  # fmt: skip
    assert re.fullmatch(
        f"{calls[-1]} draws per chain are stored; {call}", error.value.__notes__[-1]
    )
    assert set(verify(tmp_path / "run")) == {"run.json", "setup.npz", "checkpoint.npz"}
    assert 60 < calls[-1] < 200
    model, data, *_ = linear(120)
    with torch.no_grad():
        model.weight.add_(1.0)  # where the chains started is stored
    with pytest.raises(RunError, match=r"not finished; resume it: sgld\.torch\.resume"):
        st.Ensemble.load(tmp_path / "run", model)
    again = st.resume(tmp_path / "run", model, squares, data, progress=False)
    assert len(again) == len(whole)
    for one, other in zip(again.states, whole.states, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in other)
    assert again.verdict == whole.verdict
    loaded = st.Ensemble.load(tmp_path / "run", model)
    assert loaded.verdict.word == whole.verdict.word and loaded.summary() == again.summary()
    assert torch.equal(loaded(data[0]), again(data[0]))
    assert {p.suffix for p in (tmp_path / "run").iterdir()} <= {".json", ".npz", ""}
    assert set(verify(tmp_path / "run")) == {"run.json", "setup.npz", "result.json", "draws.npz"}
    finished = st.resume(tmp_path / "run", model, squares, None)
    held = st.resume(tmp_path / "run", model, squares, data, progress=False)
    assert torch.equal(held.states[0]["weight"], finished.states[0]["weight"])
    with pytest.raises(UsageError, match="was begun with another data set; give the same"):
        st.resume(tmp_path / "run", model, squares, (data[0], data[1] + 1), progress=False)
    model.bias.requires_grad_(False)
    with pytest.raises(
        UsageError, match="was begun with other parameters to sample; give the same"
    ):
        st.resume(tmp_path / "run", model, squares, data, progress=False)
    model.bias.requires_grad_(True)
    assert len(finished) == len(whole)


def test_a_damaged_run_is_found_by_verify(tmp_path, short_tuning):
    small(tmp_path / "run")
    content = bytearray((tmp_path / "run" / "draws.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "run" / "draws.npz").write_bytes(content)
    with pytest.raises(RunError, match=r"draws\.npz"):
        verify(tmp_path / "run")
    (tmp_path / "run" / "draws.npz").unlink()
    with pytest.raises(RunError, match=r"draws\.npz is missing"):
        verify(tmp_path / "run")


def test_what_is_not_that_run_is_refused(tmp_path, short_tuning):
    small(tmp_path / "run")
    model, data, *_ = linear(120)
    with pytest.raises(RunError, match="already exists"):
        small(tmp_path / "run")
    assert len(st.Ensemble.load(tmp_path / "run", model)) == 800  # and it is still there
    small(tmp_path / "run", overwrite=True)
    with pytest.raises(RunError, match=r"sgld\.torch\.Ensemble\.load"):
        sgld.load(tmp_path / "run")
    with pytest.raises(ValueError, match="same architecture"):
        st.Ensemble.load(tmp_path / "run", torch.nn.Linear(4, 1))
    draws = sgld.Draws.of({"b": np.zeros((4, 10))})
    draws.save(tmp_path / "other")
    with pytest.raises(RunError, match=r"no run of sgld\.torch"):
        st.resume(tmp_path / "other", model, squares, data)


def test_other_rows_or_another_trunk_do_not_go_on(tmp_path, monkeypatch, short_tuning):
    from sgld.torch.run_files import Files

    save = Files.save

    def stops(self, chains, now):
        save(self, chains, now)
        if chains.record.count > 20:
            raise Stopped

    monkeypatch.setattr(Files, "save", stops)
    with pytest.raises(Stopped):
        small(tmp_path / "run")
    monkeypatch.setattr(Files, "save", save)
    model, (x, y), *_ = linear(120)
    with pytest.raises(ValueError, match="was begun with another data set; give the same"):
        st.resume(tmp_path / "run", model, squares, (x, y + 1), progress=False)
    halved = lambda outputs, target: squares(outputs, target) / 2  # noqa: E731
    with pytest.raises(
        UsageError, match=r"was begun with another loss: of a few rows .* was .* and is"
    ):
        st.resume(tmp_path / "run", model, halved, (x, y), progress=False)
    assert (tmp_path / "run" / "checkpoint.npz").exists()
    model.bias.requires_grad_(False)
    with pytest.raises(
        ValueError, match="was begun with other parameters to sample; give the same"
    ):
        st.resume(tmp_path / "run", model, squares, (x, y), progress=False)


class Tied(torch.nn.Module):
    """A parameter under two names, and a buffer."""

    def __init__(self, value, shift=0.5):
        super().__init__()
        self.one = torch.nn.Linear(3, 1)
        self.other = torch.nn.Linear(3, 1)
        torch.nn.init.constant_(self.one.weight, value)
        self.other.weight = self.one.weight
        self.register_buffer("shift", torch.tensor(shift))

    def forward(self, x):
        return self.one(x) + self.other(x) + self.shift


def test_a_tied_parameter_that_is_sampled_is_no_part_of_the_rest(tmp_path, short_tuning):
    _, data, *_ = linear(120)
    given = {"prior_sd": 1.0, "num_draws": 8, "burn_in": 4, "thin": 1, "progress": False}
    st.sample(Tied(0.1), squares, data, path=tmp_path / "run", **given)
    assert len(st.Ensemble.load(tmp_path / "run", Tied(7.0))) == 32  # sampled: any will do
    assert len(st.resume(tmp_path / "run", Tied(7.0), squares, data, progress=False)) == 32
    with pytest.raises(
        UsageError, match=r"was begun with other values of .* buffers; give the same"
    ):
        st.Ensemble.load(tmp_path / "run", Tied(0.1, shift=0.6))


def test_saved_draws_keep_their_verdict(tmp_path, short_tuning):
    ensemble = small()
    ensemble.save(tmp_path / "draws.npz")
    again = st.Ensemble.load(tmp_path / "draws.npz", linear(120)[0])
    assert again.verdict.word == ensemble.verdict.word and again.summary() == ensemble.summary()
    assert again.to_arviz(weights="keep")["posterior"]["bias"].shape == (4, 200, 1)
