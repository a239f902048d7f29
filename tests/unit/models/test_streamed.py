"""A formula's design on the disk, made in blocks, is the design in memory, shuffled."""

import errno
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import sgld
import sgld.regression.update as updating
from sgld.data.convert import renumbered_drop
from sgld.data.mapped import Workers
from sgld.data.memory import shuffled
from sgld.data.table_source import TableSource
from sgld.errors import DataError, RunError, UsageError
from sgld.regression import blocks, streaming
from sgld.regression import fit as doors
from sgld.regression.fit import model_of_run, resume
from sgld.regression.formula import FormulaModel
from sgld.regression.streaming import Streamed
from sgld.regression.update import update
from sgld.results.run_directory import RunDirectory

N = 3000
NOTHING = {"weights": None, "trials": None, "missing": "drop"}


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """Blocks of few rows, few that are shown, and every table large."""
    monkeypatch.setattr(streaming, "MAX_BLOCK_ROWS", 256)
    monkeypatch.setattr(streaming, "MAX_MEMORY_BYTES", 1)
    monkeypatch.setattr(blocks, "REPRESENTATIVE_ROWS", 16)
    monkeypatch.setattr("sgld.data.readers.MAX_BATCH_ROWS", 700)
    monkeypatch.setenv("SGLD_DATA_CACHE", str(tmp_path / "cache"))


def made(n=N, seed=0):
    """A table with numbers, years, levels of text, levels that are numbers, and empty cells."""
    rng = np.random.default_rng(seed)
    x, year = rng.normal(3, 2, n), 2000.0 + rng.integers(0, 21, n)
    town = np.array(["inner", "outer", "rural"])[rng.choice(3, n, p=[0.7, 0.299, 0.001])]
    k = rng.integers(0, 4, n)
    rate = 0.2 * x - 0.05 * (year - 2010) + (town == "outer")
    holes = rng.random(n) < 0.01
    return pa.table(
        {
            "x": pa.array(np.where(holes, np.nan, x), mask=holes),
            "year": year,
            "town": town,
            "k": k,
            "y": rate + rng.normal(size=n),
            "count": rng.poisson(np.exp(0.3 * rate - 1)),
            "hit": rng.random(n) < 0.4,
            "word": np.array(["no", "yes"])[(rng.random(n) < 1 / (1 + np.exp(-rate))) * 1],
            "three": np.array(["a", "b", "c"])[rng.integers(0, 3, n)],
            "w": rng.integers(0, 3, n).astype(float),
            "trials": rng.integers(3, 9, n),
        }
    )


def tried(table, family):
    """Where they are counted, no more successes than trials."""
    if family != "binomial":
        return table
    return table.set_column(5, "count", pa.array(np.minimum(table["count"], table["trials"])))


