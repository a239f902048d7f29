"""Runs of `sgld.torch.sample` killed at any moment: what goes on is the run that was not stopped, bit for bit."""

import importlib
import shutil
from contextlib import nullcontext

import pytest

from sgld.core.files import read_arrays, write_arrays
from sgld.errors import RunError, SGLDWarning

torch = pytest.importorskip("torch")

from torch_parts import linear, squares  # noqa: E402

import sgld.torch as st  # noqa: E402
from sgld.results.run_directory import RunDirectory  # noqa: E402
from sgld.torch import chains as moving  # noqa: E402
from sgld.torch.run_files import Files  # noqa: E402

sampling = importlib.import_module("sgld.torch.sample")  # which the function hides
LENGTHS = moving.Lengths(4, 1, 8)  # prolonged to 32 draws
# steps tried before, draws
FILES = {"run.json", "setup.npz", "draws.npz", "result.json", "lock"}  # of a finished run
OPEN = [(0, 8), (0, 23), (0, 32), (1, 0), (3, 20)]
FAILED = [(1, 9), (1, 11), (2, 0)]


class Killed(BaseException):
    """As kill -9: nothing is tidied up."""


@pytest.fixture
def quick(monkeypatch):
    """Prolonged twice; four steps are tried."""
    monkeypatch.setattr("sgld.inference.tuning.network_rules.MIN_TRAINING_STEPS", 5)
    monkeypatch.setattr("sgld.inference.tuning.network_rules.MAX_TRAINING_STEPS", 5)
    monkeypatch.setattr("sgld.inference.tuning.network_rules.STAGE_STEPS", 20)
    monkeypatch.setattr("sgld.torch.run_files.CHECKPOINT_RATIO", 0)  # every checkpoint is due
    for module in (sampling, importlib.import_module("sgld.torch.tuning")):
        monkeypatch.setattr(module, "price", lambda *_: 1e-3)
    monkeypatch.setattr(sampling, "lengths", lambda *_: LENGTHS)
    more = lambda run, asked: run.record.count * (2 if run.record.count < 32 else 1)  # noqa: E731
    monkeypatch.setattr(sampling, "draws_wanted", more)
    monkeypatch.setattr(sampling, "smaller", lambda run, verdict: run.motion.h / 2)
    monkeypatch.setattr("sgld.torch.verdict.from_other_starts", lambda *_: None)


def made(path=None, **given):
    model, data, *_ = linear(60)
    return st.sample(
        model, squares, data, prior_sd=1.0, chains=2, batch_size=20, path=path, progress=False,
        checkpoint_every=0, probe=data[0][:10] + 1, **given,
    )  # fmt: skip


def gone_on(path):
    model, data, *_ = linear(60)
    with torch.no_grad():
        model.weight.add_(1.0)  # where chains start is stored
    return st.resume(path, model, squares, data, progress=False)


def same(one, other):
    assert len(one) == len(other) and one.verdict == other.verdict
    for name in ("draws", "steps", "step_size"):
        assert one.info[name] == other.info[name], name
    for here, there in zip(one.states, other.states, strict=True):
        assert all(torch.equal(here[name], there[name]) for name in there)


@pytest.mark.parametrize("moments", [OPEN, FAILED], ids=["open", "failed"])
def test_lengths_left_open_end_where_they_would_have(tmp_path, monkeypatch, quick, moments):
    look, save, finish = moving.Chains._look, Files.save, Files.finish

    def fails(self):
        look(self)
        if moments is FAILED and self.tried == 1 and self.record.count == 11:
            self.record.failed_at[:] = self.step

    def copied(name):
        shutil.copytree(tmp_path / "run", tmp_path / name, ignore=lambda *_: ["lock"])
        copies.append(name)

    def saves(self, chains, now):
        moment = chains.tried, chains.record.count
        name = "{}-{}".format(*moment)
        if moment in moments and name not in copies:
            save(self, chains, True)
            copied(name)

    def finishes(self, found):
        copied("finish")  # the last checkpoint is some draws before
        finish(self, found)

    monkeypatch.setattr(moving.Chains, "_look", fails)
    whole, copies = made(), []
    assert whole.info["steps"] == (4 * 36 if moments is OPEN else 3 * 36 + 15)
    with monkeypatch.context() as patch:
        patch.setattr(Files, "save", saves)
        patch.setattr(Files, "finish", finishes)
        patch.setattr("sgld.core.work.PIECE_SECONDS", 0.0)  # pieces of one step
        same(made(tmp_path / "run"), whole)
    assert len(copies) == len(moments) + 1
    for name in copies:
        same(gone_on(tmp_path / name), whole)


