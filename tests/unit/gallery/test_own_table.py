"""A reader's own table in X9: what is refused, how it is split, and the referee it is held to."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the report extra is not installed")

from sgld import gallery
from sgld.errors import DataError
from sgld.gallery import x9
from sgld.gallery.make import MAX_TABLE_COLUMNS, Table, cancer, lacking, load_table, own_table


@pytest.mark.parametrize("labels", ["-1 +1", "0 1", "1 2", "-1.0 1.0"])
def test_the_larger_of_two_labels_is_1(labels, tmp_path):
    first, second = labels.split()
    (tmp_path / "own").write_text(f"{second} 1:1\n{first} 2:1\n{second}\n")
    X, y = load_table(tmp_path / "own")
    np.testing.assert_array_equal(y, [1, 0, 1])
    np.testing.assert_array_equal(X, [[1, 0], [0, 1], [0, 0]])


def test_a_csv_may_start_with_a_byte_order_mark_and_blank_lines(tmp_path):
    (tmp_path / "own.csv").write_bytes(b"\xef\xbb\xbf\na,y\n\n5,-1\n6,1\n")
    X, y = load_table(tmp_path / "own.csv")
    np.testing.assert_array_equal(X, [[5], [6]])
    np.testing.assert_array_equal(y, [0, 1])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"1,0\n2,1\n", r"line 1 must hold the columns' names. Got \['1', '0'\]"),
        ("a.csv", b"a,y\n\n1,0\n\n2\n", "line 5 must hold 2 finite numbers"),
        ("a", b"\x93NUMPY\x01\xff\xfe", "is not text"),
        ("a", b"1 1:2\n-1 4000000000:1\n", "^a: line 2 has a column 4000000000; at most 2000"),
        ("a.csv", b",".join([b"n"] * (MAX_TABLE_COLUMNS + 2)) + b"\n", "line 1 has a column 2001"),
        ("a", b"1 qid:3 1:2\n", "line 1 must be"),
    ],
)
def test_a_bad_file_is_told_by_its_line(name, content, said, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said):
        load_table(tmp_path / name)


def test_a_table_too_small_to_hold_rows_out_is_refused(tmp_path):
    (tmp_path / "short").write_text("1 1:2\n0 1:3\n" * 9)
    (tmp_path / "bare").write_text("1\n0\n" * 20)
    with pytest.raises(DataError, match=r"20 rows or more.*Got 18 rows of 1 columns"):
        own_table(tmp_path / "short")
    with pytest.raises(DataError, match="Got 40 rows of 0 columns"):
        own_table(tmp_path / "bare")


def test_a_column_that_is_constant_in_the_training_rows_is_not_blown_up():
    X = np.zeros((100, 2), np.float32)
    X[:, 0] = np.arange(100)
    (_, y), (test, held) = x9.split(X, np.zeros(100))
    X[np.random.default_rng(0).permutation(100) < 20, 1] = 1.0  # only in rows held out
    (train, _), (test, _) = x9.split(X, np.zeros(100))
    assert len(y) == 80 and len(held) == 20
    np.testing.assert_allclose(train[:, 1].std(), 1, rtol=1e-5)
    np.testing.assert_array_equal(train[:, 2], 0)
    np.testing.assert_array_equal(test[:, 2], 1)


def test_what_is_not_installed_is_named_with_the_command(monkeypatch):
    assert lacking(("numpyro",)) is None
    for name in ("torch", "sklearn"):
        monkeypatch.setitem(sys.modules, name, None)
    assert lacking(("torch",)) == "needs PyTorch: pip install 'sgld[torch]'"
    both = "needs scikit-learn and PyTorch: pip install 'sgld[sklearn,torch]'"
    assert lacking(("sklearn", "numpyro", "torch")) == both


@pytest.mark.slow
def test_the_referee_of_a_readers_table_finds_what_is_stored_for_the_same_data():
    stored = json.loads((Path(gallery.__file__).parent / "x9_nuts.json").read_text())
    table = Table("own", *cancer())
    found = x9.referee(table, 400, 3)
    sd = stored["log_joint"]["sd"]
    assert abs(found["log_joint"]["mean"] - stored["log_joint"]["mean"]) < 0.2 * sd
    assert abs(found["log_joint"]["sd"] / sd - 1) < 0.12
    assert abs(found["accuracy"] - stored["accuracy"]) < 0.01
    assert found["h"] == pytest.approx(0.0051, rel=0.05)
