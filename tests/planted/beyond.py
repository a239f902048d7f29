"""Bugs in what is looked at beyond the Gaussian, on the reported scale, and in what is refused."""

from .mutant import Mutant

BEYOND = "tests/unit/tune/test_beyond.py::"
FAULTS = BEYOND + "test_gradients_of_another_function_are_found"
KINKS = BEYOND + "test_kinks_are_no_fault"
FAR = BEYOND + "test_mass_beyond_4_sds_is_seen"
STUDENT = BEYOND + "test_the_share_of_a_student_t_is_its_integral"
SETTLED = BEYOND + "test_chains_that_have_been_far_out_settle_a_doubt_about_tails"
REPORTED = "tests/unit/diagnose/test_reported.py::"
REPEATED = "tests/unit/test_repeatable.py::"
SHELLS = "tests/unit/tune/test_shells.py::"
RULES = "tests/unit/diagnose/test_verdict.py::test_rules"

BEYOND_BUGS = [
    Mutant(
        "energies: kinks are taken for jumps",
        "gaussian/belonging.py",
        "for count in panels:",
        "for count in ():",
        KINKS,
    ),
    Mutant(
        "energies: the quadrature's weights are those of [-1, 1]",
        "gaussian/belonging.py",
        "np.tile(weights / 2, panels)",
        "np.tile(weights, panels)",
        BEYOND + "test_gradients_of_smooth_densities_belong_to_them",
    ),
    Mutant(
        "energies: rounding counts as a fault",
        "gaussian/belonging.py",
        "LARGEST + _rounding(problem, zs, center), before",
        "LARGEST, before",
        BEYOND + "test_rounding_is_no_fault",
    ),
    Mutant(
        "energies: a suspicion on some rows is told as it is",
        "gaussian/beyond.py",
        "if size > belonging.LARGEST and some is not problem:",
        "if size < 0:",
        BEYOND + "test_a_jump_on_some_rows_is_told_where_all_rows_see_it",
    ),
    Mutant(
        "energies: a wrong gradient is no doubt",
        "gaussian/beyond.py",
        'doubts.append(Doubt("gradient", belonging.named_misfit(size)))',
        "pass",
        FAULTS,
    ),
    Mutant(
        "rays: looked at out to 40 sds",
        "gaussian/rays.py",
        "np.concatenate([np.arange(NEAR, 400.0, 3.0), 400 * 1.9 ** np.arange(10)])",
        "np.arange(NEAR, 40.0, 3.0)",
        FAR,
    ),
    Mutant(
        "rays: the other parameters stay at the mode's",
        "gaussian/rays.py",
        "columns = gaussian.spread(gaussian.pull(units))",
        "columns = units * gaussian.variance",
        BEYOND + "test_rays_follow_what_is_correlated",
    ),
    Mutant(
        "rays: mass for the second moment",
        "gaussian/rays.py",
        "moment = t**2 * np.exp(value - value.max())",
        "moment = np.exp(value - value.max())",
        STUDENT,
    ),
    Mutant(
        "rays: no top is searched for",
        "gaussian/rays.py",
        "for k, at in rises[:BRACKETS]:",
        "for k, at in rises[:0]:",
        BEYOND + "test_tops_on_rays_are_where_other_modes_are_looked_for",
    ),
    Mutant(
        "rays: at T the density is that at 1",
        "gaussian/rays.py",
        "sums.differences(problem, center + away, center) / temperature",
        "sums.differences(problem, center + away, center)",
        BEYOND + "test_a_gaussian_has_its_share_at_every_temperature",
    ),
    Mutant(
        "rays: an overflow is a density of +inf",
        "gaussian/rays.py",
        "value[:at].min(initial=0.0) > NOTHING",
        "True",
        BEYOND + "test_a_scale_that_underflows_far_out_is_no_density_of_inf",
    ),
    Mutant(
        "profiles: without the others' determinant",
        "gaussian/profiles.py",
        "values.append(float(value + base - _half_log_det(J)))",
        "values.append(float(value))",
        BEYOND + "test_a_profile_has_the_others_volume",
    ),
    Mutant(
        "profiles: the others stay where they were",
        "gaussian/profiles.py",
        "z = trials[best]",
        "break",
        BEYOND + "test_a_curved_plateau_is_seen_by_its_profile_alone",
    ),
    Mutant(
        "shells: volumes do not count",
        "gaussian/shells.py",
        "log = (center.size + 1) * np.log(t) + values",
        "log = 2 * np.log(t) + values",
        SHELLS + "test_the_share_of_a_halo_is_its_integral",
    ),
    Mutant(
        "shells: mass for the second moment",
        "gaussian/shells.py",
        "log = (center.size + 1) * np.log(t) + values",
        "log = (center.size - 1) * np.log(t) + values",
        SHELLS + "test_the_share_of_a_halo_is_its_integral",
    ),
    Mutant(
        "shells: the heaviest ray decides alone",
        "gaussian/shells.py",
        "order = np.argsort(-each)[LEFT_OUT:]",
        "order = np.argsort(-each)[:1]",
        SHELLS + "test_a_ray_in_a_ridge_is_left_out",
    ),
    Mutant(
        "shells: at T the density is that at 1",
        "gaussian/shells.py",
        "reshape(len(v), len(t)) / T",
        "reshape(len(v), len(t))",
        SHELLS + "test_a_gaussian_has_its_share_at_every_temperature",
    ),
    Mutant(
        "shells: rays in the parameters' own units",
        "gaussian/shells.py",
        "v = gaussian.tempered(temperature).spread(v / np.linalg.norm(v, axis=1)[:, None])",
        "v = v / np.linalg.norm(v, axis=1)[:, None] * np.sqrt(temperature)",
        SHELLS + "test_correlation_and_scale_change_nothing",
    ),
    Mutant(
        "shells: coarse points alone",
        "gaussian/shells.py",
        "ROUNDS = 2",
        "ROUNDS = 0",
        SHELLS + "test_the_share_of_a_halo_is_its_integral",
    ),
    Mutant(
        "shells: what they hold is no doubt",
        "gaussian/beyond.py",
        "if not found.share > shells.HEAVY:",
        "if True:",
        SHELLS + "test_a_halo_in_ten_dimensions_that_no_ray_sees_is_doubted",
    ),
    Mutant(
        "shells: settled by chains that have been nowhere",
        "diagnose/doubted.py",
        "far >= SEEN * doubt.share * np.sum(weights * square)",
        "far >= 0.0",
        SHELLS + "test_a_halo_in_ten_dimensions_that_no_ray_sees_is_doubted",
    ),
    Mutant(
        "shells: what a known mode explains is doubted still",
        "gaussian/beyond.py",
        "np.linalg.norm(other.whiten(z)) <= np.sqrt(z.size) + rays.NEAR",
        "False",
        SHELLS + "test_what_a_known_mode_explains_is_not_doubted",
    ),
    Mutant(
        "modes: a lattice is not followed to its end",
        "gaussian/known.py",
        "found += more_modes(problem, at, rng, found, modes.z)",
        "found += []",
        SHELLS + "test_a_search_among_several_modes_goes_on_until_it_finds_no_other",
    ),
    Mutant(
        "modes: free chains from more of them than can be weighed",
        "tune/from_chains.py",
        "if hopelessly_many(problem, known):",
        "if False:",
        SHELLS + "test_no_chains_are_kept_in_more_modes_than_can_have_them",
    ),
    Mutant(
        "doubts: what a known mode explains is doubted still",
        "gaussian/known.py",
        "doubts = unexplained(problem, beyond.doubts, None if modes is None else modes.z[1:])",
        "doubts = beyond.doubts",
        BEYOND + "test_tops_on_rays_are_where_other_modes_are_looked_for",
    ),
    Mutant(
        "doubts: settled by chains that have been nowhere",
        "diagnose/doubted.py",
        "far >= SEEN * doubt.share * np.sum(weights * t**2)",
        "far >= 0.0",
        SETTLED,
    ),
    Mutant(
        "doubts: settled by chains on the other side",
        "diagnose/doubted.py",
        "there = (side * t > NEAR)",
        "there = (-side * t > NEAR)",
        BEYOND + "test_only_the_side_of_the_doubt_settles_it",
    ),
    Mutant(
        "reported: by the linearisation where the map bends",
        "diagnose/reported.py",
        "ratio=np.where(bent, sd / true, linear.ratio)",
        "ratio=linear.ratio",
        REPORTED + "test_an_sd_of_z_that_is_off_is_off_by_more_where_the_map_bends",
    ),
    Mutant(
        "reported: draws are moved, but not to the corrected mean",
        "diagnose/reported.py",
        "mean + free.mean_shift + (z - mean) / ratio",
        "mean + (z - mean) / ratio",
        REPORTED + "test_a_mean_of_z_that_is_off_moves_what_is_reported",
    ),
    Mutant(
        "reported: draws are moved away from the corrected sd",
        "diagnose/reported.py",
        "free.mean_shift + (z - mean) / ratio",
        "free.mean_shift + (z - mean) * ratio",
        REPORTED + "test_an_sd_of_z_that_is_off_is_off_by_more_where_the_map_bends",
    ),
    Mutant(
        "tails: the largest Pareto k of hundreds is held against the limit of one",
        "diagnose/tails.py",
        "k >= np.fmax(HEAVY, chance)",
        "k >= HEAVY / 4",
        REPORTED + "test_tails_of_gaussians_are_light",
    ),
    Mutant(
        "rule: what the meter sees in part counts in full",
        "diagnose/rule.py",
        "share = np.where(r2 < PRINTED_R2, np.clip(r2, MIN_R2, 1.0), 1.0)",
        "share = np.ones_like(r2)",
        RULES,
    ),
    Mutant(
        "rule: no guard for runs that are too narrow",
        "diagnose/rule.py",
        "return error / np.where(ratio < 1, share**2, share)",
        "return error / share",
        RULES,
    ),
    Mutant(
        "step-halving: overrules a doubt about tails",
        "referee/halving.py",
        "elif doubts:",
        "elif False:",
        "tests/unit/test_halving.py::test_a_doubt_about_tails_survives_half_the_step",
    ),
    Mutant(
        "model: what changes between two calls is let through",
        "problem/repeatable.py",
        "if not np.array_equal(*values, equal_nan=True):",
        "if False:",
        REPEATED + "test_what_changes_between_two_calls_is_refused",
    ),
    Mutant(
        "model: addresses count as a change, and NaN is no NaN",
        "problem/repeatable.py",
        "np.array_equal(*values, equal_nan=True)",
        "(first is second)",
        REPEATED + "test_functions_are_not",
    ),
]
