"""Another word for a finished run: what NUTS or half the step decides, and what stays as it was."""

import shutil
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld.errors import RunError, UsageError
from sgld.inference.step_halving import Halving
from sgld.results.plan import Origin
from sgld.results.run_directory import RunDirectory
from sgld.results.storage import table_of, verify
from sgld.results.verdict import MODES, TAILS, Verdict

NAMES = ("a", "b")
TRUE = Verdict("trusted", ("NUTS is exact and its chains have mixed.",))
DOUBT = Verdict("unknown", ("the posterior is far from Gaussian (nu = 3).",), r2=np.full(2, 0.2))


def normal(seed, scale=1.0, shift=0.0, draws=2000):
    x = np.random.default_rng(seed).standard_normal((4, draws, 2))
    return {"a": shift + scale * x[..., 0], "b": x[..., 1]}


def of(position, verdict, **info):
    return sgld.Draws.of(position, verdict=verdict, info={"num_data": 10, **info})


def nuts(verdict=TRUE, **how):
    return of(normal(1, **how), verdict, method="nuts")


def confirmed(verdict=DOUBT, by=None, **how):
    return sgld.confirm(of(normal(0, **how), verdict), by or nuts()).verdict


def test_agreement_is_trusted_and_says_by_whom():
    found = confirmed()
    assert found.word == "trusted" and found.confirmed_by == "NUTS"
    assert found.reasons[0].startswith("confirmed by NUTS: an sd is ")
    np.testing.assert_allclose(found.sd_ratio, 1, atol=0.05)
    np.testing.assert_allclose(found.sd_corrected, nuts().flat()[0].std((0, 1)), rtol=1e-3)
    assert found.r2 is None  # that of a meter, which is not what speaks here
    assert found.extra["by_itself"] == {"word": "unknown", "reasons": list(DOUBT.reasons)}


def test_a_reference_of_other_rows_as_many_is_refused():
    x = np.linspace(0, 1, 10)
    of_rows = lambda draws, rows: replace(draws, origin=Origin(data=rows))  # noqa: E731
    run = of_rows(of(normal(0), DOUBT), (x, x**2))
    same = (jnp.asarray(x, jnp.float32), x**2)
    assert sgld.confirm(run, of_rows(nuts(), same)).verdict.word == "trusted"
    for other in ((x, x**2 + 0.1 * (x > 0.5)), (x[:, None], x**2)):
        with pytest.raises(UsageError, match=r"as many rows .* other values"):
            sgld.confirm(run, of_rows(nuts(), other))


def test_a_difference_is_biased_with_its_size():
    wide = confirmed(scale=1.3)
    assert wide.word == "biased" and "sd of 'a' is about 3" in wide.reasons[0]
    assert "% too wide" in wide.reasons[0] and "NUTS" in wide.reasons[0]
    off = confirmed(shift=0.5)
    assert off.word == "biased" and "mean of 'a' is about 0.5" in off.reasons[0]
    assert confirmed(TRUE, scale=1.3).word == "biased"  # whatever the run said of itself


def test_what_is_not_certain_leaves_the_word_and_is_told_once():
    few = nuts(draws=100)
    for own in (DOUBT, replace(TRUE, reasons=("sd within 3%.",))):
        found = confirmed(own, few)
        assert found.word == own.word and found.reasons[0] == own.reasons[0]
        assert "too uncertain to tell" in found.reasons[1] and found.confirmed_by is None
        again = sgld.confirm(of(normal(0), found), few).verdict
        assert again.reasons == found.reasons
    at_limit = confirmed(scale=1.12)
    assert at_limit.word == "unknown" and "at the limit" in at_limit.reasons[1]


def test_what_is_not_certain_takes_no_reason_from_what_was_decided():
    biased = confirmed(scale=1.5)
    assert biased.word == "biased" and biased.reasons[0].startswith("compared with NUTS: sd of 'a'")
    found = sgld.confirm(of(normal(0, scale=1.12), biased), nuts()).verdict
    assert found.word == "biased" and found.reasons[:-1] == biased.reasons
    assert "at the limit" in found.reasons[-1]


def test_a_reference_that_is_not_trusted_decides_nothing():
    unmixed = Verdict("not mixed", ("the chains disagree.",))
    for scale in (1.0, 1.5):
        found = confirmed(by=nuts(unmixed), scale=scale)
        assert (
            found.word == "unknown" and "itself not mixed: the chains disagree." in found.reasons[1]
        )


def test_chains_that_failed_are_not_made_up_for():
    failed = of(normal(0), Verdict("biased", ("chain 1 became non-finite.",)))
    failed = replace(failed, status=("ok", "chain 1 became non-finite.", "ok", "ok"))
    found = sgld.confirm(failed, nuts()).verdict
    assert found.word == "biased" and "chains that failed" in found.reasons[1]


