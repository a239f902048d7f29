"""In data on disk: readers, the shuffle, the cache, and what a run reads."""

from .mutant import Mutant

OPEN = "tests/unit/disk/test_open.py::"
BAD = "tests/unit/disk/test_bad_files.py::"

WORKERS = "tests/unit/disk/test_workers.py::"

DISK = [
    Mutant(
        "contract: the order of all rows is made to look at a source",
        "least = -(-N // MAX_CHECKED_ENTRIES)", "least = 1",
        "tests/contracts/test_source.py::test_what_a_look_at_many_rows_holds_does_not_grow_with_them",
    ),
    Mutant(
        "cache: a file with its time set back is the same file",
        "found.st_ino, found.st_ctime_ns]", "found.st_ino]",
        OPEN + "test_bytes_that_changed_while_size_and_time_stay_are_seen",
    ),
    Mutant(
        "update: one that was stopped before its plan is resumed with another",
        'if asked.get("updates") and not is_planned(directory):', "if False:",
        "tests/unit/models/test_update.py::test_an_update_that_was_stopped_before_its_plan_is_made_again_not_resumed",
    ),
    Mutant(
        "workers: each adds the prior",
        "Problem(_Likelihood(target), source)", "Problem(target, source)",
        WORKERS + "test_sums_are_those_of_one_process",
    ),
    Mutant(
        "workers: all look at the first rows",
        "leaf[piece.begin : piece.end + 1]", "leaf[: piece.end + 1 - piece.begin]",
        WORKERS + "test_sums_are_those_of_one_process",
    ),
    Mutant(
        "workers: a folder of other rows is read",
        'if manifest.get("hash") != digest:', "if False:",
        WORKERS + "test_what_workers_may_be_and_what_becomes_of_their_failures",
    ),
    Mutant(
        "shuffle: pieces are numbered anew",
        "np.arange(self.count, self.count + len(records))", "np.arange(len(records))",
        OPEN + "test_every_kind_of_file_lies_in_the_order_of_memory",
    ),
    Mutant(
        "shuffle: the parts of a range are not merged",
        "order = np.argsort(keys(numbers, self.seed))", "order = np.arange(len(numbers))",
        OPEN + "test_every_kind_of_file_lies_in_the_order_of_memory",
    ),
    Mutant(
        "cache: no spare row at the end",
        "writer.write(row)  # a spare", "writer.write(bytes(len(row)))  # a spare",
        OPEN + "test_all_columns_are_a_dict_by_name",
    ),
    Mutant(
        "cache: files that changed are believed",
        "return before == _stamps(folder, manifest)", "return True",
        BAD + "test_a_damaged_cache_is_made_anew",
    ),
    Mutant(
        "cache: blocks are read and not held against their hashes",
        "hashlib.sha256(part).hexdigest() != block", "len(part) == 0",
        BAD + "test_a_damaged_cache_is_made_anew",
    ),
    Mutant(
        "cache: a file that changed is taken for the one before",
        'if seen["stamp"] == before:', 'if seen["stamp"]:',
        OPEN + "test_what_is_remembered_of_a_file_is_no_older_than_it",
    ),
    Mutant(
        "cache: what a killed conversion left stays",
        "                if _locked(lock):\n", "                if False:\n",
        BAD + "test_a_conversion_that_is_killed_is_made_anew",
    ),
    Mutant(
        "cache: a conversion at work is swept away",
        "                if _locked(lock):\n", "                if True:\n",
        BAD + "test_a_conversion_at_work_is_left_alone",
    ),
    Mutant(
        "open: a file that changes while it is read is taken",
        "        if stamp_of(path) != before:", "        if False:",
        BAD + "test_a_file_that_changes_while_it_is_read",
    ),
    Mutant(
        "open: rows are called as if none were left out",
        "return own + np.searchsorted", "return own + 0 * np.searchsorted",
        OPEN + "test_columns_are_learned_on_the_way",
    ),
    Mutant(
        "open: the codes of texts are in the order of appearance",
        "content = code[content.view(leaf.dtype)].view(np.uint8)", "pass",
        OPEN + "test_columns_are_learned_on_the_way",
    ),
    Mutant(
        "open: means of pieces are not weighted",
        "self.mean + apart * count / whole, whole", "self.mean + apart / 2, whole",
        OPEN + "test_columns_are_learned_on_the_way",
    ),
    Mutant(
        "parts of a table: columns by their place",
        "for name in names:\n            if name not in part.schema:", "for name in names:\n            if False:",
        BAD + "test_parts_that_do_not_agree",
    ),
    Mutant(
        "a run on files goes on when they are written to",
        "        self.files.check_unchanged()\n", "",
        BAD + "test_a_cache_that_is_written_to_during_a_run",
    ),
    Mutant(
        "noise of rows: what fills a piece up is looked at again",
        "counts &= batch.weight > 0", "pass",
        "tests/unit/tune/test_row_noise.py::test_rows_are_looked_at_in_pieces_of_any_size",
    ),
    Mutant(
        "cache: a file whose time was set back is remembered as it is just now",
        "- max(before[1], before[3]) > RACY_NS", "- before[1] > RACY_NS",
        "tests/unit/disk/test_open.py::test_what_is_remembered_of_a_file_is_no_older_than_it",
    ),
    Mutant(
        "open: rows on disk are called by the order of rows in memory",
        "rows_called = Source.rows_called", "pass",
        OPEN + "test_rows_are_called_by_their_numbers_in_the_file",
    ),
    Mutant(
        "open: the parts of a folder come in the order of characters",
        "parts.sort(key=_numeric_order)", "parts.sort()",
        OPEN + "test_parts_of_a_folder_come_in_numeric_order",
    ),
    Mutant(
        "query: a sample without a seed is read",
        "if SAMPLED.search(query) and not", "if False and not",
        "tests/unit/disk/test_databases.py::test_a_sample_without_a_seed_is_refused",
    ),
    Mutant(
        "text: months with leading zeros are identifiers",
        'cell.startswith("0") and len(cell) > 2', 'cell.startswith("0")',
        "tests/unit/data/test_table.py::test_numbers_with_leading_zeros_are_named_as_identifiers",
    ),
    Mutant(
        "predict: rows with known levels are empty",
        "keep[np.flatnonzero(keep)[error.rows]] = False", "keep[:] = False",
        "tests/unit/models/test_formula.py::test_rows_with_a_new_level_are_empty_and_counted",
    ),
]  # fmt: skip
