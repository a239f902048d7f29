"""Bugs in the search for what hides: needles, steps, halos in some parameters, values that come rarely."""

from .mutant import Mutant

VALLEYS = "tests/unit/tune/test_valleys.py::"
CLOUD = "tests/unit/tune/test_cloud.py::"
BEYOND = "tests/unit/tune/test_beyond.py::"
RARE = "tests/unit/diagnose/test_rare.py::"
ROUNDED = "tests/unit/diagnose/test_rounded.py::"
CHECK = "tests/unit/data/test_check.py::"
PRIOR = "tests/unit/models/test_formula.py::"
EXCHANGED = "tests/unit/tune/test_exchanged.py::"

HIDDEN = [
    Mutant(
        "cloud: evenly spread over r, not over its logarithm",
        "log_r = np.log(MAX_CLOUD_SDS) * u[:, d]", "log_r = np.log1p((MAX_CLOUD_SDS - 1) * u[:, d])",
        CLOUD + "test_a_narrow_mode_between_the_rays_is_near_a_top",
    ),
    Mutant(
        "cloud: directions of a cube",
        "xi = ndtri(u[:, :d])", "xi = u[:, :d]",
        CLOUD + "test_a_narrow_mode_between_the_rays_is_near_a_top",
    ),
    Mutant(
        "cloud: all that is denser than the Gaussian is a top",
        "value[more] > value[around[:, 1:]].max(axis=1)", "value[more] > -np.inf",
        CLOUD + "test_what_falls_outwards_has_no_top",
    ),
    Mutant(
        "cloud: a point is its own neighbour",
        "value[around[:, 1:]]", "value[around]",
        CLOUD + "test_a_narrow_mode_between_the_rays_is_near_a_top",
    ),
    Mutant(
        "cloud: of many rows no point is left",
        "MAX_CLOUD_POINTS, MAX_CLOUD_WORK // max(1, problem.num_data)", "MAX_CLOUD_POINTS, MAX_CLOUD_WORK // max(1, problem.num_data) ** 2 + 2",
        CLOUD + "test_many_rows_are_met_by_fewer_points",
    ),
    Mutant(
        "cloud: what it finds is told and not searched from",
        'tops += mass_detectors.tops_of_cloud(some, near, T)', 'mass_detectors.tops_of_cloud(some, near, T)',
        CLOUD + "test_a_needle_that_holds_half_the_mass_is_measured",
    ),
    Mutant(
        "valleys: one step hides all others",
        "len(found) < MAX_VALLEYS", "len(found) < 1",
        VALLEYS + "test_steps_on_both_sides_are_one_direction_and_across_each_other_two",
    ),
    Mutant(
        "valleys: the first guess of a direction is good enough",
        "        u = ways / np.linalg.norm(ways)\n", "",
        VALLEYS + "test_a_step_in_any_direction_is_turned_to",
    ),
    Mutant(
        "valleys: what is behind one counts from 4 sds on",
        "ray.sides(near=edge)", "ray.sides()",
        VALLEYS + "test_the_share_behind_a_valley_is_the_integral_there",
    ),
    Mutant(
        "valleys: every rise is a hill",
        "far.share > MIN_VALLEY_SHARE\n        ]", "far.share > 0]",
        VALLEYS + "test_what_falls_rises_by_little_or_holds_little_is_no_valley",
    ),
    Mutant(
        "valleys: the prior is held against no slope",
        "- away @ slope", "- 0.0 * away @ slope",
        VALLEYS + "test_the_prior_with_the_likelihoods_gaussian_is_the_density_where_that_is_one",
    ),
    Mutant(
        "valleys: of many rows the prior is not looked at",
        'ways += mass_detectors.directions(', "mass_detectors.directions(",
        VALLEYS + "test_a_step_across_two_parameters_is_doubted_until_draws_have_been_there[200000-6]",
    ),
    Mutant(
        "doubted: draws between a valley and 4 sds do not count",
        "t > (doubt.edge or GAUSSIAN_SDS)", "t > GAUSSIAN_SDS",
        VALLEYS + "test_a_step_across_two_parameters_is_doubted_until_draws_have_been_there[3000-20]",
    ),
    Mutant(
        "rays: hills within 4 sds are none",
        "MIN_RISE_SDS = 1.5", "MIN_RISE_SDS = 4.0", BEYOND + "test_a_hill_within_4_sds_is_a_top_too",
    ),
    Mutant(
        "rays: 3 sds from one point to the next",
        "np.arange(GAUSSIAN_SDS, 12, 0.5)", "np.arange(GAUSSIAN_SDS, 12, 3.0)",
        BEYOND + "test_a_step_up_between_two_points_of_a_coarse_ray_is_found",
    ),
    Mutant(
        "profiles: the others' width out there is not asked",
        "each = each + [", "each + [", BEYOND + "test_a_halo_in_half_of_the_parameters_shows_in_their_width",
    ),
    Mutant(
        "profiles: narrower counts as wider",
        "return max(0.0, at_mode - _half_log_det(J))", "return max(0.0, _half_log_det(J) - at_mode)",
        BEYOND + "test_a_halo_in_half_of_the_parameters_shows_in_their_width",
    ),
    Mutant(
        "profiles: where there is no curvature the others are as wide as 1",
        "return z, np.full_like(J, np.nan)", "return z, np.eye(int(others.sum()))",
        BEYOND + "test_a_profile_ends_where_there_is_no_curvature",
    ),
    Mutant(
        "rare values: the points weigh as if drawn from the draws' Gaussian",
        "log_w = -(wide**2 - 1) * np.sum(xi**2, axis=1) / 2", "log_w = np.zeros(count)",
        RARE + "test_a_value_that_comes_once_in_two_thousand_draws",
    ),
    Mutant(
        "rare values: told although many draws have seen them",
        "np.where(ess * chance < MIN_DECISIVE_DRAWS, error, 0.0)", "error", RARE + "test_what_many_draws_have_seen_is_theirs_to_judge",
    ),
    Mutant(
        "rare values: the error is of the variance",
        "(4 * np.maximum(ess, 1.0))", "np.maximum(ess, 1.0)",
        RARE + "test_a_value_that_comes_once_in_two_thousand_draws",
    ),
    Mutant(
        "rare values: the density is not asked",
        "if not asked.any():", "if True:", RARE + "test_what_the_density_has_not_there_is_no_error",
    ),
    Mutant(
        "rare values: the density is asked at T = 1",
        "(problem, points[numbers], mean) / temperature", "(problem, points[numbers], mean)",
        RARE + "test_the_density_is_asked_at_the_runs_temperature",
    ),
    Mutant(
        "rare values: found and not judged by",
        "sd_se = np.fmax(found.sd_se, rare_error(problem, left, ess, T))", "sd_se = found.sd_se",
        RARE + "test_a_rare_loss_is_not_trusted_from_draws_that_missed_it",
    ),
    Mutant(
        "rounded: not asked where an exact sampler was",
        "return rounded(problem, z)", "return None", ROUNDED + "test_draws_on_a_bound_are_told_and_by_name",
    ),
    Mutant(
        "rounded: numbers are as dense near 0",
        "MIN_FLOATS_PER_UNIT * np.spacing(np.abs(value))", "MIN_FLOATS_PER_UNIT * np.spacing(np.ones_like(value))",
        ROUNDED + "test_what_has_numbers_enough_is_not_told",
    ),
    Mutant(
        "rounded: an entry that never moves is on a bound",
        "np.where(np.ptp(value, axis=0) > 0, few.mean(axis=0), 0.0)", "few.mean(axis=0)",
        ROUNDED + "test_an_entry_that_never_moves_is_none_of_it",
    ),
    Mutant(
        "exchanges: none are tried",
        "*exchanges(some, near), *given", "*given",
        EXCHANGED + "test_the_search_begins_there",
    ),
    Mutant(
        "exchanges: one pair at a time",
        "for more in of([i for i in rest if i != other]):", "for more in [{i: i for i in rest if i != other}]:",
        EXCHANGED + "test_numbers_with_names_of_their_own_change_places",
    ),
    Mutant(
        "exchanges: the prior must be the same",
        "same = (np.abs(higher - prior) <= slack)", "same = (np.abs(higher) <= slack)",
        EXCHANGED + "test_a_sign_that_the_likelihood_does_not_see_is_turned_where_the_prior_has_one",
    ),
    Mutant(
        "exchanges: shares stay where they are",
        "leaf if axis is None else np.take(leaf, order, axis)", "leaf if axis is None or leaf.min() > 0 else np.take(leaf, order, axis)",
        EXCHANGED + "test_three_components_change_places_with_their_shares_on_a_simplex",
    ),
    Mutant(
        "exchanges: no blocks of a vector",
        "for first in {end - shape[0], end - size}:", "for first in set():",
        EXCHANGED + "test_what_changes_places_may_be_entries_of_one_vector_or_be_called_by_words[bumps]",
    ),
    Mutant(
        "exchanges: blocks are neighbours alone",
        "for components in (at.reshape(count, -1), at.reshape(-1, count).T):", "for components in (at.reshape(count, -1),):",
        EXCHANGED + "test_what_changes_places_may_be_entries_of_one_vector_or_be_called_by_words[kinds]",
    ),
    Mutant(
        "exchanges: no names of words",
        "if len(leaves) == count:", "if False:",
        EXCHANGED + "test_what_changes_places_may_be_entries_of_one_vector_or_be_called_by_words[words]",
    ),
    Mutant(
        "modes: the image of a bent one is a plateau",
        "if not other.gaussian.half_log_det > at.gaussian.half_log_det + MAX_VOLUME_ERROR:", "if False:",
        EXCHANGED + "test_the_image_of_a_bent_mode_is_kept",
    ),
    Mutant(
        "data: float32 rounds rows in silence",
        "if share[worst] > MAX_FLOAT32_LOSS_SDS:", "if False:",
        CHECK + "test_rows_that_float32_would_round_are_refused",
    ),
    Mutant(
        "data: rounding is judged by the size of the numbers",
        "np.where(seen.most > seen.least, np.sqrt(self.lost / seen.squares), 0.0)", "1e8 * np.sqrt(self.lost / seen.count) / seen.most",
        CHECK + "test_what_float32_holds_well_is_taken",
    ),
    Mutant(
        "data: what a table's cells lose is not looked at",
        "for loss in self._losses.values():", "for loss in ():",
        CHECK + "test_columns_of_files_that_float32_would_round_are_refused[parquet]",
    ),
    Mutant(
        "data: each piece's spread is its own",
        "+ apart**2 * self.count * count / whole", "",
        CHECK + "test_a_sorted_column_is_judged_by_the_spread_of_all_its_pieces",
    ),
    Mutant(
        "models: degrees of freedom down to 0",
        'MIN_OF_DISPERSION = {"df": 1.0}', "MIN_OF_DISPERSION = {}",
        PRIOR + "test_ties_leave_the_degrees_of_freedom_above_one",
    ),
]  # fmt: skip