def killed_in(call, monkeypatch, at):
    """Of what is renamed and removed in the call, the `at`-th is not any more; whether it came to that."""
    import sgld.results.run_directory as directory
    from sgld.core import files

    left = [at]

    def counting(f):
        def called(*arguments):
            left[0] -= 1
            if left[0] <= 0:
                raise Killed
            return f(*arguments)

        return called

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "replace", counting(files.os.replace))
        patch.setattr(directory, "remove", counting(directory.remove))
        patch.setattr(Files, "close", lambda self, failed: self.directory.unlock())
        try:
            call()
        except Killed:
            return True
        return False


def test_a_run_killed_while_it_tunes_tunes_anew(tmp_path, monkeypatch, quick):
    whole, path = made(), tmp_path / "run"

    def stops(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(sampling, "tuned", stops)
        patch.setattr(Files, "close", lambda self, failed: self.directory.unlock())
        with pytest.raises(Killed):
            made(path)
    with pytest.raises(RunError, match=r"not finished; resume it: sgld\.torch\.resume"):
        st.Ensemble.load(path, linear(60)[0])
    with monkeypatch.context() as patch:
        patch.setattr(sampling, "tuned", stops)
        with pytest.raises(Killed):
            gone_on(path)
    same(gone_on(path), whole)
    assert {p.name for p in path.iterdir()} == FILES


def test_a_run_that_was_to_replace_one_killed_while_it_tuned_takes_nothing_of_it(
    tmp_path, monkeypatch, quick
):
    whole, path = made(), tmp_path / "run"

    def stops(*_):
        raise Killed

    def refuses(*_):
        raise RunError("no.")

    with monkeypatch.context() as patch:
        patch.setattr(sampling, "tuned", stops)
        patch.setattr(Files, "close", lambda self, failed: self.directory.unlock())
        with pytest.raises(Killed):
            made(path)
    with monkeypatch.context() as patch:
        patch.setattr(sampling, "tuned", refuses)
        with pytest.raises(RunError, match="no"):
            made(path, seed=1, overwrite=True)
    same(gone_on(path), whole)  # the first one


@pytest.mark.parametrize("older", [False, True])
def test_a_run_killed_before_its_first_draw_begins_anew(tmp_path, monkeypatch, quick, older):
    monkeypatch.setattr(sampling, "draws_wanted", lambda run, asked: run.record.count)
    monkeypatch.setattr(sampling, "smaller", lambda run, verdict: None)
    whole, path, seen = made(seed=1), tmp_path / "run", set()
    before = made(tmp_path / "before") if older else None

    def again():
        made(path, seed=1, overwrite=True)

    for at in range(1, 30):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(tmp_path / "before", path) if older else None
        killed_in(again, monkeypatch, at)
        directory = RunDirectory(path)
        if (path / "checkpoint.npz").exists():
            break
        begun = (path / "run.json").exists()
        stands, coming = begun and directory.finished(), bool(directory.next())
        if stands:
            with pytest.warns(SGLDWarning, match="replace") if coming else nullcontext():
                same(st.Ensemble.load(path, linear(60)[0]), before)
        seen.add((stands, coming))
        gone_on(path) if coming or (begun and not stands) else again()
        same(st.Ensemble.load(path, linear(60)[0]), whole)
        assert {p.name for p in path.iterdir()} == FILES
    of_older = {(True, False), (True, True), (False, True)}
    assert seen == {(False, False)} | (of_older if older else set())


def test_what_a_run_killed_behind_its_result_left_is_removed(tmp_path, monkeypatch, quick):
    def gone(self):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "remove_chunks", gone)
        with pytest.raises(Killed):
            made(tmp_path / "run")
    assert (tmp_path / "run" / "checkpoint.npz").exists()
    ensemble = st.resume(tmp_path / "run", linear(60)[0], squares, None)
    same(ensemble, gone_on(tmp_path / "run"))
    assert {p.name for p in (tmp_path / "run").iterdir()} == FILES


@pytest.mark.parametrize("name", ["checkpoint.npz", "setup.npz"])
def test_a_run_of_another_release_is_refused(tmp_path, monkeypatch, quick, name):
    def gone(self, found):
        raise Killed

    monkeypatch.setattr(Files, "finish", gone)
    with pytest.raises(Killed):
        made(tmp_path / "run")
    head, arrays = read_arrays(tmp_path / "run" / name)
    if name == "setup.npz":
        del arrays["start"]
    else:
        arrays["kinetic"] = arrays["kinetic"][..., 1:]
    write_arrays(tmp_path / "run" / name, head, arrays)
    with pytest.raises(
        RunError, match=r"was begun by another release of sgld; make the run again\.$"
    ):
        gone_on(tmp_path / "run")
