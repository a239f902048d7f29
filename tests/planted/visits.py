"""Bugs in what chains know of mass far out: by visits, by what a ray says, by the error of an sd."""

from .mutant import Mutant

VISITS = "tests/unit/tune/test_visits.py::"

ESCAPES = "tests/unit/tune/test_escapes.py::"

VISITS_BUGS = [
    Mutant(
        "escapes: chains that stay count as if they had left",
        "there.max() < MAX_ESCAPE_STEPS and small",
        "small",
        ESCAPES + "test_a_mode_that_some_chains_do_not_leave_may_hold_mass",
    ),
    Mutant(
        "escapes: the entries of the run are not counted",
        "events = np.sum(t > place) / stay",
        "events = 0",
        ESCAPES
        + "test_a_place_that_is_entered_often_holds_mass_however_soon_chains_leave[200-True]",
    ),
    Mutant(
        "doubts: a share of nearly all is held by half of what makes it",
        "wanted = seen * doubt.share * np.sum(square, where=~there)",
        "wanted = seen * doubt.share * np.sum(square) * (1 - doubt.share)",
        "tests/unit/tune/test_beyond.py::test_only_the_side_of_the_doubt_settles_it",
    ),
    Mutant(
        "doubts: of one parameter half of what the density says is enough",
        "seen = MIN_SEEN_SHARE if z.shape[-1] > 1 else MIN_SEEN_ALONE_SHARE",
        "seen = MIN_SEEN_SHARE",
        VISITS + "test_of_one_parameter_draws_must_hold_what_the_density_says",
    ),
    Mutant(
        "visits: by chains none of which began there",
        "(began_there and _visited(d, known, z, share))",
        "_visited(d, known, z, share)",
        VISITS + "test_only_chains_some_of_which_began_there_settle_it_so",
    ),
    Mutant(
        "visits: by draws of no exact sampler",
        "exact and (_settled(d, known, z, share) or (began_there and _visited(d, known, z, share)))",
        "(exact and _settled(d, known, z, share)) or (began_there and _visited(d, known, z, share))",
        VISITS + "test_only_chains_some_of_which_began_there_settle_it_so",
    ),
    Mutant(
        "visits: by a few chains, however often",
        "if not np.mean(beyond.any(axis=1)) >= MIN_VISITING_SHARE:",
        "if not beyond.any():",
        VISITS + "test_a_doubt_is_settled_where_most_chains_have_been_often_enough",
    ),
    Mutant(
        "visits: once a chain is enough",
        "ess[0] * np.average(beyond, weights=weights) >= MIN_VISITS",
        "ess[0] * np.average(beyond, weights=weights) > 0",
        VISITS + "test_a_doubt_is_settled_where_most_chains_have_been_often_enough",
    ),
    Mutant(
        "visits: draws of one stay count one by one",
        "ess[0] * np.average(beyond, weights=weights) >= MIN_VISITS",
        "beyond.sum() >= MIN_VISITS",
        VISITS + "test_visits_that_are_one_long_stay_are_few",
    ),
    Mutant(
        "visits: on the other side",
        "beyond = np.sign(place) * t > abs(place)",
        "beyond = np.abs(t) > abs(place)",
        VISITS + "test_only_chains_some_of_which_began_there_settle_it_so",
    ),
    Mutant(
        "visits: of one parameter, where the ray is the density",
        "ray.position(gaussian.center, far.place) if problem.dimension > 1 else None",
        "ray.position(gaussian.center, far.place)",
        VISITS + "test_of_one_parameter_draws_must_hold_what_the_density_says",
    ),
    Mutant(
        "visits: chains begin beside a ray that bends",
        "bent = np.concatenate([before, zs])[order]",
        "bent = None",
        VISITS + "test_chains_begin_on_the_ray_where_it_bends",
    ),
    Mutant(
        "visits: points of a bent ray in another order than its distances",
        "bent = np.concatenate([before, zs])[order]",
        "bent = np.concatenate([before, zs])[::-1]",
        VISITS + "test_chains_begin_on_the_ray_where_it_bends",
    ),
    Mutant(
        "visits: no chain begins there",
        "last = chains // CHAIN_GROUPS if far else 0",
        "last = 0",
        VISITS + "test_the_last_group_of_chains_begins_there_and_stays_the_last",
    ),
    Mutant(
        "visits: chains that began there are spread over all groups",
        "np.lexsort((found.log_density, nearest, np.arange(chains) >= chains - begun.far))",
        "np.lexsort((found.log_density, nearest))",
        VISITS + "test_the_last_group_of_chains_begins_there_and_stays_the_last",
    ),
    Mutant(
        "visits: a run does not ask whether chains began there",
        "setup, began_there = plan.setup, plan.setup.starts is not None",
        "setup, began_there = plan.setup, False",
        VISITS + "test_what_a_profile_overstates_is_settled_by_a_run",
    ),
    Mutant(
        "visits: a plan with a ray cannot be stored",
        'approximation.rays": "Ray"',
        'approximation.rays": ""',
        VISITS + "test_a_run_with_a_doubt_on_a_ray_is_stored",
    ),
    Mutant(
        "modes: a plateau is one, 1e31 sds wide",
        "found += [other for other in others if not _exaggerates(problem, other, at, T)]\n        kept, modes = "
        "known_modes(found, T)\n        searched += 1",
        "found += others\n        kept, modes = known_modes(found, T)\n        searched += 1",
        VISITS + "test_a_plateau_is_no_mode_however_wide",
    ),
    Mutant(
        "tails: the error of an sd by ranks, of which a few stays far out are nothing",
        'np.fmin(found[heavy], ess(squares, self.weights, "mean"))',
        "found[heavy]",
        VISITS + "test_the_error_of_an_sd_counts_long_stays_in_the_tail",
    ),
    Mutant(
        "tails: too heavy by chance, and not watched for longer",
        "uncertain = exact_rule.MAX_EXACT_PARETO_K <= k < tails.MIN_HEAVY_PARETO_K",
        "uncertain = False",
        VISITS + "test_tails_that_may_only_seem_too_heavy_are_watched_for_longer",
    ),
    Mutant(
        "tails: watched for longer where more draws tell no more",
        "uncertain = exact_rule.MAX_EXACT_PARETO_K <= k < tails.MIN_HEAVY_PARETO_K",
        "uncertain = exact_rule.MAX_EXACT_PARETO_K <= k",
        VISITS + "test_tails_that_may_only_seem_too_heavy_are_watched_for_longer",
    ),
]
