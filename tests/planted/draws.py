"""Bugs in what is said about draws: weighted statistics, tables, comparisons, what is stored."""

from .mutant import Mutant

DRAWS_TEST = "tests/unit/draws/test_draws.py::"
WEIGHTED = "tests/unit/draws/test_weighted.py::"
AUTOREGRESSION = WEIGHTED + "test_the_ess_of_an_autoregression"
ARVIZ = "tests/unit/draws/test_mixing.py::test_the_definitions_are_those_of_arviz"
SUMMARY = WEIGHTED + "test_a_row_of_the_summary_is_the_law_of_its_draws"
COMPARISON = "tests/unit/draws/test_comparison.py::"
REPLACING = (
    "tests/laws/test_faults.py::test_a_run_that_replaces_another_stopped_before_its_first_calls"
)
BINS = "tests/laws/test_histogram.py::"
CODEC, OLDER = (f"tests/unit/draws/test_{name}.py::" for name in ("codec", "older_runs"))
STORED = "tests/unit/draws/test_stored_order.py::"

DRAWS = [
    Mutant(
        "tags: a class is found by the last word of any path",
        "TAG_OF_FORMER_CLASS.get(written, written)", 'written.rpartition(".")[2]',
        CODEC + "test_a_file_that_names_anything_else_makes_no_object",
    ),
    Mutant(
        "tags: a user's class is taken for that of the same name",
        "next((tag for tag in tags if class_of(tag) is kind), None)", "next(tags, None)",
        CODEC + "test_a_class_of_the_same_name_is_not_taken_for_that_of_the_library",
    ),
    Mutant(
        "resume: digests of older versions are not recognised",
        "forms = (stable_name, former_name)", "forms = (stable_name,)",
        OLDER + "test_the_digest_of_a_part_names_no_module",
    ),
    Mutant(
        "resume: digests depend on the modules of held classes",
        "return OUR_CLASS.sub(renamed, text)", "return text",
        OLDER + "test_the_digest_of_a_part_names_no_module",
    ),
    Mutant(
        "overwrite: the run that is replaced goes at once",
        "        self.lock()\n        self.replacing = True", "        self.lock()\n        self.clear()",
        "tests/laws/test_refusals.py::test_a_refused_call_leaves_the_run_that_it_would_have_replaced",
    ),
    Mutant(
        "overwrite: the old run's files stay beside the new one's",
        "            self.clear()\n            self.replacing = False", "            self.replacing = False",
        "tests/laws/test_refusals.py::test_a_run_is_replaced_once_there_is_a_plan",
    ),
    Mutant(
        "overwrite: a folder in the place of a file is met when the run is half gone",
        "if path.is_dir() and not path.is_symlink():", "if path.is_symlink():",
        "tests/laws/test_refusals.py::test_a_folder_in_the_place_of_a_file_is_named_before_anything_goes",
    ),
    Mutant(
        "overwrite: whoever reads the run before is not told of the next",
        "        if not self.next():\n            return None", "        if self.path:\n            return None",
        REPLACING,
    ),
    Mutant(
        "overwrite: next.json goes with the old run, before run.json is written",
        "        if not self.replacing:\n            remove(self.path / NEXT_CHECKPOINT)", "        remove(self.path / NEXT_CHECKPOINT)", REPLACING,
    ),
    Mutant(
        "resume: shows the run that is to be replaced as if it were the next",
        "if asked and self.writes:", "if asked and not self.writes:", REPLACING,
    ),
    Mutant(
        "weighted variance: the divisor of equal weights",
        "share = (weights**2).sum() / weights.sum() ** 2", "share = 1 / weights.size",
        DRAWS_TEST + "test_moments_equal_those_of_replicated_draws",
    ),
    Mutant(
        "weighted quantile: a draw's own weight lies below it",
        "below = np.cumsum(w, axis=0) - w", "below = np.cumsum(w, axis=0)",
        WEIGHTED + "test_a_quantile_of_nearly_equal_weights_is_that_of_equal_ones",
    ),
    Mutant(
        "ESS: unequal weights cost nothing",
        "mixing.ess(values, method) * weight_share(weights)", "mixing.ess(values, method)",
        DRAWS_TEST + "test_unequal_weights_cost_effective_draws",
    ),
    Mutant(
        "ESS and R-hat: the last chain's halves are one",
        "x[..., :half], x[..., -half:]", "x[..., :half], x[..., :half]", ARVIZ,
    ),
    Mutant(
        "ESS and R-hat: equal values have ranks of their own",
        "first % size + last % size, count", "2 * (first % size), count", ARVIZ,
    ),
    Mutant(
        "ESS: the pair that ends the sequence does not count",
        "np.maximum(-1 + 2 * whole + half,", "np.maximum(-1 + 2 * whole,", ARVIZ,
    ),
    Mutant(
        "ESS: what lies between chains is no variance",
        "for variance in (total, alone)", "for variance in (alone, alone)", ARVIZ,
    ),
    Mutant(
        "ESS: sums of pairs may rise again",
        "np.minimum.accumulate(pairs, axis=1)", "pairs", ARVIZ,
    ),
    Mutant(
        "MCSE: a variance for an error",
        'np.sqrt(var(values, weights) / ess(values, weights, "mean"))',
        'var(values, weights) / ess(values, weights, "mean")', AUTOREGRESSION,
    ),
    Mutant(
        "intervals: all of what is left out on one side",
        "self.quantile((1 - prob) / 2, h)", "self.quantile(1 - prob, h)",
        DRAWS_TEST + "test_weighted_quantile_of_many_draws",
    ),
    Mutant(
        "weights: of failed chains too",
        "log_weight = self.log_weight[self.healthy]", "log_weight = self.log_weight",
        DRAWS_TEST + "test_failed_chains_are_left_out",
    ),
    Mutant(
        "summary: a variance in the column of sds",
        '"sd": np.sqrt(statistics.var(values, w))', '"sd": statistics.var(values, w)', SUMMARY,
    ),
    Mutant(
        "summary: the bulk's ESS in the tail's column",
        'statistics.ess(values, w, "tail")', 'statistics.ess(values, w, "bulk")',
        WEIGHTED + "test_the_tails_mix_apart_from_the_bulk",
    ),
    Mutant(
        "summary: cold and tempered change places",
        'if temperature.size == 1:\n        kind = "cold" if temperature[0] < 1', 'if temperature.size == 1:\n        kind = "cold" if temperature[0] > 1',
        WEIGHTED + "test_the_summary_names_the_law_of_a_temperature",
    ),
    Mutant(
        "comparison: names matched the other way round",
        "[reference.names.index(name) for name in draws.names]",
        "[draws.names.index(name) for name in reference.names]",
        COMPARISON + "test_names_that_have_gone_round_are_matched",
    ),
    Mutant(
        "comparison: a sd's error is its square's",
        "ratio * np.hypot(a.sd_se, b.sd_se)", "ratio * 2 * np.hypot(a.sd_se, b.sd_se)",
        "tests/unit/test_reference.py::test_compare_finds_known_shifts",
    ),
    Mutant(
        "comparison: in units of the draws' own sd",
        "(a.mean - b.mean) / b.sd", "(a.mean - b.mean) / a.sd",
        COMPARISON + "test_the_unit_is_the_sd_of_the_reference",
    ),
    Mutant(
        "files: renamed before they are on the disk",
        "            os.fsync(file.fileno())\n", "",
        "tests/laws/test_faults.py::test_stopped_before_each_of_the_last_calls",
    ),
    Mutant(
        "files: their folder is not flushed",
        "        flush_folder(path.parent)\n", "",
        "tests/laws/test_faults.py::test_a_run_writes_chunks_checkpoints_and_a_result",
    ),
    Mutant(
        "files: a seal that is not held against the content",
        "    if seal != sealed:", "    if seal is None:",
        "tests/laws/test_resume.py::test_a_setup_that_is_not_the_runs_own_is_refused",
    ),
    Mutant(
        "files: an archive that unpacks to more than it is",
        " or sum(member.file_size for member in members) > size", "",
        "tests/laws/test_hostile_run.py::test_an_archive_that_would_take_more_memory_than_it_has_bytes",
    ),
    Mutant(
        "files: a link is read through",
        "    if exists(path) and path.is_symlink():\n", "    if False:\n",
        "tests/laws/test_hostile_run.py::test_no_link_is_followed_or_written_through",
    ),
    Mutant(
        "run directory: the checkpoint of another attempt counts",
        'found[0].get("attempt") != self.attempt', "not found[0]",
        "tests/laws/test_faults.py::test_another_attempt_leaves_the_draws_of_the_one_before_aside",
    ),
    Mutant(
        "run directory: swapped chunks are taken",
        "if any(head.get(key) != value for key, value in asked.items()):", "if not head:",
        "tests/laws/test_faults.py::test_what_a_checkpoint_counts_on_is_held_against_it",
    ),
    Mutant(
        "run directory: files of other runs are taken",
        'if head.get("run") != self.id:', 'if "run" not in head:',
        "tests/laws/test_resume.py::test_a_setup_that_is_not_the_runs_own_is_refused",
    ),
    Mutant(
        "run directory: whatever holds a run.json is overwritten",
        "if not any(\n            {\"format\", \"id\"} <= self._json_or_empty(name).keys()\n            for name in (\"run.json\", NEXT_CHECKPOINT)\n        ):",
        'if not (self.path / "run.json").exists():',
        "tests/laws/test_hostile_run.py::test_overwrite_takes_runs_alone_and_leaves_what_is_not_theirs",
    ),
    Mutant(
        "result: written before the draws",
        '    run.write_arrays("draws.npz", {}, arrays)\n',
        '    run.write("result.json", result)\n    run.write_arrays("draws.npz", {}, arrays)\n',
        "tests/laws/test_faults.py::test_stopped_before_each_of_the_last_calls",
    ),
    Mutant(
        "verify: a plan that is gone is as it was written",
        'is None and "plan" in asked:', 'is None and "plans" in asked:',
        "tests/unit/draws/test_kept.py::test_a_finished_run_whose_plan_is_gone_is_not_as_it_was_written",
    ),
    Mutant(
        "result: another table is shown as the run's own",
        "files.get(name) != found:", "name not in files:",
        "tests/laws/test_hostile_run.py::test_whatever_harm_is_done_to_one_file",
    ),
    Mutant(
        "formulas: what hangs on a column is reached",
        "        if node.attr not in MEMBERS.get(module, ()):", "        if not node.attr:",
        "tests/unit/models/test_expression.py::test_a_hostile_formula_is_refused_in_a_sentence_and_runs_nothing",
    ),
    Mutant(
        "formulas: powers of any size",
        "and abs(power.value) <= MAX_POWER", "and power.value",
        "tests/unit/models/test_expression.py::test_a_hostile_formula_is_refused_in_a_sentence_and_runs_nothing",
    ),
    Mutant(
        "storage: the leaves of every dict in the order of their names",
        "list(tree) if isinstance(tree, OrderedDict) else sorted(tree)", "sorted(tree)",
        STORED + "test_every_leaf_keeps_its_name",
    ),
    Mutant(
        "storage: a number that is not finite becomes 0",
        "[np.nan if v is None else v for v in stored[name]]",
        "[0.0 if v is None else v for v in stored[name]]",
        STORED + "test_weights_status_and_verdict_come_back",
    ),
    Mutant(
        "histogram: room below where the draw is above",
        "jnp.where(below[..., None], down, up)", "jnp.where(below[..., None], up, down)",
        BINS + "test_every_draw_is_in_the_bin_where_it_belongs",
    ),
    Mutant(
        "histogram: draws that weigh nothing are counted",
        "jnp.isfinite(x) & (w > 0)", "jnp.isfinite(x)",
        BINS + "test_what_is_not_finite_or_weighs_nothing_is_left_out",
    ),
    Mutant(
        "histogram: quantiles of the first chain alone",
        "(end - start)).mean(axis=0)", "(end - start))[0]",
        BINS + "test_quantiles_of_several_chains_are_those_of_the_chains_together",
    ),
    Mutant(
        "moments: of a block of parameters about the means of the first",
        "self.mean[here]) ** 2", "self.mean[: len(self.mean[here])]) ** 2",
        "tests/unit/draws/test_weighted.py::test_moments_are_the_same_in_blocks_of_parameters",
    ),
    Mutant(
        "versions: a library that is too old is taken",
        "if version and version_numbers(version) < version_numbers(lowest):", "if False:",
        "tests/unit/test_versions.py::test_an_old_or_missing_library_is_named_with_the_command",
    ),
    Mutant(
        "compare_models: the best model is subtracted from itself",
        "apart = differences(best, one)", "apart = differences(best, best)",
        "tests/unit/test_versions.py::test_the_table_of_models_is_the_same_with_every_arviz",
    ),
    Mutant(
        "compare_models: weights are those of rows that were not taken",
        "_at_all_rows(one).to_arviz() for", "one.to_arviz() for",
        "tests/unit/test_versions.py::test_weights_of_a_subsample_are_not_equal",
    ),
    Mutant(
        "resume: a run of another JAX takes any model",
        "return np.allclose(\n        before, now, rtol=MAX_ROUNDING_ERROR", "return True or np.allclose(before, now, rtol=MAX_ROUNDING_ERROR",
        "tests/laws/test_resume.py::test_a_run_of_another_jax_refuses_another_model",
    ),
    Mutant(
        "digest: numbers inside functions that were compiled by themselves are left out",
        "        for equation in inside.eqns:\n            yield from _bound(tuple(",
        "        for equation in ():\n            yield from _bound(tuple(",
        "tests/unit/test_repeatable.py::test_a_digest_holds_the_numbers_wherever_they_are_bound",
    ),
    Mutant(
        "record: what of one's own is structure is left out",
        "without_addresses(jax.tree.structure(value))",
        '""',
        "tests/laws/test_resume.py::test_a_number_that_is_structure_is_held_against_the_first",
    ),
    Mutant(
        "record: the code of one's own class is left out",
        "return name + ast.unparse",
        "return name or ast.unparse",
        "tests/laws/test_resume.py::test_the_code_of_ones_own_class_is_held_against_the_first_but_for_comments",
    ),
    Mutant(
        "record: the numbers that a model is bound to are left out",
        "digest(trace(model, target, z0, row), *jax.tree",
        "digest(trace(lambda t, z, row: z, target, z0, row), *jax.tree",
        "tests/laws/test_resume.py::test_numbers_inside_compiled_functions_are_held_against_the_first",
    ),
    Mutant(
        "keep: a function that changes is let through",
        '    check_repeatable("keep",',
        '    (lambda *given: None)("keep",',
        "tests/unit/test_repeatable.py::test_what_else_a_run_asks_is_a_function_of_its_arguments_too",
    ),
    Mutant(
        "tails: k is of the lighter tail",
        "np.fmax(_k(ordered, M)",
        "np.fmin(_k(ordered, M)",
        "tests/unit/draws/test_mixing.py::test_pareto_k_is_that_of_arviz",
    ),
]  # fmt: skip