def laid(folder, table, parts=3):
    folder.mkdir(exist_ok=True)
    size = -(-table.num_rows // parts)
    for part in range(parts):
        pq.write_table(table.slice(part * size, size), folder / f"{part}.parquet")
    return folder


FORMULAS = [
    ("y ~ x + year", "gaussian", {}),
    ("y ~ 0 + x + year", "gaussian", {}),
    ("y ~ x * town + C(k)", "student-t", {}),
    ("y ~ bs(x, df=5) + town", "gaussian", {}),
    ("y ~ poly(year, 2) + scale(x)", "gaussian", {}),
    ("log(trials) ~ x:year + I(x**2) + offset(0.1 * x)", "gaussian", {"weights": "w"}),
    ("count ~ x + town + offset(log(trials))", "poisson", {}),
    ("trials ~ x + offset(0.1 * x)", "lognormal", {}),
    ("count ~ x + hit", "binomial", {"trials": "trials"}),
    ("word ~ 0 + x + cr(year, df=3)", "bernoulli", {}),
    ("three ~ x + year", "categorical", {}),
]


def wired(seen):
    """A map as to other machines, where all that goes and comes is pickled; `seen` gets the items of each call."""
    pickle = pytest.importorskip("cloudpickle", reason="what is sent to workers is pickled by it")

    def map_(function, items):
        seen.append(len(items))
        sent = [pickle.dumps((function, item)) for item in items]
        return [pickle.loads(pickle.dumps(f(item))) for f, item in map(pickle.loads, sent)]

    return map_


@pytest.mark.parametrize(("formula", "family", "columns"), FORMULAS)
def test_workers_make_the_same_design(tmp_path, monkeypatch, formula, family, columns):
    """What is learnt and what is laid, to the bit; in calls of BLOCKS_AT_ONCE blocks."""
    source, seen = TableSource.of(laid(tmp_path / "t", tried(made(), family))), []
    monkeypatch.setattr(streaming, "BLOCKS_AT_ONCE", 4)
    found = []
    for workers, cache in ((None, "alone"), (Workers(wired(seen)), "mapped")):
        given = (NOTHING | columns, 3, tmp_path / cache)
        one = Streamed([source], formula, family, *given, workers=workers)
        spec = one.estimate()
        found.append((spec, one.model({**spec, "prior": None}, progress=False).data))
    (spec, alone), (again, mapped) = found
    assert spec == again and alone.hash() == mapped.hash()
    assert seen[0] == 4 and sum(seen) >= 2 * N / 256 and mapped.workers is not None


@pytest.mark.unchecked
def test_passes_of_a_formula_are_mapped_over_workers(tmp_path):
    folder, seen = laid(tmp_path / "t", made()), []
    given = {"num_draws": 400, "progress": False}  # of 200, ESS is by luck above what is needed
    alone = sgld.fit(folder, "y ~ x + town", **given).draws
    before = len(seen)
    mapped = sgld.fit(folder, "y ~ x + town", workers=wired(seen), **given).draws
    assert len(seen) - before > 10 and mapped.verdict.word == alone.verdict.word
    found, whole = mapped.flat()[0], alone.flat()[0]  # [chain, draw, p]
    apart = np.abs(found.mean((0, 1)) - whole.mean((0, 1))) / whole.std((0, 1))
    assert apart.max() < 0.2
    with pytest.raises(UsageError, match=r"workers must be a Dask client, .* Got int"):
        sgld.fit(folder, "y ~ x", workers=3)


@pytest.mark.parametrize(("formula", "family", "columns"), FORMULAS)
def test_a_design_in_blocks_is_that_in_memory(tmp_path, formula, family, columns):
    table = tried(made(), family)
    folder = laid(tmp_path / "t", table)
    whole = FormulaModel.build(table, formula, family, **{**NOTHING, **columns})
    source = Streamed([TableSource.of(folder)], formula, family, {**NOTHING, **columns}, 7)
    spec = source.estimate()
    model = source.model({**spec, "prior": None}, progress=False)

    assert model.names == whole.names and model.num_dropped == whole.num_dropped > 0
    for name in ("center", "scale", "outcome_center", "outcome_scale", "outcome_sd", "prior_center"):  # fmt: skip
        np.testing.assert_allclose(spec[name], whole.spec[name], rtol=1e-9, atol=1e-12)
    assert model.prior_text == whole.prior_text
    order = shuffled(model.num_data, 7)
    for ours, theirs in zip(jax.tree.leaves(model.leaves()), jax.tree.leaves(whole.data), strict=True):  # fmt: skip
        np.testing.assert_allclose(ours, np.asarray(theirs)[order], rtol=3e-6, atol=3e-6)
    rows = np.asarray(whole.row_numbers)
    called = model.data.original_rows(np.arange(model.num_data), 7)
    np.testing.assert_array_equal(called, rows[order])


def test_what_many_rows_teach_is_learnt_from_some(tmp_path, monkeypatch):
    """Knots from a random sample, ends from all rows; the norms of polynomials are those of all rows."""
    monkeypatch.setattr(blocks, "MAX_LEARNING_ROWS", 500)
    table = made(20_000)
    folder = laid(tmp_path / "t", table)
    formula = "y ~ bs(x, df=5) + poly(year, 2)"
    whole = FormulaModel.build(table, formula, missing="drop")
    source = Streamed([TableSource.of(folder)], formula, "gaussian", NOTHING, 0)
    spec = source.estimate()
    scale = np.asarray(spec["scale"]) / np.asarray(whole.spec["scale"])
    assert np.all(np.abs(scale - 1) < 0.2) and np.any(scale != 1)
    fits = [np.linalg.lstsq(np.asarray(m.leaves()[0]), np.asarray(m.leaves()[1]))[0] for m in (whole, source.model({**spec, "prior": None}, False))]  # fmt: skip
    poly = [j for j, name in enumerate(whole.names) if name.startswith("poly")]
    original = [f[poly] / np.asarray(s["scale"])[poly] for f, s in zip(fits, (whole.spec, spec), strict=True)]  # fmt: skip
    np.testing.assert_allclose(original[1], original[0], rtol=0.1, atol=2.0)


@pytest.mark.parametrize("place", ["begin", "middle", "end"])
def test_appended_rows_are_laid_among_the_others_as_if_all_were_read(tmp_path, monkeypatch, place):
    """Bit for bit the files of the whole table, whatever memory holds at once."""
    monkeypatch.setattr("sgld.data.convert.MAX_MERGED_BYTES", {"begin": 9000, "middle": 50_000, "end": 2**26}[place])  # fmt: skip
    old, new = laid(tmp_path / "old", made()), laid(tmp_path / "new", made(400, 1), 1)
    formula = "y ~ x + town"
    first = Streamed([TableSource.of(old)], formula, "gaussian", NOTHING, 3)
    spec = {**first.estimate(), "prior": None}
    both = [TableSource.of(old), TableSource.of(new)]
    apart = Streamed(both, formula, "gaussian", NOTHING, 3, tmp_path / "other")
    converted, _ = apart.kept(spec)
    first.kept(spec)
    opened = []
    monkeypatch.setattr(TableSource, "batches", _counting(TableSource.batches, opened))
    merged, _ = Streamed(both, formula, "gaussian", NOTHING, 3).kept(spec)
    assert merged.manifest == {**converted.manifest, "name": merged.manifest["name"]}
    assert str(old) not in opened  # no cell of the old table was read


def places_of(folder):
    """Every file of a folder of rows, by its name."""
    return {
        path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".npy", ".i8")
    }


