"""A run that goes on: what is said of it before its verdict, and how much of it is read."""

import os
import shutil
import time
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.interfaces.cli.watch import Shown, _rest
from sgld.interfaces.report.live import (
    MAX_LIVE_PARAMETERS,
    MAX_READ_NUMBERS,
    MAX_READ_PARAMETERS,
    Live,
    Reader,
    _Selection,
    as_lines,
    as_page,
    read_live,
)
from sgld.results import statistics
from sgld.results.run_directory import RunDirectory

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 3)).astype(np.float32)
Y = (X[:, 0] + RNG.standard_normal(200)).astype(np.float32)
POSTERIOR = sgld.Posterior(
    lambda b: -0.5 * jnp.sum(b**2), lambda b, row: -0.5 * (row[1] - row[0] @ b) ** 2
)
PREDICTING = replace(POSTERIOR, predict=lambda b, row: row[0] @ b)


def stopped(path, posterior, **asked):
    """The finished run, and its directory as it stood at its last checkpoint."""
    real = RunDirectory.write_checkpoint

    def write(self, head, arrays):
        real(self, head, arrays)
        shutil.rmtree(path / "live", ignore_errors=True)
        shutil.copytree(self.path, path / "live")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunDirectory, "write_checkpoint", write)
        how = {"step_size": 1e-3, "burn_in": 300, "thin": 2, "checkpoint_every": 1e-9, **asked}
        return sgld.sample(
            posterior, (X, Y), jnp.zeros(3), path=path / "run", progress=False, **how
        )


def of(draws, **more):
    alike = np.ones(draws.shape[:2])
    names = tuple(f"b{i}" for i in range(draws.shape[2]))
    count = draws.shape[1]
    return Live(draws, alike, names, len(names), count=count, wanted=2 * count, steps=9, **more)


def test_the_limit_of_r_hat_is_that_of_the_verdict():
    """What lies between the chains makes the ESS of all small, and a limit by it would rise as they part."""
    draws = RNG.standard_normal((4, 500, 3))
    assert of(draws).agreement.mixed and "mixed so far" in of(draws).word()
    draws[0, :, 1] += 1.0
    found, live = statistics.Estimates(draws, np.ones((4, 500))).mixing, of(draws)
    assert live.agreement.limit == statistics.max_r_hat(found.ess_alone, 4, 3)[1] < 1.03
    assert live.agreement.r_hat == found.r_hat[1] > 1.05 and not live.agreement.mixed
    assert "not mixed yet: R-hat 1." in live.word()


def test_many_chains_need_more_effective_draws():
    assert of(RNG.standard_normal((64, 10, 1))).agreement.wanted == 64 * 20


def test_a_chain_that_failed_is_told_of_and_left_out():
    draws = RNG.standard_normal((4, 100, 2))
    draws[2, 50:] = np.nan
    assert "1 of 4 chains became non-finite" in as_lines(of(draws))
    assert np.isfinite([mean for _, mean, _ in of(draws).rows()]).all()


def test_a_run_is_at_work_while_a_process_has_its_lock_open(tmp_path, monkeypatch):
    directory = RunDirectory(tmp_path)
    assert not directory.in_use()

    def tried(*arguments):
        raise AssertionError("a lock that is tried may be refused to a run that begins")

    with directory:
        monkeypatch.setattr("fcntl.flock", tried)
        assert RunDirectory(tmp_path).in_use()
        said = (tmp_path / "lock").read_text()
    assert not directory.in_use()
    # killed: the lock still says so, and the process's number is another's
    (tmp_path / "lock").write_text(said)
    assert str(os.getpid()) in said and not directory.in_use()
    (tmp_path / "lock").write_text(said.replace(str(os.getpid()), str(2**70)))
    assert not directory.in_use()


def test_moments_are_shown_as_they_are_so_far(tmp_path):
    draws = stopped(tmp_path, POSTERIOR, keep="moments", num_draws=3000)
    live = read_live(tmp_path / "live")
    assert live.state == "stopped"  # and was made in Python, where the posterior is
    resume = f"sgld.resume({str(tmp_path / 'live')!r}, posterior, data, init)"
    assert f"no process is working on it; resume it: {resume}" in as_lines(live)
    assert 500 < live.count <= 3512 and len(live.rows()) == 3
    done = draws.moments.num_draws == live.moments.num_draws
    mean = np.array([mean for _, mean, _ in live.rows()])
    np.testing.assert_allclose(mean, draws.mean(), atol=1e-6 if done else 0.02)
    np.testing.assert_allclose([sd for _, _, sd in live.rows()], draws.sd(), rtol=0.1)
    assert "least ESS" in live.word() and "<table>" in as_page(live, "run")
    whole = read_live(tmp_path / "run")
    assert [m for _, m, _ in whole.rows()] == pytest.approx(list(draws.mean()), rel=1e-6)
    assert whole.word() == f"finished: {draws.verdict}"