def test_doubts_about_modes_need_a_reference_that_began_in_several():
    doubt = replace(DOUBT, extra={"doubts": [MODES]})
    one = confirmed(doubt)
    assert one.word == "unknown" and "started from one mode" in one.reasons[1]
    both = of(normal(1), TRUE, method="nuts", num_modes=2)
    found = confirmed(doubt, both)
    assert found.word == "trusted" and found.doubts == ()


def test_doubts_about_tails_stay():
    rng = np.random.default_rng(3)
    heavy = of({"a": rng.standard_t(2.5, (4, 8000)), "b": rng.standard_normal((4, 8000))}, TRUE, method="nuts")  # fmt: skip
    found = sgld.confirm(of(heavy.position, DOUBT), heavy).verdict
    assert found.word == "unknown" and "tails of 'a' are too heavy" in found.reasons[1]


def halving(run, half, ratio=1.0, shift=0.0):
    two = np.ones(2)
    return Halving(
        NAMES, ratio * two, 0.005 * two, shift * two, 0.01 * two, np.zeros(2), (2 - ratio) * two,
        half, 2.0, run,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ratio", "word"), [(1.0, "trusted"), (1.15, "biased"), (1.055, "unknown")]
)
def test_half_the_step_decides_where_it_is_certain(ratio, word):
    run, half = of(normal(0), DOUBT), of(normal(1), DOUBT)
    found = sgld.confirm(run, halving(run, half, ratio)).verdict
    assert found.word == word
    assert found.confirmed_by == (None if word == "unknown" else "half the step")


@pytest.mark.parametrize("doubt", [MODES, TAILS])
def test_half_the_step_answers_no_doubt_about_modes_or_tails(doubt):
    run = of(normal(0), replace(DOUBT, extra={"doubts": [doubt]}))
    found = halving(run, of(normal(1), DOUBT))
    assert found.verdict.word == "unknown" and found.verdict.doubts == (doubt,)
    assert sgld.confirm(run, found).verdict.word == "unknown"


def test_half_the_step_sees_heavy_tails_that_no_verdict_named():
    rng = np.random.default_rng(3)
    run = of({"a": rng.standard_t(2.5, (4, 8000)), "b": rng.standard_normal((4, 8000))}, DOUBT)
    found = halving(run, of(normal(1), DOUBT)).verdict
    assert found.word == "unknown" and "too heavy for an sd" in found.reasons[0]


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (lambda run: "nuts", "Got str"),
        (lambda run: of(normal(1), TRUE), "these come from elsewhere"),
        (lambda run: of(normal(1), TRUE, method="nuts", num_data=11), "has 10 rows, and the reference 11"),
        (lambda run: of({"c": normal(1)["a"]}, TRUE, method="nuts"), "'a' is not in reference"),
        (lambda run: halving(of(normal(5), DOUBT), of(normal(1), DOUBT)), "by has other draws"),
    ],
)  # fmt: skip
def test_what_a_run_cannot_be_held_against(by, said):
    run = of(normal(0), DOUBT)
    with pytest.raises(UsageError, match=f"(?i){said}"):
        sgld.confirm(run, by(run))
    cold = replace(run, temperature=np.full((4, 2000), 0.5))
    with pytest.raises(UsageError, match=r"temperature 0\.5"):
        sgld.confirm(cold, nuts())


# -- with a run directory --------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path):
    return of(normal(0), DOUBT).save(tmp_path / "run")


def test_a_stored_run_says_so_wherever_it_is_read(stored):
    before = table_of(RunDirectory(stored))
    assert before["verdict"] == "unknown"
    found = sgld.confirm(stored, nuts())
    again, table = sgld.load(stored), table_of(RunDirectory(stored))
    assert again.verdict.to_dict() == found.verdict.to_dict()
    assert table["verdict"] == "trusted" and table["reasons"] == list(found.verdict.reasons)
    assert table["parameters"]["a"]["sd_ratio"] == pytest.approx(found.verdict.sd_ratio[0])
    assert "confirmed by NUTS" in str(again.summary())
    assert "confirmation.json" in verify(stored)


def test_a_second_confirmation_takes_the_place_of_the_first(stored):
    sgld.confirm(stored, nuts())
    sgld.confirm(stored, nuts(shift=-0.5))
    again = sgld.load(stored)
    assert again.verdict.word == "biased" and table_of(RunDirectory(stored))["verdict"] == "biased"
    assert again.verdict.extra["by_itself"]["word"] == "unknown"