def test_rows_are_dropped_as_if_they_had_never_been(tmp_path, monkeypatch):
    """Bit for bit the files of the table without them, made from the cache, from the tables, and with more appended."""
    monkeypatch.setattr("sgld.data.convert.MAX_HELD_BYTES", 20_000)
    old, new, formula = made(), made(400, 1), "y ~ x + town"
    folder, more = laid(tmp_path / "old", old), laid(tmp_path / "new", new, 1)
    x, rng = old["x"].to_numpy(zero_copy_only=False), np.random.default_rng(2)
    gone = np.sort(np.append(rng.choice(N, 300, replace=False), np.flatnonzero(np.isnan(x))[:3]))
    gone = np.unique(gone)
    left = old.filter(pa.array(~np.isin(np.arange(N), gone)))
    again = np.array([0, 5, left.num_rows - 1])  # of what is left
    fewer = left.filter(pa.array(~np.isin(np.arange(left.num_rows), again)))
    source, added = TableSource.of(folder), TableSource.of(more)
    none, both = np.zeros(0, np.int64), renumbered_drop(gone, again)
    streamed = lambda sources, dropped, cache=None: Streamed(  # noqa: E731
        sources, formula, "gaussian", NOTHING, 3, cache, dropped
    )
    spec = {**streamed([source], ()).estimate(), "prior": None}
    streamed([source], ()).kept(spec)
    for number, (table, sources, dropped) in enumerate([
        (left, [source], [gone]),
        (fewer, [source], [both]),
        (pa.concat_tables([left, new]), [source, added], [gone, none]),
        (pa.concat_tables([fewer, new]), [source, added], [both, none]),
    ]):  # fmt: skip
        whole = TableSource.of(laid(tmp_path / f"whole{number}", table))
        expected, _ = streamed([whole], (), tmp_path / "other").kept(spec)
        for cache in (
            None,
            tmp_path / f"apart{number}",
        ):  # from the rows in the cache; from the tables
            found, _ = streamed(sources, dropped, cache).kept(spec)
            assert places_of(found.folder) == places_of(expected.folder)
            for name in ("num_data", "num_read", "num_dropped", "hash"):
                assert found.manifest[name] == expected.manifest[name]


