"""Data that the arithmetic's numbers cannot hold."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import sgld
from sgld.data.validate import Rounding, check_data
from sgld.errors import DataError

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "offset, sd", [(5e6, 0.05), (1e6, 0.01), (5_412_345.0, 0.02), (2_459_000.0, 9.0), (5e7, 1.0)]
)
def test_rows_that_float32_would_round_are_refused(offset, sd):
    y = offset + sd * RNG.standard_normal(100)
    with pytest.raises(
        DataError, match=r"'y' has an sd of .* around .* apart: .*subtract an offset"
    ):
        check_data({"x": RNG.standard_normal(100), "y": y})


def test_lists_of_numbers_are_no_arrays():
    with pytest.raises(DataError, match=r"'\[1\]\[0\]' is .* axis: give arrays, np\.asarray\("):
        check_data((np.ones((2, 3)), [0, 1]))
    with pytest.raises(DataError, match=r"'\[1\]' is a single number; .* leading row axis\.$"):
        check_data((np.ones((2, 3)), 1.0))


def test_the_column_is_named():
    x = RNG.standard_normal((100, 3))
    x[:, 1] += 1e7
    with pytest.raises(DataError, match=r"'\[0\]', column 1, has an sd of"):
        check_data((x, x[:, 0]))


@pytest.mark.parametrize(
    "column",
    [
        RNG.standard_normal(1000), 2000 + RNG.integers(0, 25, 1000).astype(float), np.full(1000, 0.1),
        np.append(np.full(999, 0.1), 0.2), RNG.lognormal(0, 3, 1000), 1e4 + RNG.standard_normal(1000),
        np.linspace(0, 1.7e9, 1000), 1e-20 * RNG.standard_normal(1000), np.empty((1000, 0)),
    ],
)  # fmt: skip
def test_what_float32_holds_well_is_taken(column):
    assert check_data(column).dtype == np.float32


def test_float32_is_the_users_own():
    check_data((5e6 + RNG.normal(0.3, 0.05, 100)).astype(np.float32))


@pytest.mark.parametrize("kind", ["npy", "parquet", "items"])
def test_columns_of_files_that_float32_would_round_are_refused(tmp_path, kind):
    y = 5e6 + RNG.normal(0.3, 0.05, 200)
    if kind == "npy":
        what = tmp_path / "y.npy"
        np.save(what, y)
    elif kind == "parquet":
        what = tmp_path / "y.parquet"
        pyarrow.parquet.write_table(pa.table({"x": RNG.normal(size=200), "y": y}), what)
    else:
        what = [{"y": value} for value in y]
    posterior = sgld.Posterior(lambda b: -(b**2), lambda b, row: -((row["y"] - b) ** 2))
    with pytest.raises(
        DataError, match=r" has an sd of 0\.0\d* around 5000000.*subtract an offset"
    ):
        sgld.sample(posterior, sgld.open(what, cache=tmp_path / "cache"), 0.0, progress=False)


def test_a_sorted_column_is_judged_by_the_spread_of_all_its_pieces():
    seconds = 1.7e9 + np.sort(RNG.uniform(0, 3e7, 4000))
    loss = Rounding("t")
    for piece in np.split(seconds, 40):
        loss.add(piece, piece.astype(np.float32))
    assert loss.seen.squares / loss.seen.count == pytest.approx(np.var(seconds))
    loss.check()


class Rows:
    """A data set as PyTorch's are: no IndexError ends it."""

    def __len__(self):
        return 10

    def __getitem__(self, i):
        return float(i)


@pytest.mark.parametrize("data", [Rows(), {"x": np.ones(10), "y": Rows()}])
def test_a_data_set_is_not_asked_for_items_without_end(data):
    with pytest.raises(
        DataError, match=r"is a Rows, which is not an array; give arrays, or sgld\.open"
    ):
        check_data(data)


def test_whatever_numpy_knows_is_an_array():
    class Made:
        def __array__(self, dtype=None, copy=None):
            return np.ones(3)

    assert all(len(check_data(data)) == 3 for data in (Made(), range(3), memoryview(np.ones(3))))
