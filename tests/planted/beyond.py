"""Bugs in what is looked at beyond the Gaussian, on the reported scale, and in what is refused."""

from .mutant import Mutant

BEYOND = "tests/unit/tune/test_beyond.py::"
FAULTS = BEYOND + "test_gradients_of_another_function_are_found"
KINKS = BEYOND + "test_kinks_are_no_fault"
FAR = BEYOND + "test_mass_beyond_4_sds_is_seen"
STUDENT = BEYOND + "test_the_share_of_a_student_t_is_its_integral"
SETTLED = BEYOND + "test_chains_that_have_been_far_out_settle_a_doubt_about_tails"
KNOWN_TAILS = "tests/unit/diagnose/test_known_tails.py::"
REPORTED = "tests/unit/diagnose/test_reported.py::"
REPEATED = "tests/unit/test_repeatable.py::"
SHELLS = "tests/unit/tune/test_shells.py::"
UNSHOWN = "tests/unit/tune/test_unshown.py::"
RULES = "tests/unit/diagnose/test_verdict.py::test_rules"

BEYOND_BUGS = [
    Mutant(
        "energies: kinks are taken for jumps",
        "for count in panels:",
        "for count in ():",
        KINKS,
    ),
    Mutant(
        "energies: the quadrature's weights are those of [-1, 1]",
        "np.tile(weights / 2, panels)",
        "np.tile(weights, panels)",
        BEYOND + "test_gradients_of_smooth_densities_belong_to_them",
    ),
    Mutant(
        "energies: rounding counts as a fault",
        "MAX_GRADIENT_MISFIT + rounding(lines) +",
        "MAX_GRADIENT_MISFIT +",
        BEYOND + "test_rounding_is_no_fault",
    ),
    Mutant(
        "energies: a suspicion on some rows is told as it is",
        "if size > MAX_GRADIENT_MISFIT and some is not problem:",
        "if size < 0:",
        BEYOND + "test_a_jump_on_some_rows_is_told_where_all_rows_see_it",
    ),
    Mutant(
        "energies: a wrong gradient is no doubt",
        'doubts.append(Doubt("gradient", named_misfit(size)))',
        "pass",
        FAULTS,
    ),
    Mutant(
        "rays: looked at out to 40 sds",
        "np.arange(40, 400, 3.0), 400 * 1.9 ** np.arange(10),",
        "",
        FAR,
    ),
    Mutant(
        "rays: the other parameters stay at the mode's",
        "columns = gaussian.spread(gaussian.pull(units))",
        "columns = units * gaussian.variance",
        BEYOND + "test_rays_follow_what_is_correlated",
    ),
    Mutant(
        "rays: mass for the second moment",
        "moment = t**order * np.exp(value - value.max())",
        "moment = np.exp(value - value.max())",
        STUDENT,
    ),
    Mutant(
        "rays: no top is searched for",
        "for k, at in rises[:MAX_BRACKETS]:",
        "for k, at in rises[:0]:",
        BEYOND + "test_tops_on_rays_are_where_other_modes_are_looked_for",
    ),
    Mutant(
        "rays: at T the density is that at 1",
        "sums.differences(problem, center + away, center) / temperature",
        "sums.differences(problem, center + away, center)",
        BEYOND + "test_a_gaussian_has_its_share_at_every_temperature",
    ),
    Mutant(
        "rays: an overflow is a density of +inf",
        "value[:at].min(initial=0.0) > MIN_LOGP",
        "True",
        BEYOND + "test_a_scale_that_underflows_far_out_is_no_density_of_inf",
    ),
    Mutant(
        "profiles: without the others' determinant",
        "values.append(float(value + base - _half_log_det(J)))",
        "values.append(float(value))",
        BEYOND + "test_a_profile_has_the_others_volume",
    ),
    Mutant(
        "profiles: the others stay where they were",
        "z = trials[best]",
        "break",
        BEYOND + "test_a_curved_plateau_is_seen_by_its_profile_alone",
    ),
    Mutant(
        "shells: volumes do not count",
        "log = (center.size + 1) * np.log(t) + values",
        "log = 2 * np.log(t) + values",
        SHELLS + "test_the_share_of_a_halo_is_its_integral",
    ),
    Mutant(
        "shells: mass for the second moment",
        "log = (center.size + 1) * np.log(t) + values",
        "log = (center.size - 1) * np.log(t) + values",
        SHELLS + "test_the_share_of_a_halo_is_its_integral",
    ),
    Mutant(
        "shells: the heaviest ray decides alone",
        "order = np.argsort(-each)[IGNORED_RAYS:]",
        "order = np.argsort(-each)[:1]",
        SHELLS + "test_a_ray_in_a_ridge_is_left_out",
    ),
    Mutant(
        "shells: at T the density is that at 1",
        "reshape(len(v), len(t)) / T",
        "reshape(len(v), len(t))",
        SHELLS + "test_a_gaussian_has_its_share_at_every_temperature",
    ),
    Mutant(
        "shells: rays in the parameters' own units",
        "v = gaussian.tempered(temperature).spread(v / np.linalg.norm(v, axis=1)[:, None])",
        "v = v / np.linalg.norm(v, axis=1)[:, None] * np.sqrt(temperature)",
        SHELLS + "test_correlation_and_scale_change_nothing",
    ),
    Mutant(
        "shells: coarse points alone",
        "REFINEMENT_ROUNDS = 2",
        "REFINEMENT_ROUNDS = 0",
        SHELLS + "test_the_share_of_a_halo_is_its_integral",
    ),
    Mutant(
        "shells: what they hold is no doubt",
        "if not found.share > mass_detectors.MIN_SHELL_SHARE:",
        "if True:",
        SHELLS + "test_a_halo_in_ten_dimensions_that_no_ray_sees_is_doubted",
    ),
    Mutant(
        "shells: settled by chains that have been nowhere",
        "far >= MIN_SEEN_SHARE * doubt.share * np.sum(weights * square)",
        "far >= 0.0",
        SHELLS + "test_a_halo_in_ten_dimensions_that_no_ray_sees_is_doubted",
    ),
    Mutant(
        "shells: what a known mode explains is doubted still",
        "np.linalg.norm(other.whiten(z)) <= np.sqrt(z.size) + rays.GAUSSIAN_SDS",
        "False",
        SHELLS + "test_what_a_known_mode_explains_is_not_doubted",
    ),
    Mutant(
        "modes: a lattice is not followed to its end",
        "others = more_modes(problem, at, rng, found, modes.z, apart)",
        "others = []",
        SHELLS + "test_a_search_among_several_modes_goes_on_until_it_finds_no_other",
    ),
    Mutant(
        "modes: free chains from more of them than can be weighed",
        "if too_many_modes(problem, known):",
        "if False:",
        SHELLS + "test_no_chains_are_kept_in_more_modes_than_can_have_them",
    ),
    Mutant(
        "modes: many are apart in their sds, whatever mass lies beyond",
        "doubt.valley(modes.z) < MIN_ISOLATION_NATS",
        "False",
        SHELLS + "test_no_chains_are_kept_in_more_modes_than_can_have_them",
    ),
    Mutant(
        "modes: mass far out on the way to none of them",
        "if not np.any((others - center) @ self.toward / far >= 0.5):",
        "if False:",
        SHELLS + "test_no_chains_are_kept_in_more_modes_than_can_have_them",
    ),
    Mutant(
        "doubts: what a known mode explains is doubted still",
        "return found, modes, unexplained(problem, beyond.doubts, modes, T)",
        "return found, modes, beyond.doubts",
        BEYOND + "test_tops_on_rays_are_where_other_modes_are_looked_for",
    ),
    Mutant(
        "doubts: a mode explains the foot that it stands on",
        "explained |= own & (predicted > ray.value - MAX_EXPLAINED_LOGP)",
        "explained |= np.abs(ray.t - near) < 1e3 * sd",
        BEYOND + "test_a_narrow_mode_on_a_foot_is_met_by_its_rise",
    ),
    Mutant(
        "doubts: what is beside modes counts with them",
        "kept = ~within(masses.t, known)",
        "kept = ~within(masses.t, ())",
        BEYOND + "test_a_narrow_mode_on_a_foot_is_met_by_its_rise",
    ),
    Mutant(
        "doubts: settled by draws without their weights",
        "share = np.ones(z.shape[:2]) if weights is None else weights",
        "share = np.ones(z.shape[:2])",
        SHELLS + "test_draws_settle_a_doubt_by_their_weights",
    ),
    Mutant(
        "rays: a narrow mode between the points",
        "t = _points(FINE_INSIDE_SDS, FINE_SDS)",
        "t = _points(FINE_INSIDE_SDS, OUTSIDE_SDS)",
        BEYOND + "test_a_narrow_mode_on_a_foot_is_met_by_its_rise",
    ),
    Mutant(
        "several: how many trajectories there were is not told",
        '"nu": evidence["nu"], "excess": None, "exact": "HMC", "divergences": trajectories.divergences,\n        "trajectories": trajectories.num, "e_bfmi"',
        '"nu": evidence["nu"], "excess": None, "exact": "HMC", "divergences": trajectories.divergences,\n        "trajectories": 0, "e_bfmi"',
        "tests/unit/tune/test_from_modes.py::test_modes_30_sds_apart_are_weighed",
    ),
    Mutant(
        "doubts: settled by chains that have been nowhere",
        "far * (1 - doubt.share) >= wanted and 2 * outer * (1 - doubt.share) >= wanted",
        "far >= 0.0",
        SETTLED,
    ),
    Mutant(
        "doubts: settled by chains on the other side",
        "there = (np.sign(place) * t > (doubt.edge or GAUSSIAN_SDS))",
        "there = (-np.sign(place) * t > GAUSSIAN_SDS)",
        BEYOND + "test_only_the_side_of_the_doubt_settles_it",
    ),
    Mutant(
        "reported: by the linearisation where the map bends",
        "ratio=np.where(bent, sd / true, linear.ratio)",
        "ratio=linear.ratio",
        REPORTED + "test_an_sd_of_z_that_is_off_is_off_by_more_where_the_map_bends",
    ),
    Mutant(
        "reported: draws are moved, but not to the corrected mean",
        "mean + free.mean_shift + (z - mean) / ratio",
        "mean + (z - mean) / ratio",
        REPORTED + "test_a_mean_of_z_that_is_off_moves_what_is_reported",
    ),
    Mutant(
        "reported: draws are moved away from the corrected sd",
        "free.mean_shift + (z - mean) / ratio",
        "free.mean_shift + (z - mean) * ratio",
        REPORTED + "test_an_sd_of_z_that_is_off_is_off_by_more_where_the_map_bends",
    ),
    Mutant(
        "tails: the largest Pareto k of hundreds is held against the limit of one",
        "k >= np.fmax(MIN_HEAVY_PARETO_K, chance)",
        "k >= MIN_HEAVY_PARETO_K / 4",
        REPORTED + "test_tails_of_gaussians_are_light",
    ),
    Mutant(
        "rule: what the meter sees in part counts in full",
        "share = np.where(r2 < MIN_PRINTED_R2, np.clip(r2, MIN_R2, 1.0), 1.0)",
        "share = np.ones_like(r2)",
        RULES,
    ),
    Mutant(
        "rule: no guard for runs that are too narrow",
        "return error / np.where(ratio < 1, share**2, share)",
        "return error / share",
        RULES,
    ),
    Mutant(
        "step-halving: overrules a doubt about tails",
        "elif doubts:",
        "elif False:",
        "tests/unit/test_halving.py::test_a_doubt_about_tails_survives_half_the_step",
    ),
    Mutant(
        "model: what changes between two calls is let through",
        "if not np.array_equal(once, again, equal_nan=True):",
        "if False:",
        REPEATED + "test_what_changes_between_two_calls_is_refused",
    ),
    Mutant(
        "model: addresses count as a change, and NaN is no NaN",
        "np.array_equal(once, again, equal_nan=True)",
        "(first is second)",
        REPEATED + "test_functions_are_not",
    ),
    Mutant(
        "unshown rows: the size of a gradient counts",
        "return slope / jnp.maximum(jnp.linalg.norm(slope, axis=1, keepdims=True), 1.0)",
        "return slope * largest",
        UNSHOWN + "test_a_level_too_large_to_be_taken_whole_is_sampled_evenly",
    ),
    Mutant(
        "unshown rows: none of a direction that no row of the choice tells of",
        "few = ways @ vectors[:, rows < min(MIN_DIRECTION_ROWS, MIN_EVEN_SHARE * MAX_WHOLE_ROWS / d)]",
        "few = ways @ vectors[:, (rows > 0.5) & (rows < min(MIN_DIRECTION_ROWS, MIN_EVEN_SHARE * MAX_WHOLE_ROWS / d))]",
        UNSHOWN + "test_both_modes_of_a_rare_level_are_found",
    ),
    Mutant(
        "unshown rows: all that point there are taken, however many",
        "chance = min(ROWS_PER_DIRECTION, MAX_INFLUENTIAL_ROWS / informed.sum())",
        "chance = 1e6",
        UNSHOWN + "test_a_level_too_large_to_be_taken_whole_is_sampled_evenly",
    ),
    Mutant(
        "unshown rows: not looked for where the prior makes the curvature",
        "finite = np.isfinite(share)",
        "finite = np.isfinite(share) & (np.abs(share) > MIN_CURVATURE_SHARE)",
        UNSHOWN + "test_one_row_is_taken_where_the_prior_makes_the_curvature",
    ),
    Mutant(
        "unshown rows: rays go without them",
        "some = with_influential_rows(problem, MAX_WHOLE_ROWS, apart)",
        "some = problem.first(MAX_WHOLE_ROWS)",
        UNSHOWN + "test_without_them_neither_rays_nor_the_search_see_the_other_mode",
    ),
    Mutant(
        "unshown rows: the search for other modes goes without them",
        "some = with_influential_rows(problem, MODE_SEARCH_ROWS, apart)",
        "some = problem.first(MODE_SEARCH_ROWS)",
        UNSHOWN + "test_both_modes_of_a_rare_level_are_found",
    ),
    Mutant(
        "unshown rows: those among the first ones count twice",
        "numbers = np.append(np.arange(count), apart[apart >= count])",
        "numbers = np.append(np.arange(count), apart)",
        UNSHOWN + "test_rows_apart_are_added_once",
    ),
    Mutant(
        "doubts: the first one hides the others",
        "        if some is problem or k < MAX_WHOLE_RAYS or confirmed:",
        "        if not confirmed:",
        BEYOND + "test_every_suspicion_is_told_and_each_side_by_itself",
    ),
    Mutant(
        "doubts: a ray's one side hides the other",
        "    for far in ray.sides():",
        "    for far in ray.sides()[:1]:",
        BEYOND + "test_every_suspicion_is_told_and_each_side_by_itself",
    ),
    Mutant(
        "doubts: a mode explains what lies beside it",
        "own & (predicted > ray.value - MAX_EXPLAINED_LOGP)",
        "own",
        BEYOND + "test_a_mode_explains_what_is_as_dense_as_its_gaussian_says",
    ),
    Mutant(
        "doubts: settled by the inner half alone",
        "far * (1 - doubt.share) >= wanted and 2 * outer * (1 - doubt.share) >= wanted",
        "far * (1 - doubt.share) >= wanted",
        BEYOND + "test_the_outer_half_of_a_side_is_asked_for_by_itself",
    ),
    Mutant(
        "tails: known though the density has another",
        "found[i] = alike and ray.beyond",
        "found[i] = ray.beyond",
        KNOWN_TAILS + "test_a_tail_that_no_ray_explains_is_not_known",
    ),
    Mutant(
        "tails: known though most of the fourth moment is unseen",
        "order=4) < MIN_UNSEEN_SHARE",
        "order=2) < MIN_UNSEEN_SHARE",
        KNOWN_TAILS + "test_a_tail_without_a_fourth_moment_is_never_known",
    ),
]