def test_a_run_on_the_disk_forgets_rows(tmp_path, capsys):
    """Dropped twice, and with more appended; what cannot be is a sentence, and writes nothing."""
    old, formula = made(), "count ~ x + town"
    folder, run = laid(tmp_path / "old", old), tmp_path / "run"
    pq.write_table(made(200, 1), tmp_path / "new.parquet")
    few = {"family": "poisson", "step_size": 1e-4, "num_draws": 20, "progress": False}
    sgld.fit(folder, formula, out=run, **few)
    less = update(run, drop=[17, 3], out=tmp_path / "less", progress=False)
    twice = update(tmp_path / "less", tmp_path / "new.parquet", drop=[0], out=tmp_path / "twice", progress=False)  # fmt: skip
    assert capsys.readouterr().err == ""
    stay = pa.array(~np.isin(np.arange(N), [0, 3, 17]))
    table = pa.concat_tables([old.filter(stay), made(200, 1)])
    whole = FormulaModel.build(table, formula, "poisson", missing="drop")
    assert twice.model.num_data == whole.num_data
    assert less.model.num_data + less.model.num_dropped == N - 2
    asked = RunDirectory(run).begun()
    held = FormulaModel.from_spec(asked["model"], old)
    row = np.isin(np.asarray(held.row_numbers), [3, 17])
    _, changed, _ = updating._grown_on_disk(asked, None, np.array([17, 3]), False)
    for ours, theirs in zip(
        jax.tree.leaves(changed.removed), jax.tree.leaves(held.data), strict=True
    ):
        np.testing.assert_allclose(np.sort(ours, 0), np.sort(np.asarray(theirs)[row], 0), rtol=3e-6, atol=3e-6)  # fmt: skip
    assert changed.removed_numbers.tolist() == [3, 17] and not len(changed.added_numbers)
    again = model_of_run(RunDirectory(tmp_path / "twice").begun())
    assert again.data.hash() == twice.model.data.hash()
    rural = np.flatnonzero(np.array(old["town"].to_pylist()) == "rural")
    for drop, error, said in (
        ([N], UsageError, "drop must hold rows from 0 to 2999. Got 3000"),
        ([1, 1], UsageError, "drop must not repeat a row"),
        (range(N), UsageError, "drop must leave at least one row"),
        (rural, DataError, r"loses the column 'town\[T.rural\]', because a level"),
    ):
        with pytest.raises(error, match=said):
            update(run, drop=drop, out=tmp_path / "bad", progress=False)
    assert not (tmp_path / "bad").exists()


def _counting(real, opened):
    def batches(self, *args):
        opened.append(self.data)
        return real(self, *args)

    return batches