def test_of_a_network_whose_positions_are_not_all_held_predictions_are_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("sgld.inference.execute.held", lambda *_: 50)
    how = {"sampler": sgld.BAOA(), "gradient": sgld.Full()}
    whole = stopped(tmp_path, PREDICTING, **how)
    live = read_live(tmp_path / "live")
    assert live.draws.shape[2] == 0 and live.predicted.shape[1] == live.count
    assert live.word().startswith("predictions ") and live.agreement.wanted == 100
    assert "for predictions" in as_page(live, "run") and as_lines(live)
    assert whole.num_draws < 50


def test_a_network_is_looked_at_by_its_predictions(tmp_path):
    stopped(tmp_path, PREDICTING, sampler=sgld.BAOA(), gradient=sgld.Full(), num_draws=3000)
    live = read_live(tmp_path / "live")
    assert live.predicted.shape[2:] == (64, 1) and live.predicted.shape[1] == live.draws.shape[1]
    assert live.word().startswith("predictions ") and live.agreement.wanted == 100
    assert live.agreement.limit in (1.05, 1.1)
    apart = replace(live, predicted=live.predicted + np.arange(4.0)[:, None, None, None])
    assert not apart.agreement.mixed and apart.agreement.r_hat > 1.1
    assert "for predictions" in as_page(live, "run")
    unknown = replace(live, predicted=None)
    assert unknown.word() == "predictions are judged at the end" and as_page(unknown, "run")


def test_what_was_kept_is_shown(tmp_path):
    draws = stopped(tmp_path, POSTERIOR, keep=lambda b: {"half": b[:2] / 2}, num_draws=1000)
    live = read_live(tmp_path / "live")
    assert live.names == draws.names == ("half[0]", "half[1]")
    count = min(live.count, 1000)
    np.testing.assert_allclose(live.draws[:, :count], draws.position["half"][:, :count])


@pytest.mark.parametrize(("d", "chains", "count"), [(200_000, 4, 10**4), (3, 4, 10**7), (500, 64, 10**5)])  # fmt: skip
def test_what_is_looked_at_is_bounded(d, chains, count):
    rows = {"z": np.broadcast_to(np.float32(0), (512, chains, d)), "step_size": np.zeros(512), "temperature": np.ones(512)}  # fmt: skip
    look = _Selection.at({"kind": "sample"}, rows, count)
    assert len(look.columns) == len(look.names) == min(d, MAX_READ_PARAMETERS)
    assert count / look.every * chains * len(look.columns) <= MAX_READ_NUMBERS and look.width == d
    found = look.of(rows, 512)["shown"]
    assert len(found) == len(range(-512 % look.every, 512, look.every))


def test_the_worst_of_many_parameters_are_shown():
    draws = RNG.standard_normal((4, 300, 100))
    draws[0, :, 77] += 3.0
    live = of(draws)
    assert len(live.rows()) == MAX_LIVE_PARAMETERS and "b77" in [name for name, _, _ in live.rows()]
    assert f"the {MAX_LIVE_PARAMETERS} parameters that agree least, of 100" in as_lines(live)
    assert list(live.history())[-1][1].r_hat == pytest.approx(live.agreement.r_hat)
    assert "every draw" in as_page(live, "run")
    assert "every 22nd draw" in as_page(replace(live, every=22), "run")


def test_a_chunk_is_read_once(tmp_path, monkeypatch):
    stopped(tmp_path, POSTERIOR, num_draws=12_000)
    directory, read = RunDirectory(tmp_path / "live"), []
    head, _ = directory.read_checkpoint()
    real = RunDirectory.read_chunk
    monkeypatch.setattr(RunDirectory, "read_chunk", lambda *args: read.append(args[1]) or real(*args))  # fmt: skip
    reader = Reader(tmp_path / "live")
    first = reader.read()
    monkeypatch.setattr("sgld.interfaces.report.live.MAX_LIVE_DRAWS", 1000)
    fewer = reader.read()
    assert read == [first for first, _ in head["chunks"]] and len(read) > 0
    assert fewer.every > first.every and fewer.count == first.count
    np.testing.assert_array_equal(fewer.draws, first.draws[:, :: fewer.every // first.every])
    fresh = read_live(tmp_path / "live")
    np.testing.assert_array_equal(fewer.draws, fresh.draws)


def test_pages_are_made_once_for_all_and_take_a_tenth_of_a_core(tmp_path, monkeypatch):
    from concurrent.futures import ThreadPoolExecutor

    made = []

    def read(self):
        made.append(1)
        time.sleep(0.2)
        return of(RNG.standard_normal((2, 50, 1)))

    monkeypatch.setattr(Reader, "read", read)
    shown = Shown(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: shown.answer(), range(16)))
    assert len(made) == 1 and len({id(answer) for answer in found}) == 1
    shown._until = time.monotonic() - 1
    assert shown.answer() is not found[0] and len(made) == 2
    assert _rest(4.0, 2.0) == pytest.approx(36.0) and _rest(0.01, 2.0) == 2.0