def test_new_draws_in_the_directory_drop_it(stored, tmp_path):
    sgld.confirm(stored, nuts())
    kept = (stored / "confirmation.json").read_bytes()
    other = of(normal(7), DOUBT).save(tmp_path / "other")
    shutil.copy(stored / "confirmation.json", other)
    with pytest.raises(RunError, match="belongs to another run"):
        sgld.load(other)
    directory = RunDirectory(stored)
    sgld.results.storage.write_result(directory, of(normal(7), DOUBT))
    assert not (stored / "confirmation.json").exists()
    (stored / "confirmation.json").write_bytes(kept)  # as if it had been left behind
    assert sgld.load(stored).verdict.word == "unknown"
    assert table_of(directory)["verdict"] == "unknown"


def test_overwriting_a_run_drops_it(stored):
    sgld.confirm(stored, nuts())
    gaussian = sgld.Posterior(lambda t: -0.5 * jnp.sum(t**2))
    given = {"step_size": 0.1, "num_draws": 200, "num_chains": 2, "progress": False}
    draws = sgld.sample(gaussian, None, jnp.zeros(2), path=stored, overwrite=True, **given)
    assert not (stored / "confirmation.json").exists()
    assert sgld.load(stored).verdict.word == draws.verdict.word


def test_an_edited_table_or_verdict_is_refused(stored):
    sgld.confirm(stored, nuts())
    table = (stored / "summary.json").read_bytes()
    (stored / "summary.json").write_bytes(table.replace(b"trusted", b"trusted "))
    with pytest.raises(RunError, match=r"summary\.json .*was damaged"):
        table_of(RunDirectory(stored))
    with pytest.raises(RunError, match=r"summary\.json .*was damaged"):
        sgld.confirm(stored, nuts())  # which would have sealed it
    (stored / "summary.json").write_bytes(table)
    text = (stored / "confirmation.json").read_text()
    (stored / "confirmation.json").write_text(text.replace('"trusted"', '"biased"'))
    with pytest.raises(RunError, match=r"confirmation\.json .*was damaged"):
        sgld.load(stored)


def test_only_a_finished_run_is_confirmed(tmp_path):
    with pytest.raises(RunError, match="no run directory"):
        sgld.confirm(tmp_path / "none", nuts())
    (tmp_path / "run").mkdir()
    with pytest.raises(RunError, match=r"no run\.json"):
        sgld.confirm(tmp_path / "run", nuts())


def test_a_run_that_is_in_use_is_left_alone(stored):
    with RunDirectory(stored), pytest.raises(RunError, match="in use"):
        sgld.confirm(stored, nuts())
    assert not (stored / "confirmation.json").exists()


@pytest.fixture(scope="module")
def fit():
    x = np.linspace(-1.0, 1.0, 60, dtype=np.float32)
    return sgld.fit({"x": x, "y": 2 * x + np.cos(9 * x)}, "y ~ x", sampler="sgld", progress=False)


def test_nuts_is_asked_of_a_fit_alone(fit):
    """The same numbers as from posterior and rows given by hand; and a fit with another word."""
    model, few = fit.model, {"num_draws": 100, "num_warmup": 100, "progress": False}
    by_hand = sgld.reference(model.posterior, model.data, **few)
    np.testing.assert_array_equal(sgld.reference(fit, **few).flat()[0], by_hand.flat()[0])
    confirmed = sgld.confirm(fit, by_hand)
    assert type(confirmed) is type(fit) and "NUTS" in str(confirmed.verdict)
    assert fit.verdict is not confirmed.verdict
    with pytest.raises(UsageError, match="run must be draws, a fit or the directory of a run"):
        sgld.confirm(None, by_hand)


def test_half_the_step_is_asked_of_a_fit_alone(fit):
    half = sgld.step_halving(fit)
    by_hand = sgld.step_halving(fit.model.posterior, fit.model.data, fit)
    np.testing.assert_array_equal(half.mean, by_hand.mean)
    assert sgld.confirm(fit, half).verdict.word in ("trusted", "unknown")


def test_draws_that_do_not_know_their_posterior_say_so():
    draws = sgld.sample(
        sgld.Posterior(lambda t: -0.5 * t**2), None, 0.0, num_draws=50, progress=False
    )
    few = {"num_draws": 50, "num_warmup": 50, "progress": False}
    assert sgld.reference(draws, **few).names == draws.names  # begins at one of them
    strangers = replace(draws, origin=None)
    for function in (sgld.reference, sgld.step_halving):
        name = function.__name__
        with pytest.raises(
            UsageError, match=rf"hold no posterior .* sgld\.{name}\(posterior, data"
        ):
            function(strangers, progress=False)
    with pytest.raises(UsageError, match="draws must be those of a run"):
        sgld.step_halving(sgld.Posterior(lambda t: -0.5 * t**2), None)