@pytest.mark.slow
def test_a_run_on_the_disk_is_the_run_in_memory(tmp_path, monkeypatch):
    folder = laid(tmp_path / "t", made())
    on_disk = sgld.fit(folder, "count ~ x + town", family="poisson", out=tmp_path / "a", progress=False)  # fmt: skip
    assert on_disk.draws.verdict.word == "trusted" and isinstance(on_disk.model.data, sgld.data.mapped.OnDisk)  # fmt: skip
    monkeypatch.setattr(streaming, "MAX_MEMORY_BYTES", 2**40)
    held = sgld.fit(folder, "count ~ x + town", family="poisson", progress=False)
    a, b = (fit.draws.position["coefficients"] for fit in (on_disk, held))
    np.testing.assert_allclose(a, b, atol=2e-4 * np.std(b))
    assert f"{held.model.num_data} rows" in repr(on_disk.model)
    assert on_disk.predict({"x": [1.0], "town": ["inner"]})["mean"].shape == (1,)
    with pytest.raises(
        DataError, match="town is nowhere in data row 1, a level outside 'inner', 'outer', 'rural'"
    ):
        on_disk.predict({"x": [1.0], "town": ["nowhere"]})
    assert on_disk.report(tmp_path / "page.html").is_file()
    again = model_of_run(RunDirectory(tmp_path / "a").begun())
    assert again.data.hash() == on_disk.model.data.hash()


@pytest.mark.slow
def test_an_update_reads_the_new_rows_alone_and_gives_the_posterior_of_all(tmp_path, monkeypatch):
    old, new = made(20_000), made(150, 1)
    folder = laid(tmp_path / "old", old)
    pq.write_table(new, tmp_path / "new.parquet")
    pq.write_table(made(100, 2), tmp_path / "newer.parquet")
    formula = "count ~ x + town"
    sgld.fit(folder, formula, family="poisson", out=tmp_path / "run", progress=False)
    opened = []
    monkeypatch.setattr(TableSource, "batches", _counting(TableSource.batches, opened))
    fit = update(tmp_path / "run", tmp_path / "new.parquet", out=tmp_path / "up", progress=False)
    twice = update(tmp_path / "up", tmp_path / "newer.parquet", out=tmp_path / "up2", progress=False)  # fmt: skip
    assert set(opened) == {str(tmp_path / "new.parquet"), str(tmp_path / "newer.parquet")}
    assert any("centre and metric are those" in note for note in fit.draws.plan.notes)
    for found, tables in ((fit, [old, new]), (twice, [old, new, made(100, 2)])):
        whole = sgld.fit(pa.concat_tables(tables), formula, family="poisson", seed=5, progress=False)  # fmt: skip
        assert found.verdict.word == "trusted" and found.model.num_data == whole.model.num_data
        mean, sd = (getattr(whole.draws, what)()["coefficients"] for what in ("mean", "sd"))
        assert np.all(np.abs(found.draws.mean()["coefficients"] - mean) < 0.15 * sd)
        assert np.all(np.abs(found.draws.sd()["coefficients"] / sd - 1) < 0.1)
    finished = sgld.resume(tmp_path / "up2", progress=False)
    assert finished.position["coefficients"].shape == twice.draws.position["coefficients"].shape


def test_a_query_that_names_its_files_is_asked_anew(tmp_path, monkeypatch):
    """Its rows, counted, decide whether they are held; nothing that was learnt of others is used for them."""
    pytest.importorskip("duckdb")
    folder = laid(tmp_path / "t", made())
    query = f"select * from '{folder}/*.parquet' where k < 2"
    source = TableSource.of(query)
    monkeypatch.setattr(streaming, "MAX_MEMORY_BYTES", 8 * 2 * N)
    assert not streaming.is_large(source, "y ~ x")
    monkeypatch.setattr(streaming, "MAX_MEMORY_BYTES", 1)
    assert streaming.is_large(source, "y ~ x")
    few = {"step_size": 1e-4, "num_draws": 20, "progress": False}
    for seed in (0, 1):  # another table under the same query
        laid(folder, made(seed=seed))
        fit = sgld.fit(query, "y ~ x", out=tmp_path / f"run{seed}", **few)
        assert isinstance(fit.model.data, sgld.data.mapped.OnDisk)
        held = FormulaModel.build(
            made(seed=seed).filter(pc.field("k") < 2), "y ~ x", missing="drop"
        )
        assert fit.model.num_data == held.num_data
        np.testing.assert_allclose(fit.model.spec["center"], held.spec["center"], rtol=1e-9)
        assert (
            RunDirectory(tmp_path / f"run{seed}").begun()["data"]["sha256"] == fit.model.data.hash()
        )
    source = Streamed([source], "y ~ x", "gaussian", NOTHING, 0)
    spec = source.estimate()
    laid(folder, made(2000))
    with pytest.raises(DataError, match=r"complete rows, and .* repeated"):
        source.kept(spec)


