"""Bugs in the referee: rejection rates, step-halving, exact chains."""

from .mutant import Mutant

PROPOSALS = "tests/unit/referee/test_proposals.py::"
HALF = "tests/unit/referee/test_half_the_step.py::"
RICHARDSON = HALF + "test_the_bias_that_is_taken_away_is_of_the_orders_own"
HALVED = "tests/unit/test_halving.py::"
TRANSITIONS = (
    "tests/unit/referee/test_transitions.py::test_thinned_chains_are_every_so_many_transitions"
)

CONFIRM = "tests/unit/referee/test_confirm.py::"
STOPPED = (
    "tests/laws/test_faults.py::test_a_confirmation_stopped_before_any_call_is_there_or_is_not"
)

RAYS_SAY = "tests/unit/test_reference.py::test_half_of_the_chains_begin_where_rays_say_that_mass_is"
RAY_MISSED = (
    "tests/unit/test_reference.py::"
    "test_chains_that_mixed_where_a_ray_says_that_they_missed_mass_are_not_trusted"
)

REFEREE = [
    Mutant(
        "rejection rate: ratios above 1 make up for others",
        "-np.expm1(np.minimum(np.asarray(one(us, xi, zs.dtype.type(h))), 0.0))",
        "-np.expm1(np.asarray(one(us, xi, zs.dtype.type(h))))",
        "tests/laws/test_metropolis.py::test_rejections_of_a_gaussian_by_quadrature",
    ),
    Mutant(
        "rejection rate: failed chains propose too",
        "lambda leaf: leaf[draws.healthy].reshape", "lambda leaf: leaf.reshape",
        PROPOSALS + "test_a_chain_that_failed_proposes_nothing",
    ),
    Mutant(
        "rejection rate: at the run's first step",
        "draws.step_size[draws.healthy[0], -1]", "draws.step_size[draws.healthy[0], 0]",
        PROPOSALS + "test_the_step_of_a_run_is_its_last",
    ),
    Mutant(
        "step-halving: extrapolated away from step 0",
        "(lambda a, b: 2 * b - a)", "(lambda a, b: 2 * a - b)", RICHARDSON,
    ),
    Mutant(
        "step-halving: reshuffled bias taken for one of first order",
        'plan.setup.order in ("reshuffle", "symmetric")', 'plan.setup.order in ("symmetric",)',
        RICHARDSON,
    ),
    Mutant(
        "step-halving: the schedule of twice as many steps is not slowed",
        "old(t // 2) / 2", "old(t) / 2",
        HALF + "test_half_the_step_goes_through_the_same_schedule_in_twice_the_steps",
    ),
    Mutant(
        "step-halving: half the time between draws",
        '"thin": 2 * plan.setup.thin', '"thin": plan.setup.thin',
        HALF + "test_half_the_step_goes_through_the_same_schedule_in_twice_the_steps",
    ),
    Mutant(
        "step-halving: standard errors of the difference, not of what is extrapolated",
        "sd_se, mean_se = self.factor * self.sd_ratio_se, self.factor * self.mean_shift_se",
        "sd_se, mean_se = self.sd_ratio_se, self.mean_shift_se",
        HALVED + "test_the_verdict_holds_the_run_against_step_0_and_not_against_half_the_step",
    ),
    Mutant(
        "step-halving: the error of one run for that of two",
        "ratio * np.hypot(a.sd_se, b.sd_se)", "ratio * a.sd_se",
        HALF + "test_the_standard_errors_are_those_of_two_independent_runs",
    ),
    Mutant(
        "step-halving: a failed run is confirmed",
        'if "biased" in found or "not mixed" in found:',
        'if "biased" in found and "not mixed" in found:',
        HALVED + "test_a_run_that_failed_is_not_confirmed_by_half_the_step",
    ),
    Mutant(
        "exact chains: draws are not thinned",
        "repeat = jnp.where(warm, 1, thin)", "repeat = jnp.where(warm, 1, 1)", TRANSITIONS,
    ),
    Mutant(
        "exact chains: acceptance summed over transitions",
        "total[0] /= repeat", "total[0] *= 1", TRANSITIONS,
    ),
    Mutant(
        "exact chains: a draw is numbered by the transition it came from",
        "thin * np.arange(1, num_draws + 1)", "thin * np.arange(num_draws)", TRANSITIONS,
    ),
    Mutant(
        "exact chains: the step grows where too much is refused",
        "share * (aim - acceptance)", "share * (acceptance - aim)",
        "tests/unit/test_reference.py::"
        "test_a_window_measures_variances_and_dual_averaging_finds_the_aim",
    ),
    Mutant(
        "confirm: a reference that has not mixed is believed",
        'if by.verdict.word != "trusted":', "if False:",
        CONFIRM + "test_a_reference_that_is_not_trusted_decides_nothing",
    ),
    Mutant(
        "confirm: a doubt about modes is answered by chains that began in one",
        'by.info.get("num_modes", 1) < 2', 'by.info.get("num_modes", 1) < 1',
        CONFIRM + "test_doubts_about_modes_need_a_reference_that_began_in_several",
    ),
    Mutant(
        "confirm: an uncertain difference is a word",
        "sd_se.max() > MAX_SE_ALONE or mean_se.max() > MAX_SE", "sd_se.max() > 1",
        CONFIRM + "test_what_is_not_certain_leaves_the_word_and_is_told_once",
    ),
    Mutant(
        "confirm: what is told takes the place of every reason that begins like it",
        "if reason != before.get(by))", "if not reason.startswith(sentence[:12]))",
        CONFIRM + "test_what_is_not_certain_takes_no_reason_from_what_was_decided",
    ),
    Mutant(
        "confirm: heavy tails are confirmed",
        "heavy = heavy_tail(by)\n    if heavy is not None:", "heavy = heavy_tail(by)\n    if False:", CONFIRM + "test_doubts_about_tails_stay",
    ),
    Mutant(
        "confirm: failed chains are confirmed",
        'if draws.failures:\n        return "', 'if False:\n        return "',
        CONFIRM + "test_chains_that_failed_are_not_made_up_for",
    ),
    Mutant(
        "asked: draws alone are no start",
        "if init is None and posterior.init is None and", "if posterior.init is not None and",
        CONFIRM + "test_draws_that_do_not_know_their_posterior_say_so",
    ),
    Mutant(
        "confirm: a fit keeps the word it had",
        "return replace(run, draws=_compared(own, by))", "_compared(own, by)\n        return replace(run)",
        CONFIRM + "test_nuts_is_asked_of_a_fit_alone",
    ),
    Mutant(
        "asked: another fit's rows",
        "known.data if data is None else data, init\n", "jax.tree.map(lambda a: a[::-1], known.data), init\n",
        CONFIRM + "test_nuts_is_asked_of_a_fit_alone",
    ),
    Mutant(
        "confirm: half the step of another run counts",
        "a.names == b.names and np.array_equal(a.flat()[0], b.flat()[0])", "a.names == b.names",
        CONFIRM + "test_what_a_run_cannot_be_held_against",
    ),
    Mutant(
        "step-halving: doubts of the run's verdict are dropped",
        "for run in runs for d in run.verdict.doubts", "for run in runs[1:] for d in run.verdict.doubts",
        CONFIRM + "test_half_the_step_answers_no_doubt_about_modes_or_tails",
    ),
    Mutant(
        "step-halving: tails are not looked at",
        "            if heavy is not None:", "            if False:",
        CONFIRM + "test_half_the_step_sees_heavy_tails_that_no_verdict_named",
    ),
    Mutant(
        "confirmation: of other draws, left behind, still counts",
        "return found if fits else None", "return found",
        CONFIRM + "test_new_draws_in_the_directory_drop_it",
    ),
    Mutant(
        "confirmation: an edited table is sealed",
        "    table_of(run)  # raises unless the present table belongs to the run; its digest is kept too\n", "",
        CONFIRM + "test_an_edited_table_or_verdict_is_refused",
    ),
    Mutant(
        "confirmation: the table before its verdict",
        "if found in before:", "if False:", STOPPED,
    ),
    Mutant(
        "exact chains: all begin around one mode",
        "start = at.gaussian.whiten(modes.z)", "pass",
        "tests/unit/test_reference.py::"
        "test_chains_begin_around_every_mode_and_say_where_they_stay_apart",
    ),
    Mutant(
        "confirm: a reference of other rows is taken",
        "    if _other_rows(draws, by):\n", "    if False:\n",
        CONFIRM + "test_a_reference_of_other_rows_as_many_is_refused",
    ),
    Mutant(
        "exact chains: none begins where rays say that mass is",
        "if doubt.start is not None][", "if False][", RAYS_SAY,
    ),
    Mutant(
        "exact chains: trusted where they missed what a ray shows",
        "    if doubts:\n", "    if False:\n", RAY_MISSED,
    ),
    Mutant(
        "exact chains: a ray is believed to have been seen",
        "doubts = unsettled(known, z", "doubts = unsettled(Known(), z", RAY_MISSED,
    ),
    Mutant(
        "exact chains: a target acceptance that was given is raised too",
        "for nearer in HIGHER_TARGETS if target_acceptance is None else ():", "for nearer in HIGHER_TARGETS:",
        "tests/unit/test_reference.py::"
        "test_a_target_acceptance_is_raised_while_transitions_diverge_unless_it_is_given",
    ),
    Mutant(
        "a divergence is taken for a support that was left",
        "MIN_DIVERGED_RATIO * (1 + np.abs(z[0]).max())", "np.inf",
        "tests/unit/test_told.py::test_a_divergence_is_called_one_and_no_support_is_spoken_of",
    ),
]  # fmt: skip
