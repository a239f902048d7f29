"""In runs on several devices, plans of them, data that grow, and runs that are watched."""

from .mutant import Mutant

SHARDED = "tests/unit/data/test_sharded.py::"
LIVE = "tests/unit/report/test_live.py::"

STREAMED = "tests/unit/models/test_streamed.py::"

SCALE = [
    Mutant(
        "mesh: a process whose rows are refused leaves the others waiting",
        "with raise_together():  # an error in one process's rows", "if True:  # an error in one process's rows",
        "tests/unit/test_together.py::test_what_the_rows_of_one_may_not_be_is_said_by_all",
    ),
    Mutant(
        "streamed: ends of a column may be rows that are not shown",
        "            found.add(most)", "            found.add(least)",
        STREAMED + "test_what_many_rows_teach_is_learnt_from_some",
    ),
    Mutant(
        "streamed: the norms of polynomials are those of the rows shown",
        "if pair[0] == NORMS_KEY and more > 1:", "if pair[0] == NORMS_KEY and more < 1:",
        STREAMED + "test_what_many_rows_teach_is_learnt_from_some",
    ),
    Mutant(
        "streamed: without an intercept columns are scaled about their means",
        "second, mean = second + np.outer(mean, mean), np.zeros_like(mean)", "mean = np.zeros_like(mean)",
        STREAMED + "test_a_design_in_blocks_is_that_in_memory",
    ),
    Mutant(
        "streamed: a file that changed is taken for the run's",
        "        if part.digest != now:", "        if False:",
        STREAMED + "test_a_run_whose_file_changed_is_not_taken_up",
    ),
    Mutant(
        "fewer: rows with an empty cell keep their numbers",
        "(still - np.searchsorted(rows, still))", "still",
        STREAMED + "test_rows_are_dropped_as_if_they_had_never_been",
    ),
    Mutant(
        "fewer: what is dropped later is counted among all rows",
        "return np.union1d(before, _earlier(before, np.sort(rows)))", "return np.union1d(before, rows)",
        STREAMED + "test_rows_are_dropped_as_if_they_had_never_been",
    ),
    Mutant(
        "streamed: dropped rows are read again",
        "left[here] = False", "left[here] = True",
        STREAMED + "test_rows_are_dropped_as_if_they_had_never_been",
    ),
    Mutant(
        "streamed: a level whose last row went is kept in silence",
        "if now != before:", "if False:",
        STREAMED + "test_a_run_on_the_disk_forgets_rows",
    ),
    Mutant(
        "streamed: what was learnt of a query's rows is used for others",
        "if not self.known:\n            return self._estimate()", "if False:\n            return self._learn()",
        STREAMED + "test_a_query_that_names_its_files_is_asked_anew",
    ),
    Mutant(
        "streamed: passes of a formula are not mapped over workers",
        "workers=self.workers)", "workers=None)",
        STREAMED + "test_passes_of_a_formula_are_mapped_over_workers",
    ),
    Mutant(
        "streamed: blocks of the design are made here",
        "if self.workers is None else (BLOCKS_AT_ONCE, self.workers)", "if True else (BLOCKS_AT_ONCE, self.workers)",
        STREAMED + "test_workers_make_the_same_design",
    ),
    Mutant(
        "merged: new rows are numbered from 0",
        "first=old[\"num_data\"]", "first=0",
        STREAMED + "test_appended_rows_are_laid_among_the_others_as_if_all_were_read",
    ),
    Mutant(
        "merged: rows between two pieces are left to the end",
        "places = np.searchsorted(own, keyed)", "places = np.full(len(keyed), len(own))",
        STREAMED + "test_appended_rows_are_laid_among_the_others_as_if_all_were_read",
    ),
    Mutant(
        "mesh: a block's last rows are left out where it does not begin on the first device",
        "min((size + D - 2) // D + 1, held)", "min(-(-size // D), held)",
        SHARDED + "test_a_block_holds_the_rows_of_the_block_in_memory",
    ),
    Mutant(
        "mesh: what fills a block up counts",
        "(numbers >= start) & (numbers < end)", "(numbers >= start) & (numbers >= 0)",
        SHARDED + "test_a_block_holds_the_rows_of_the_block_in_memory",
    ),
    Mutant(
        "mesh: a row is taken from every device that has one at its place",
        "own = mine.reshape(", "own = True | mine.reshape(",
        SHARDED + "test_the_contract_holds_over_any_number_of_devices",
    ),
    Mutant(
        "mesh: rows in every batch count again where they fill up",
        "weight=join(weight, own, fill=0.0)", "weight=join(weight, own)",
        SHARDED + "test_a_block_holds_the_rows_of_the_block_in_memory",
    ),
    Mutant(
        "mesh: every device holds all rows",
        "return NamedSharding(mesh, PartitionSpec(DATA))", "return NamedSharding(mesh, PartitionSpec())",
        SHARDED + "test_each_of_four_devices_holds_a_fourth_of_the_rows",
    ),
    Mutant(
        "mesh: processes with different tables go on",
        "    if other is not None:\n        raise DataError(", "    if False:\n        raise DataError(",
        SHARDED + "test_processes_with_other_rows_are_told_so",
    ),
    Mutant(
        "mesh: processes with tables of one shape are taken for the same",
        "other = first_differing_process(source.hash())", "pass",
        SHARDED + "test_processes_with_other_rows_are_told_so",
    ),
    Mutant(
        "mesh: a refusal of one process is kept from the others",
        "if not failed.any():", "if failed.any():",
        "tests/unit/test_together.py::test_a_refusal_of_one_is_that_of_all",
    ),
    Mutant(
        "mesh: each process says its own sentence",
        "if error is not None and first == jax.process_index():", "if error is not None:",
        "tests/unit/test_together.py::test_where_several_fail_all_say_what_the_first_says",
    ),
    Mutant(
        "mesh: a file is copied for every device",
        "alone = mesh.shape[DATA] == 1", "alone = mesh.shape[DATA] == 0",
        SHARDED + "test_rows_of_a_file_are_its_own_pages_or_copied_once",
    ),
    Mutant(
        "lengths: the last bit of a rate decides",
        "math.ceil(steps * (1 - 1e-6))", "math.ceil(steps)",
        "tests/unit/tune/test_lengths.py::test_the_last_bit_of_a_rate_decides_nothing",
    ),
    Mutant(
        "plan: passes are not divided among devices",
        "local = -(-rows // devices)", "local = rows",
        "tests/unit/tune/test_scaling.py::test_passes_are_divided_and_steps_are_not",
    ),
    Mutant(
        "plan: the look at all rows is forgotten",
        "+ SEARCH_GRADIENTS + TABLE_GRADIENTS + SURVEY_GRADIENTS", "+ TABLE_GRADIENTS",
        "tests/unit/tune/test_scaling.py::test_passes_are_those_of_a_run",
    ),
    Mutant(
        "update: rows that came do not move the centre",
        "for sign, rows in ((1.0, changed.added), (-1.0, changed.removed)):",
        "for sign, rows in ((0.0, changed.added), (-1.0, changed.removed)):",
        "tests/unit/models/test_update.py::test_appended_rows_give_the_posterior_of_all",
    ),
    Mutant(
        "update: rows that went come again",
        "(-1.0, changed.removed)", "(1.0, changed.removed)",
        "tests/unit/models/test_update.py::test_what_was_dropped_is_forgotten",
    ),
    Mutant(
        "update: few rows share the whole prior",
        "each = np.asarray(row_gradients(part, z, numbers), np.float64)",
        "from ..problem.rows import scores; each = np.asarray(scores(part, z, numbers), np.float64)",
        "tests/unit/models/test_update.py::test_a_strong_prior_makes_no_row_stand_out",
    ),
    Mutant(
        "update: only rows that move the centre matter",
        "if (square > MAX_ROW_INFO**2).any():", "if False:",
        "tests/unit/models/test_update.py::test_a_row_that_holds_a_third_of_a_direction_turns_the_gaussian",
    ),
    Mutant(
        "update: any number of rows is in every batch",
        "or len(influential) > (before.setup.batch_size or 0):", "or len(influential) > 10**9:",
        "tests/unit/models/test_update.py::test_where_many_rows_matter_all_are_weighed_anew",
    ),
    Mutant(
        "update: what the first plan said is forgotten",
        "notes = (note, *(old for old in before.notes if not old.startswith(CENTRE_MOVED_NOTE)))", "notes = (note,)",
        "tests/unit/models/test_update.py::test_what_the_first_plan_had_to_say_stays_said",
    ),
    Mutant(
        "formulas: known columns are taken as they are where something is made of them",
        "if not all(factor.eval_method.value in (\"lookup\", \"literal\") for factor in factors):", "if False:",
        "tests/unit/models/test_formula.py::test_known_columns_are_made_again_to_the_bit",
    ),
    Mutant(
        "formulas: cells are not looked at where columns are known",
        "check_cells(parsed.rhs, table, {*used, *numbers, outcome}, {*numbers, outcome})", "pass",
        "tests/unit/models/test_formula.py::test_known_columns_are_made_again_to_the_bit",
    ),
    Mutant(
        "update: dropped rows are read again",
        "left[rows] = False", "left[rows] = True",
        "tests/unit/models/test_update.py::test_what_was_dropped_is_forgotten",
    ),
    Mutant(
        "watch: a page of elsewhere may ask",
        'self.headers.get("Host") not in self.server.names:', 'self.headers.get("Host") is None:',
        "tests/end_to_end/test_watch.py::test_the_page_answers_this_machine_alone",
    ),
    Mutant(
        "watch: names are not safe",
        '<tr><th scope="row">{_name(name)}</th>', '<tr><th scope="row">{name}</th>',
        "tests/end_to_end/test_watch.py::test_what_a_stranger_named_is_only_shown",
    ),
    Mutant(
        "watch: draws that fill no chunk are forgotten",
        "parts.append(look.of(pending, flushed))", "parts.append({n: v[:0] for n, v in look.of(pending, flushed).items()})",
        "tests/end_to_end/test_watch.py::test_a_run_is_read_while_it_goes_on",
    ),
    Mutant(
        "watch: the limit of R-hat rises as the chains part",
        "limit, ess = e.most_r_hat,", "limit, ess = weighted.max_r_hat(np.fmin(e.ess, e.ess_square), e.num_chains, len(e.names)),",
        LIVE + "test_the_limit_of_r_hat_is_that_of_the_verdict",
    ),
    Mutant(
        "page: the limit of R-hat rises as the chains part",
        'statistics.max_r_hat(found.ess_alone,', 'statistics.max_r_hat(found.ess,',
        "tests/unit/report/test_page.py::test_the_limit_of_r_hat_is_the_verdicts",
    ),
    Mutant(
        "watch: a killed run goes on while any process has its number",
        "        return False\n    except OSError:  # no such", "        return True\n    except OSError:  # no such",
        LIVE + "test_a_run_is_at_work_while_a_process_has_its_lock_open",
    ),
    Mutant(
        "watch: every tab makes a page",
        "if self._answer is None or time.monotonic() >= self._until:", "if True:",
        LIVE + "test_pages_are_made_once_for_all_and_take_a_tenth_of_a_core",
    ),
    Mutant(
        "watch: all parameters of a network are held",
        "columns = np.arange(width) if whole else _evenly(width)", "columns = np.arange(width)",
        LIVE + "test_what_is_looked_at_is_bounded",
    ),
    Mutant(
        "watch: draws of a chunk are taken for others",
        "at = slice(-first % self.every, None, self.every)", "at = slice(0, None, self.every)",
        LIVE + "test_what_is_looked_at_is_bounded",
    ),
    Mutant(
        "watch: networks are looked at by their weights",
        "return None\n        if self.predicted is not None:", "return None\n        if False and self.predicted is not None:",
        LIVE + "test_a_network_is_looked_at_by_its_predictions",
    ),
    Mutant(
        "cache: a folder that lost its lock stays for ever",
        "if time.time() - path.stat().st_mtime > STALE_AFTER_SECONDS:\n                        shutil.rmtree",
        "if False:\n                        shutil.rmtree",
        "tests/unit/disk/test_bad_files.py::test_a_folder_that_lost_its_lock_long_ago_is_removed",
    ),
]  # fmt: skip