def test_a_text_is_read_as_its_user_says(tmp_path):
    """Its separator and decimal point, which are kept, and decide what is learnt."""
    table = made(400)
    rows = zip(*(table[name].to_pylist() for name in ("x", "year", "y")), strict=True)
    cells = (";".join("" if v is None else str(v).replace(".", ",") for v in row) for row in rows)
    (tmp_path / "t.csv").write_text("x;year;y\n" + "\n".join(cells) + "\n")
    held = FormulaModel.build(table, "y ~ x + year", missing="drop")
    few = {"step_size": 1e-4, "num_draws": 20, "progress": False}
    fit = sgld.fit(tmp_path / "t.csv", "y ~ x + year", decimal=",", sep=";", out=tmp_path / "run", **few)  # fmt: skip
    assert isinstance(fit.model.data, sgld.data.mapped.OnDisk)
    np.testing.assert_allclose(fit.model.spec["center"], held.spec["center"], rtol=1e-9)
    again = model_of_run(RunDirectory(tmp_path / "run").begun())
    assert again.data.hash() == fit.model.data.hash()
    with pytest.raises(UsageError, match="sep and decimal are both ','"):
        sgld.fit(tmp_path / "t.csv", "y ~ x", decimal=",", sep=",", **few)
    laid(tmp_path / "t", made(), 1)
    with pytest.raises(UsageError, match="sep and decimal are only for text files"):
        sgld.fit(tmp_path / "t" / "0.parquet", "y ~ x", sep=";", **few)


def test_what_is_refused(tmp_path):
    folder = laid(tmp_path / "t", made())
    fit = lambda formula, **how: sgld.fit(folder, formula, progress=False, **how)  # noqa: E731
    for formula, how, said in (
        ("y ~ x + nobody", {}, "nobody"),
        ("y ~ x + lag(year)", {}, r"lag\(\.\.\.\)"),
        ("y ~ x", {"missing": "error"}, "empty cell"),
        ("y ~ x + I(2 * x)", {}, "collinear|duplicate"),
        ("y ~ x + x:C(k) + I(0 * x)", {}, "constant"),
        ("y ~ x", {"family": "poisson"}, r"data row \d+"),
        ("count ~ x", {"family": "binomial"}, "trials"),
        ("y ~ x", {"missing": "perhaps"}, "missing must be"),
    ):
        with pytest.raises((DataError, UsageError), match=said):
            fit(formula, **how)
    bad = made().set_column(1, "year", pa.array(np.where(np.arange(N) == 2500, np.inf, 2000.0)))
    laid(folder, bad)
    with pytest.raises(DataError, match=r"'year' .* data row 2501\b"):
        fit("y ~ x + year")
    laid(
        folder,
        made().set_column(1, "year", pa.array(np.where(np.arange(N) == 2500, 1e300, 2000.0))),
    )
    with pytest.raises(DataError, match=r"'year' holds numbers of 1e\+300; give it in a unit"):
        fit("y ~ x + year")  # and warns of nothing


