"""`keep=`: the run is the same, and what is kept is a function of its positions, or their moments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.core import work as pace
from sgld.errors import RunError, UsageError
from sgld.inference import kept, loop
from sgld.results import statistics

ROWS = np.random.default_rng(5).normal(size=(60, 2)).astype(np.float32)
POSTERIOR = sgld.Posterior(
    lambda t: -0.5 * jnp.sum(t["a"] ** 2), lambda t, x: -0.5 * jnp.sum((x - t["a"]) ** 2)
)
START = {"a": np.zeros(2, np.float32)}


def run(**kwargs):
    given = {
        "step_size": sgld.polynomial(0.02, 10.0, 0.6),
        "num_draws": 300,
        "thin": 3,
        "burn_in": 40,
    }
    return sgld.sample(
        POSTERIOR, ROWS, START, progress=False, num_chains=2, batch_size=7, **{**given, **kwargs}
    )  # fmt: skip


def parts(t):
    return {"first": t["a"][0], "turned": t["a"][::-1]}


def loss(t):
    return -jax.vmap(POSTERIOR.log_likelihood, (None, 0))(t, jnp.asarray(ROWS[:5]))


def same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("held", [True, False], ids=["positions held", "positions not held"])
def test_what_is_kept_is_the_function_of_the_same_runs_positions(held, monkeypatch):
    if not held:
        monkeypatch.setattr(kept, "MAX_METER_NUMBERS", 0)
    whole, some = run(), run(keep=parts)
    a = whole.position["a"]
    same(some.position, {"first": a[..., 0], "turned": a[..., ::-1]})
    same(some.log_weight, whole.log_weight)
    same(some.step, whole.step)
    assert some.names == ("first", "turned[0]", "turned[1]")
    assert some.mean()["first"] == pytest.approx(whole.mean()["a"][0])
    assert some.quantile(0.9)["first"] == whole.quantile(0.9)["a"][0]
    table = some.summary().parameters["first"]
    assert table["r_hat"] == whole.summary().parameters["a[0]"]["r_hat"]


@pytest.mark.parametrize("short", [jnp.bfloat16, jnp.float8_e4m3fn, jnp.float16])
def test_numbers_of_a_short_type_are_kept_and_stored(short, tmp_path):
    draws = run(keep=lambda t: t["a"].astype(short), path=tmp_path / "run")
    wide = jnp.float16 if short is jnp.float16 else jnp.float32
    assert draws.position.dtype == wide
    same(sgld.load(tmp_path / "run").position, draws.position)
    same(draws.position, run().position["a"].astype(short).astype(wide))


def test_the_values_of_a_loss_are_those_at_the_positions():
    whole, losses = run(), run(keep=loss)
    by_hand = jax.vmap(jax.vmap(loss))(whole.position)  # another compiled function: to rounding
    np.testing.assert_allclose(losses.position, by_hand, rtol=1e-5)


def test_the_length_of_a_chunk_changes_no_bit_of_what_is_kept(monkeypatch):
    for keep in (parts, "moments"):
        whole = run(keep=keep, num_draws=3000)
        monkeypatch.setattr(pace, "PIECE_SECONDS", 1e-9)
        for name in ("MAX_ENTRY_NUMBERS", "MAX_SLOT_NUMBERS", "MAX_LONG_SLOTS"):
            monkeypatch.setattr(loop, name, 1)
        small = run(keep=keep, num_draws=3000)
        monkeypatch.undo()
        same(whole.position, small.position)
        same((whole.mean(), whole.sd()), (small.mean(), small.sd()))


def test_moments_are_those_of_the_draws():
    whole, moments = run(num_draws=317), run(num_draws=317, keep="moments")
    same(moments.names, whole.names)
    np.testing.assert_allclose(moments.mean()["a"], whole.mean()["a"], rtol=1e-5)
    np.testing.assert_allclose(moments.sd()["a"], whole.sd()["a"], rtol=1e-5)
    np.testing.assert_allclose(moments.var()["a"], whole.var()["a"], rtol=1e-5)
    assert moments.moments.num_draws == 317 and moments.moments.num_batches == 317 // 15
    assert jax.tree.leaves(moments.position)[0].shape == (2, 1, 2)


def test_the_error_of_the_means_is_that_of_batch_means():
    draws, moments = (
        run(num_draws=400, step_size=0.01),
        run(num_draws=400, step_size=0.01, keep="moments"),
    )
    values = draws.flat()[0].reshape(2, 20, 20, 2).mean(2)  # equal weights: 20 batches of 20 draws
    by_hand = np.sqrt(values.var(1, ddof=1).mean(0) / (20 * 2))
    found = moments.moments.mcse(moments.healthy)
    np.testing.assert_allclose(found, by_hand, rtol=1e-4)
    by_ess = statistics.mcse_mean(draws.flat()[0], draws.weights)
    np.testing.assert_allclose(found, by_ess, rtol=0.5)
    table = moments.summary().parameters["a[0]"]
    assert table["mcse_mean"] == found[0] and table["ess_tail"] is None
    with pytest.raises(RunError, match="kept only moments"):
        moments.quantile(0.5, lambda t: t["a"] ** 2)


def test_the_verdict_knows_what_it_knows(monkeypatch):
    judged = sgld.sample(POSTERIOR, ROWS, START, progress=False, keep=parts)
    assert judged.verdict.word == "trusted"
    assert judged.verdict.reasons[0].startswith("the parameters behind the kept values: sd within")
    assert judged.verdict.sd_ratio is None  # one of the parameters, not of what was kept
    monkeypatch.setattr(kept, "MAX_METER_NUMBERS", 0)
    for keep in (parts, "moments"):
        draws = sgld.sample(POSTERIOR, ROWS, START, progress=False, keep=keep)
        assert draws.verdict.word == "unknown" and "positions" in draws.verdict.reasons[0]
        assert not any("first run" in note for note in draws.info["plan"]["notes"])  # no retry
    short = run(keep=parts, num_draws=30)
    assert short.verdict.word == "not mixed"


def test_a_biased_run_is_biased_whatever_is_kept():
    steep = sgld.sample(
        POSTERIOR, ROWS, START, progress=False, keep=parts, step_size=0.02, batch_size=2,
        gradient=sgld.Minibatch(), num_draws=4000,
    )  # fmt: skip
    assert steep.verdict.word == "biased"


def test_a_value_that_is_not_finite_is_named():
    draws = run(keep=lambda t: {"log": jnp.log(t["a"][0]), "a": t["a"]})
    assert draws.verdict.word in ("unknown", "not mixed")
    draws = sgld.sample(
        POSTERIOR, ROWS, START, progress=False, keep=lambda t: {"log": jnp.log(t["a"][0])}
    )
    assert (
        draws.verdict.word == "unknown"
        and "keep returned nan for 'log'" in draws.verdict.reasons[0]
    )


@pytest.mark.parametrize("keep", [parts, "moments"], ids=["function", "moments"])
def test_an_interrupted_run_goes_on_with_keep(keep, tmp_path, monkeypatch):
    how = {"keep": keep, "num_draws": 3000}
    whole = run(path=tmp_path / "whole", **how)
    monkeypatch.setattr(pace, "PIECE_SECONDS", 1e-9)
    chunk, calls = loop._Chains._chunk, []

    def stop(self, work, *rest):
        calls.append(1)
        if len(calls) == 9:
            work._interrupt.set()
        chunk(self, work, *rest)

    monkeypatch.setattr(loop._Chains, "_chunk", stop)
    with pytest.raises(KeyboardInterrupt):
        run(path=tmp_path / "stopped", **how)
    monkeypatch.undo()
    if keep is parts:
        with pytest.raises(RunError, match="give it again"):
            sgld.resume(tmp_path / "stopped", POSTERIOR, ROWS, START)
        with pytest.raises(
            RunError, match=r"returned first \(\) float32.*returns x \(2,\) float32"
        ):
            sgld.resume(tmp_path / "stopped", POSTERIOR, ROWS, START, keep=lambda t: t["a"])
        other = lambda t: {"first": 2 * t["a"][0], "turned": t["a"]}  # noqa: E731
        with pytest.raises(RunError, match="another keep of the same shapes"):
            sgld.resume(tmp_path / "stopped", POSTERIOR, ROWS, START, keep=other)
    again = None if keep == "moments" else keep
    resumed = sgld.resume(tmp_path / "stopped", POSTERIOR, ROWS, START, progress=False, keep=again)
    for other in (resumed, sgld.load(tmp_path / "stopped"), sgld.load(tmp_path / "whole")):
        same(whole.position, other.position)
        same((whole.mean(), whole.sd()), (other.mean(), other.sd()))
        assert whole.summary().parameters == other.summary().parameters


def test_a_run_begun_without_keep_takes_none(tmp_path):
    (tmp_path / "run").mkdir()
    draws = run(path=tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(RunError, match="begun without keep"):
        sgld.resume(tmp_path / "run", POSTERIOR, ROWS, START, keep=parts)
    assert draws.num_draws == 300


class Changing:
    def __init__(self):
        self.calls = 0

    def __call__(self, t):
        self.calls += 1
        return jnp.zeros(self.calls) + t["a"][0]


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        (3, "keep must be a function"),
        ("moment", "Did you mean 'moments'"),
        (lambda t: t["b"], "keep raised KeyError"),
        (lambda t: t["a"][t["a"] > 0], "shape does not depend on values"),
        (lambda t: float(t["a"][0]), "keep raised ConcretizationTypeError"),
        (lambda t: {"n": jnp.sum(t["a"] > 0)}, "'n' has dtype int32"),
        (lambda t: None, "keep returned no numbers"),
        (lambda t: "text", "keep raised TypeError"),
        (Changing(), "same shape at every call"),
    ],
)
def test_refused_before_step_1(keep, said, tmp_path):
    with pytest.raises(UsageError, match=said):
        run(keep=keep, path=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_moments_refuse_what_they_cannot_do():
    with pytest.raises(UsageError, match="ess cannot be combined"):
        run(keep="moments", ess=400)
    with pytest.raises(UsageError, match="temperature must be positive"):
        run(keep="moments", temperature=0.0)


def test_moments_leave_out_steps_at_temperature_0():
    cycles = sgld.cosine_cycles(0.02, 200, 0.5)
    how = {"step_size": cycles, "temperature": cycles.temperature(), "num_draws": 400, "thin": 1}
    whole, moments = run(**how), run(keep="moments", **how)
    assert whole.num_draws < 400 and moments.moments.num_draws == whole.num_draws
    np.testing.assert_allclose(moments.mean()["a"], whole.mean()["a"], rtol=1e-4)
    np.testing.assert_allclose(moments.sd()["a"], whole.sd()["a"], rtol=1e-4)
