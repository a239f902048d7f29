import gzip
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from sgld.data.tables import as_table, bundled, column_array, content_hash, read_table
from sgld.errors import DataError, SGLDWarning
from sgld.regression.design import learn

TABLE = pa.table({"x": [1.5, 2.5, 3.5], "n": [1, 2, 3], "g": ["a", "b", "a"]})


def write(folder, name, text):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".pq", ".feather", ".arrow", ".ipc"])
def test_every_format_gives_the_table_back(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    if suffix == ".csv":
        write(tmp_path, path.name, "x,n,g\n1.5,1,a\n2.5,2,b\n3.5,3,a\n")
    elif suffix in (".parquet", ".pq"):
        pa.parquet.write_table(TABLE, path)
    elif suffix == ".ipc":
        with pa.ipc.new_stream(path, TABLE.schema) as sink:
            sink.write_table(TABLE)
    else:
        pa.feather.write_feather(TABLE, path)
    assert read_table(path).equals(TABLE)


def test_csv_dialect(tmp_path):
    path = write(tmp_path, "a.csv", b'\xef\xbb\xbfx,"t"\n1,"two\nlines"\n2,"NA"\n')
    assert read_table(path).to_pydict() == {"x": [1, 2], "t": ["two\nlines", "NA"]}


@pytest.mark.parametrize(("late", "kind"), [("1.5", "double"), ("abc", "string")])
def test_csv_type_widens_after_the_first_block(tmp_path, late, kind):
    path = write(tmp_path, "a.csv", "i,k\n" + "1,7\n" * 600_000 + f"{late},7\n")
    table = read_table(path)
    assert str(table.schema.field("i").type) == kind
    assert str(table.schema.field("k").type) == "int64"
    assert str(table["i"][-1].as_py()) == late


CSV_MISTAKES = {
    "ragged": ("x,y\n1,2\n3\n", "line 3 has 1 cells, and the header has 2"),
    "duplicate": ("x,y,x\n1,2,3\n", "'x' twice (columns 1 and 3)"),
    "empty": ("", "0 bytes"),
    "blank": ("\n", "cannot be read as csv"),
    "header only": ("x,y\n", "no rows"),
}


@pytest.mark.parametrize("case", CSV_MISTAKES)
def test_csv_mistakes(tmp_path, case):
    text, message = CSV_MISTAKES[case]
    path = write(tmp_path, "rows.csv", text)
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert message in str(caught.value)
    assert "rows.csv" in str(caught.value)


DIALECTS = {
    "semicolons": ("x;n;g\n1.5;1;a\n2.5;2;b\n3.5;3;a\n", {}),
    "tabs": ("x\tn\tg\n1.5\t1\ta\n2.5\t2\tb\n3.5\t3\ta\n", {}),
    "bars": ("x|n|g\n1.5|1|a\n2.5|2|b\n3.5|3|a\n", {}),
    "semicolons and decimal commas": (
        "x;n;g\n1,5;1;a\n2,5;2;b\n3,5;3;a\n", {"decimal": ","},
    ),
    "Excel's own line": ("sep=;\r\nx;n;g\r\n1.5;1;a\r\n2.5;2;b\r\n3.5;3;a\r\n", {}),
    "spaces, said": ("x n g\n1.5 1 a\n2.5 2 b\n3.5 3 a\n", {"sep": "space"}),
    "another sign": ("x^n^g\n1.5^1^a\n2.5^2^b\n3.5^3^a\n", {"sep": "^"}),
    "spaces around names": ("x, n , g\n1.5,1,a\n2.5,2,b\n3.5,3,a\n", {}),
    "quoted separators": ('"x","n","g"\n"1.5","1",a\n"2.5","2",b\n"3.5","3",a\n', {}),
}  # fmt: skip


@pytest.mark.parametrize("case", DIALECTS)
@pytest.mark.parametrize("packed", [False, True])
def test_text_is_read_as_it_is_written(tmp_path, case, packed):
    text, given = DIALECTS[case]
    content = gzip.compress(text.encode()) if packed else text
    path = write(tmp_path, "rows.csv.gz" if packed else "rows.txt", content)
    assert read_table(path, **given).equals(TABLE)


def test_commas_in_cells_are_no_separators(tmp_path):
    path = write(tmp_path, "a.csv", 'town;cost\n"Bath, Avon";1\nLeeds, York;2\n')
    assert read_table(path).to_pydict() == {"town": ["Bath, Avon", "Leeds, York"], "cost": [1, 2]}
    named = write(tmp_path, "n.csv", "town, county;cost\nBath;1\nLeeds;2\n")
    assert read_table(named).to_pydict() == {"town, county": ["Bath", "Leeds"], "cost": [1, 2]}
    one = write(tmp_path, "one.csv", "note\nall is well\nso; it is\n")
    assert read_table(one).column_names == ["note"]


def test_a_packed_table_of_many_blocks_widens_its_types(tmp_path):
    text = "i;k\n" + "1;7\n" * 600_000 + "1.5;7\n"
    path = write(tmp_path, "a.csv.gz", gzip.compress(text.encode(), 1))
    assert str(read_table(path).schema.field("i").type) == "double"


def test_a_line_is_counted_as_an_editor_counts_it(tmp_path):
    path = write(tmp_path, "a.csv", "sep=;\nx;y\n1;2\n3\n")
    with pytest.raises(DataError, match="line 4 has 1 cells, and the header has 2"):
        read_table(path)
    path = write(tmp_path, "r.csv", "x,y\n1,5,6\n2,7,8\n")
    with pytest.raises(DataError, match=r"line 2 has 3 cells.*lack a name"):
        read_table(path)


LOOKS = {
    "decimal comma": (["0,5", "1,5", "7"], "'0,5' in data row 1"),
    "separated thousands": (["900", "1,900", "12,345.5"], "'1,900' in data row 2"),
    "percentages": (["5%", "7.5 %"], "'5%'"),
    "money": (["$5", "7 €", "-£1,000.50"], "'$5'"),
    "dates or times": (["2020-01-01 10:00", "2020-02-01 11:00"], "'2020-01-01 10:00'"),
    "'-' in data row 3 and 1 more": (["1", "2", "-", "4", "5", "-"], "leave it empty"),
    "string values such as 'a'": (["a", "b", "1"], "convert it to numbers"),
}


@pytest.mark.parametrize("called", LOOKS)
def test_text_is_called_what_it_looks_like(called, tmp_path):
    cells, said = LOOKS[called]
    with pytest.raises(DataError) as caught:
        column_array(pa.table({"x": cells}), "x")
    assert called in str(caught.value) and said in str(caught.value)


@pytest.mark.parametrize("cells", [["192.168.0.1", "10.0.0.2"], ["1.2.3"], ["a,b"], ["12 km"]])
def test_other_text_is_only_text(cells):
    with pytest.raises(DataError, match="holds string values"):
        column_array(pa.table({"x": cells}), "x")


def test_files_that_are_not_what_they_are_named(tmp_path):
    pa.parquet.write_table(TABLE, tmp_path / "whole.parquet")
    whole = (tmp_path / "whole.parquet").read_bytes()
    for text, message in [
        ("x,y\n1,2\n", "does not start as one"),
        (whole[: len(whole) // 2], "truncated Parquet"),
        (whole[:4] + b"\0" * 50 + whole[-4:], "cannot be read as parquet"),
    ]:
        with pytest.raises(DataError, match=message):
            read_table(write(tmp_path, "bad.parquet", text))
    with pytest.raises(DataError, match="cannot be read as ipc"):
        read_table(write(tmp_path, "bad.arrow", "x,y\n1,2\n"))


def test_paths(tmp_path):
    write(tmp_path, "visits.csv", "x\n1\n")
    with pytest.raises(DataError, match=r"no file .*vists.csv.*Did you mean 'visits.csv'"):
        read_table(tmp_path / "vists.csv")
    with pytest.raises(DataError, match="nor a folder"):
        read_table(tmp_path / "nowhere" / "visits.csv")
    with pytest.raises(DataError, match="is a folder"):
        read_table(tmp_path)
    with pytest.raises(DataError, match=r"extension '.cvs'.*\.csv, .*\.parquet.*mean '.csv'"):
        read_table(write(tmp_path, "visits.cvs", "x"))


def test_content_hash(tmp_path):
    path = write(tmp_path, "a.csv", "abc")
    assert content_hash(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    with pytest.raises(DataError, match="no file"):
        content_hash(tmp_path / "b.csv")


def test_bundled():
    assert read_table(bundled("randhie")).shape == (20190, 10)
    assert read_table(bundled("handout_regression.csv")).shape == (10000, 2)
    with pytest.raises(DataError, match="Did you mean 'randhie'"):
        bundled("randhi")


def test_as_table():
    assert as_table({"x": np.arange(3.0)}).num_rows == 3
    assert as_table(TABLE.to_pandas()).column_names == ["x", "n", "g"]
    with pytest.raises(DataError, match="no rows"):
        as_table({"x": []})
    with pytest.raises(DataError, match=r"give a pyarrow.Table"):
        as_table(3)
    with pytest.raises(DataError, match=r"give a pyarrow.Table"):
        as_table({"x": [1, 2], "y": [1]})


def test_column_array():
    table = pa.table({"b": [True, False], "i": [1, 2], "f": [0.5, 1.5]})
    for name, expected in [("b", [1, 0]), ("i", [1, 2]), ("f", [0.5, 1.5])]:
        values = column_array(table, name)
        assert values.dtype == np.float64
        np.testing.assert_array_equal(values, expected)


COLUMN_MISTAKES = {
    "null": ([1.0, None, 2.0], "null .* data row 2"),
    "nan": ([1.0, 2.0, float("nan")], "nan in data row 3"),
    "inf": ([float("-inf"), 2.0], "-inf in data row 1"),
    "text": (["a", "b"], "'x' holds string values such as 'a' in data row 1"),
}


@pytest.mark.parametrize("case", COLUMN_MISTAKES)
def test_column_mistakes(case):
    values, message = COLUMN_MISTAKES[case]
    with pytest.raises(DataError, match=message):
        column_array(pa.table({"x": pa.array(values, from_pandas=False)}), "x")


def test_column_unknown():
    with pytest.raises(DataError, match=r"no column 'physim'.*Did you mean 'physlm'"):
        column_array(pa.table({"physlm": [1]}), "physim")


@pytest.mark.parametrize(
    ("cells", "formula", "warned"),
    [
        (("00713", "12044", "10001"), "y ~ id", True), (("00713", "12044", "10001"), "y ~ C(id)", False),
        (("01", "12", "10"), "y ~ id", False), (("0713", "12044", "10001"), "y ~ id", False),
    ],
)  # fmt: skip
def test_numbers_with_leading_zeros_are_named_as_identifiers(tmp_path, cells, formula, warned):
    path = write(tmp_path, "a.csv", "y,id\n" + "".join(f"1,{cell}\n" for cell in cells))
    table = read_table(path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SGLDWarning)
        learn(table, formula)
    said = [str(warning.message) for warning in caught]
    assert len(said) == warned and all("'id'" in s and "'00713'" in s for s in said)