PARTS = {
    "a column is missing": (lambda t: t.drop_columns(["x"]), "1.parquet lacks the column 'x' that .*0.parquet has"),
    "a column of texts": (
        lambda t: t.set_column(0, "x", pa.array(["a"] * t.num_rows)),
        "'x' has type string in .*1.parquet, and double in .*0.parquet; write it with one type",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PARTS)
def test_parts_that_do_not_agree_are_refused_and_nothing_is_written(tmp_path, what):
    folder, (change, said) = laid(tmp_path / "t", made()), PARTS[what]
    pq.write_table(change(made().slice(1000, 1000)), folder / "1.parquet")
    with pytest.raises(DataError, match=said):
        sgld.fit(folder, "y ~ x", out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_cut_short_or_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    folder = laid(tmp_path / "t", made())
    content = (folder / "1.parquet").read_bytes()
    (folder / "1.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"1.parquet is a truncated Parquet file"):
        sgld.fit(folder, "y ~ x", out=tmp_path / "run", progress=False)
    (folder / "1.parquet").write_bytes(content)
    design = streaming.BlockDesign
    for name in ("made", "standardised"):  # while it is learnt from, and while it is converted
        real = getattr(design, name)

        def meanwhile(*given, real=real):
            (folder / "1.parquet").write_bytes(content)
            return real(*given)

        with monkeypatch.context() as patch:
            patch.setattr(design, name, meanwhile)
            with pytest.raises(
                DataError, match=r"1.parquet changed while it was read; open it again"
            ):
                sgld.fit(folder, "y ~ x + town", out=tmp_path / "run", progress=False)
        if name == "made":
            Streamed([TableSource.of(folder)], "y ~ x + town", "gaussian", NOTHING, 0).estimate()
    assert not (tmp_path / "run").exists()


def test_a_design_that_was_damaged_is_made_anew_and_a_run_goes_on(tmp_path, monkeypatch):
    few = {"step_size": 1e-4, "num_draws": 20, "progress": False}
    fit = sgld.fit(laid(tmp_path / "t", made()), "y ~ x", out=tmp_path / "run", **few)
    leaf = Path(fit.model.data.files.paths[0])
    content = bytearray(leaf.read_bytes())
    content[-40] ^= 1
    leaf.write_bytes(content)
    for name in ("result.json", "summary.json", "draws.npz"):
        (tmp_path / "run" / name).unlink()
    again = resume(tmp_path / "run", progress=False)
    ours, theirs = (d.position["coefficients"] for d in (again, fit.draws))
    np.testing.assert_array_equal(ours, theirs)


def test_a_full_disk_under_a_design_is_told(tmp_path, monkeypatch):
    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sgld.data.readers.Spill.add", full)
    with pytest.raises(
        DataError, match=r"is full: the shuffled rows need twice their size .* cache="
    ):
        sgld.fit(laid(tmp_path / "t", made()), "y ~ x", out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    assert not [p for p in (tmp_path / "cache").iterdir() if p.is_dir()]


def test_a_run_whose_file_changed_is_not_taken_up(tmp_path):
    folder = laid(tmp_path / "t", made())
    sgld.fit(folder, "y ~ x", out=tmp_path / "run", progress=False)
    laid(folder, made(seed=1))
    pq.write_table(made(9, 1), tmp_path / "new.parquet")
    with pytest.raises(RunError, match="has changed since the run"):
        update(tmp_path / "run", tmp_path / "new.parquet", out=tmp_path / "up", progress=False)


def test_which_tables_are_large(tmp_path, monkeypatch):
    folder = laid(tmp_path / "t", made())
    source = TableSource.of(folder)
    for limit, large in ((8 * 3 * N, True), (8 * 3 * N + 1, False)):
        monkeypatch.setattr(streaming, "MAX_MEMORY_BYTES", limit)
        assert streaming.is_large(source, "y ~ x + year") == large
    assert not doors.is_on_disk({"path": "x"})
