"""Regression from a file to a run directory, for `sgld fit`, `resume` and `predict`.

run.json of a run of kind "formula" contains what is needed to rebuild its model: the data file with the
hash of its bytes, and `FormulaModel.spec`. The model's rows are in memory, or on disk where they are many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jax.sharding import Mesh
from jaxtyping import ArrayLike, Int

from ..core.files import reading
from ..core.progress import SAMPLING_STAGES, progress_shown, stage
from ..core.user_code import FOREIGN_ARGUMENTS, check_argument_names
from ..core.validation import one_of, positive
from ..data.mapped import OnDisk, Workers
from ..data.table_source import TableSource, stored_table
from ..data.tables import as_table
from ..errors import RunError, UsageError, need
from ..inference import sample as runs
from ..inference.laplace import sandwich
from ..model.posterior import Posterior
from ..model.problem import Request
from ..results.codec import is_planned
from ..results.draws import Draws
from ..results.plan import Origin, Plan
from ..results.run_directory import RunDirectory
from ..results.storage import load
from ..typing import (
    Estimator,
    FamilyName,
    Number,
    Preconditioner,
    PredictionKind,
    Sampler,
    Schedule,
)
from .families import check_trials, find_family
from .formula import FormulaModel
from .priors import parse_prior
from .result import Fit, Predicting, rows_in
from .streaming import Streamed, is_large

if TYPE_CHECKING:
    import pyarrow

# -- models --------------------------------------------------------------------------------


DESIGN_PLACE_KEY = "rows"  # the key in run.json, next to the path, of a design on disk
ON_DISK = {DESIGN_PLACE_KEY: "on disk"}


def model_of(
    data: Any, place: dict[str, Any], formula: str, family: str, prior: str | None,
    columns: dict[str, Any], missing: str, seed: int, progress: bool, workers: Workers | None = None,
) -> tuple[FormulaModel, dict[str, Any] | None, dict[str, str | None]]:  # fmt: skip
    """Build the model with its rows; return it, their origin for run.json, and column names.

    Args:
      data: as for `sgld.fit`.
      place: sep, decimal, table and database of `sgld.fit`.
      formula: as for `sgld.fit`.
      family: as for `sgld.fit`.
      prior: as for `sgld.fit`.
      columns: weights and trials, names or numbers.
      missing: as for `sgld.fit`.
      seed: of the shuffle of rows on disk.
      progress: whether to print progress.
      workers: the workers for a design on disk.
    """
    if _may_be_large(data, columns):
        source = TableSource.of(data, place["table"], place["database"], place["sep"], place["decimal"])  # fmt: skip
        if is_large(source, formula):
            return _on_disk(
                source, formula, family, prior, columns, missing, seed, progress, workers
            )
    whole, of_file = read(data, **place)
    whole, named = _with_columns(whole, of_file is not None, columns)
    model = FormulaModel.build(whole, formula, family, prior, **named, missing=missing)
    return model, None if of_file is None else of_file(), named


def _may_be_large(data: Any, columns: dict[str, Any]) -> bool:
    """Return whether `data` is a file and all `columns` are names."""
    apart = any(not (value is None or isinstance(value, str)) for value in columns.values())
    return isinstance(data, (str, Path)) and not apart


def _on_disk(
    source: TableSource, formula: str, family: str, prior: str | None,
    columns: dict[str, Any], missing: str, seed: int, progress: bool, workers: Workers | None,
) -> tuple[FormulaModel, dict[str, Any], dict[str, str | None]]:  # fmt: skip
    if prior is not None:
        parse_prior(prior)
    check_trials(find_family(family), columns["trials"])
    given = {**columns, "missing": missing}
    streamed = Streamed([source], formula, family, given, seed, workers=workers)
    model = streamed.model({**streamed.estimate(), "prior": prior}, progress)
    assert isinstance(model.data, OnDisk)
    digest = streamed.digests()[0] if streamed.known else model.data.hash()
    stored = {**source.as_json(digest), **ON_DISK}
    return model, stored, columns


def is_on_disk(stored: Any) -> bool:
    """Return whether the data of a run.json belong to a design on disk."""
    return isinstance(stored, dict) and stored.get(DESIGN_PLACE_KEY) == ON_DISK[DESIGN_PLACE_KEY]


class Part(NamedTuple):
    """A part of a table on disk: its digest, and the sorted dropped rows up to its end."""

    source: TableSource
    digest: str
    dropped: Int[np.ndarray, " m"]


def sources_of(stored: dict[str, Any]) -> list[Part]:
    """Return the parts of such data. Raises RunError where one is missing."""
    parts = stored.get("parts")
    if parts is None:
        dropped = np.asarray(stored.get("dropped", []), np.int64)
        return [Part(TableSource.located(stored), str(stored["sha256"]), dropped)]
    if not isinstance(parts, list) or any("parts" in part for part in parts):
        raise RunError("run.json is damaged: its entry `data` has no valid parts.")
    return [found for part in parts for found in sources_of(part)]


def streamed_of(stored: dict[str, Any], spec: dict[str, Any], seed: int, more: TableSource | None = None) -> Streamed:  # fmt: skip
    """Rebuild the design of a run's data, with rows appended; RunError if the data changed."""
    found = sources_of(stored)
    sources, dropped = [part.source for part in found], [part.dropped for part in found]
    if more is not None:
        sources, dropped = [*sources, more], [*dropped, np.zeros(0, np.int64)]
    columns = {name: spec.get(name) for name in ("weights", "trials", "missing")}
    streamed = Streamed(
        sources, spec["design"]["formula"], spec["family"], columns, seed, dropped=dropped
    )
    for part, now in zip(found, streamed.digests(), strict=False):
        if part.digest != now:
            raise part.source.changed()
    return streamed


def _with_columns(
    table: Any, in_file: bool, given: dict[str, Any]
) -> tuple[Any, dict[str, str | None]]:
    """Return the table with separately given numbers as columns, and every column's name."""
    names: dict[str, str | None] = {}
    for name, value in given.items():
        if value is None or isinstance(value, str):
            names[name] = value
            continue
        if in_file:
            raise UsageError(
                f"{name} for rows in a file must be a column of the file, so that the run can be resumed; "
                f"give its name. Got {type(value).__name__}."
            )
        values = np.asarray(value)
        if values.shape != (table.num_rows,):
            raise UsageError(
                f"{name} must be one number per row, [{table.num_rows}]. Got shape {values.shape}."
            )
        names[name] = f"({name})"
        table = table.append_column(f"({name})", [values])
    return table, names


def read(
    data: Any,
    sep: str | None = None,
    decimal: str = ".",
    table: str | None = None,
    database: Any = None,
) -> tuple[Any, Callable[[], dict[str, Any]] | None]:
    """Return the table, or a function that reads a file or database, and one for its origin."""
    given = [
        name for name, value in (("sep", sep), ("decimal", decimal)) if value not in (None, ".")
    ]
    if not isinstance(data, (str, Path)):
        if given:
            raise UsageError(
                f"{' and '.join(given)} apply to text files only; leave them out for a table."
            )
        if table is not None or database is not None:
            raise UsageError("table and database apply to database files and to queries on them.")
        return as_table(data), None
    source = TableSource.of(data, table, database, sep, decimal)
    digests: list[str] = []

    def read_file() -> Any:
        found, digest = source.read()
        digests.append(digest)
        return found

    return read_file, lambda: source.as_json(digests[-1])


# -- fit -----------------------------------------------------------------------------------


SAMPLERS = ("sgld",)


@check_argument_names(
    {**FOREIGN_ARGUMENTS, **dict.fromkeys(("path", "run_dir", "output_dir", "save_dir"), "out")}
)
def fit(
    data: Any,
    formula: str,
    *,
    family: FamilyName = "gaussian",
    prior: str | None = None,
    weights: str | ArrayLike | None = None,
    trials: str | ArrayLike | None = None,
    missing: Literal["drop", "error"] = "drop",
    sep: str | None = None,
    decimal: str = ".",
    table: str | None = None,
    database: str | Path | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    sampler: Literal["auto", "sgld"] = "auto",
    step_size: Number | Literal["auto"] = "auto",
    tolerance: float = 0.05,
    temperature: float = 1.0,
    batch_size: int | Literal["auto"] = "auto",
    num_chains: int | Literal["auto"] = "auto",
    num_draws: int | Literal["auto"] = "auto",
    seed: int = 0,
    progress: bool = True,
    checkpoint_every: float = 10.0,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    workers: Any = None,
    on_model: Callable[[FormulaModel], None] | None = None,
    on_plan: Callable[[Plan], None] | None = None,
) -> Fit:
    """Fit a generalised linear model, given by a formula, to a file or a table.

    Args:
      data: path of a .csv (.csv.gz, .tsv, .txt), .parquet or .arrow file, of a folder of them, of a
        DuckDB or SQLite file; or a SQL query. Or a pyarrow.Table, a DataFrame of pandas or polars, or
        a dict of columns; such a run cannot be resumed, nor can a query without `database`.
      formula: "outcome ~ predictors"; C(x) is a category, offset(log(exposure)) is added to the
        linear predictor without a coefficient.
      family: gaussian, student-t, bernoulli, binomial, categorical, poisson, negative-binomial,
        gamma or lognormal, with the links and dispersions that `sgld fit --help` lists.
      prior: "normal(mean, sd)", "student_t(df, loc, scale)" or "laplace(loc, scale)" for every
        coefficient, intercept included, on the original scale; default: scaled from the data.
      weights: how many times each row counts, a column's name or numbers [N], not negative.
      trials: for the binomial family, a column's name or whole numbers [N].
      missing: "drop" drops rows with a missing cell in a used column and reports their number;
        "error" raises an error.
      sep: of a text file, the separator of cells; by default comma, semicolon, tab or bar, detected
        from the first rows.
      decimal: of a text file, the decimal point, "." or ",".
      table: the table in a database file that has several.
      database: the DuckDB or SQLite file for a query.
      out: the run directory to create.
      overwrite: replace an existing run.
      sampler: "auto" or "sgld".
      workers: map passes over a table larger than memory, and build its design: a Dask client, an object
        with a `map` method, or a function map(function, items). They need access to the cache
        (SGLD_DATA_CACHE). A table in memory needs none.
      on_model: called with the model after all arguments are checked.
      on_plan: called with the plan before the first step.
      step_size: as for `sgld.sample`.
      tolerance: as for `sgld.sample`.
      temperature: as for `sgld.sample`.
      batch_size: as for `sgld.sample`.
      num_chains: as for `sgld.sample`.
      num_draws: as for `sgld.sample`.
      seed: as for `sgld.sample`.
      progress: as for `sgld.sample`.
      checkpoint_every: as for `sgld.sample`.
      max_steps: as for `sgld.sample`.
      max_seconds: as for `sgld.sample`.

    A failed call writes nothing.

    Raises: UsageError for a wrong argument, DataError for wrong data, RunError for `out`.

    Example:
      >>> import numpy as np, sgld
      >>> rng = np.random.default_rng(0)
      >>> x = rng.normal(size=500)
      >>> claims = {"x": x, "claims": rng.poisson(np.exp(0.3 * x)), "years": np.full(500, 1.0)}
      >>> fit = sgld.fit(
      ...     claims, "claims ~ x + offset(log(years))", family="poisson", progress=False)
      >>> fit.verdict.word
      'trusted'
      >>> sorted(fit.predict({"x": [0.0, 1.0], "years": [1.0, 2.0]}))
      ['lower', 'mean', 'sd', 'upper']
    """
    if isinstance(data, str) and "~" in data and not isinstance(formula, str):
        raise UsageError(f"the table comes first: sgld.fit(table, {data!r}).")
    one_of("sampler", sampler, SAMPLERS, auto=True)
    positive("temperature", temperature)  # `sgld.sample` also accepts 0, to find the mode
    positive("checkpoint_every", checkpoint_every, ", in seconds")
    ask = Request(
        # "auto" is SGLD with every part chosen by the library, and a string is stored
        "auto", step_size, tolerance, temperature, "auto", "auto", "auto", batch_size,
        num_chains, num_draws, "auto", "auto", seed, max_steps, max_seconds,
    )  # fmt: skip
    mapped = None if workers is None else Workers(workers)
    with progress_shown(progress, SAMPLING_STAGES):
        with stage("data"):
            place = {"sep": sep, "decimal": decimal, "table": table, "database": database}
            columns = {"weights": weights, "trials": trials}
            model, source, columns = model_of(
                data, place, formula, family, prior, columns, missing, seed, progress, mapped
            )
        asked = {
            "kind": "formula",
            "data": source,
            "formula": formula,
            "family": model.family.name,
            "prior": prior,
            "priors": list(model.prior_text),
            "sampler": sampler,
            "model": model.spec,
            **columns,
            "facts": {"num_dropped": model.num_dropped} if model.num_dropped else {},
        }
        draws = runs.begin(
            model.posterior, model.data, None, ask, None, asked, path=out, overwrite=overwrite,
            progress=progress, checkpoint_every=checkpoint_every,
            on_start=None if on_model is None else partial(on_model, model), on_plan=on_plan,
            argument="out",
        )  # fmt: skip
        draws = replace(draws, origin=Origin(model.posterior, model.data, model))
        return Fit(draws, model, asked | {"seed": seed})


def model_of_run(run_json: dict[str, Any]) -> FormulaModel:
    """Rebuild the model of a run, after its data are read again and found unchanged.

    Raises RunError where the data file is missing or has other bytes, or run.json is damaged.
    """
    source = _part(run_json, "data")
    if source is None:
        raise RunError(
            "the run was fitted to a table in memory, which is not stored; fit it again."
        )
    for name in ("path",) if isinstance(source, dict) and "parts" in source else ("path", "sha256"):
        _part(source, name)
    with reading("run.json"):
        if is_on_disk(source):
            spec = _part(run_json, "model")
            return streamed_of(source, spec, int(_part(run_json, "seed"))).model(
                spec, progress=False
            )
        return FormulaModel.from_spec(_part(run_json, "model"), stored_table(source))


@check_argument_names(
    {"step_size": "schedule", "model": "posterior", "dataset": "data"},
    {"where": "give sgld.networks.part(init, where) as init"},
)
def resume(
    path: str | Path,
    posterior: Posterior | None = None,
    data: Any = None,
    init: Any = None,
    *,
    sampler: Sampler | None = None,
    schedule: Schedule | None = None,
    temperature: Schedule | None = None,
    gradient: Estimator | None = None,
    preconditioner: Preconditioner | None = None,
    progress: bool = True,
    checkpoint_every: float = 10.0,
    keep: Any = None,
    mesh: Mesh | None = None,
) -> Draws:
    """Continue a killed or interrupted run, with the same bits as an uninterrupted one.

    Nothing is tuned again: the settings are read from the directory. On another machine, or with other
    versions of JAX, the run continues too, but not bit for bit; the draws' notes say so.

    Args:
      path: a run directory. A finished run is loaded unchanged, its draws in the form of `init` if given; no
        other argument is compared with it.
      posterior: that of the run; not needed for runs of `sgld fit`.
      data: those of the run; not needed for runs of `sgld fit`.
      init: that of the run; not needed for runs of `sgld fit`.
      sampler: that of the run if it is user-supplied; those of this package are stored.
      schedule: the step size's, if it was a user-supplied function.
      temperature: that of the run if it is user-supplied.
      gradient: that of the run if it is user-supplied.
      preconditioner: that of the run if it is user-supplied.
      progress: as for `sgld.sample`.
      checkpoint_every: as for `sgld.sample`.
      keep: the function that the run was started with, if any.
      mesh: as for `sgld.sample`; may differ from the run's, or be None.

    Raises: RunError where the directory is not a run, is in use or damaged, was written by another
    version, or was started with another model, other data, or another user-supplied sampler, schedule
    or keep.

    Example:
      >>> import tempfile, jax.numpy as jnp, sgld
      >>> gaussian = sgld.Posterior(lambda t: -0.5 * t**2)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     draws = sgld.sample(gaussian, None, 0.0, path=folder + "/run", progress=False)
      ...     again = sgld.resume(folder + "/run")            # finished: it is only read
      >>> bool((draws.position == again.position).all())
      True
    """
    own = {
        "sampler": sampler, "schedule": schedule, "temperature": temperature, "gradient": gradient,
        "preconditioner": preconditioner,
    }  # fmt: skip
    directory = RunDirectory(path)
    directory.take_up()
    if posterior is None and directory.path.is_dir() and not directory.finished():
        asked = directory.begun()
        if asked.get("updates") and not is_planned(directory):
            raise RunError(
                f"{path} is an update of {asked['updates']} that was stopped before its plan was written, so it has no "
                "draws; update that run with the same rows again, with overwrite=True."
            )
        if asked.get("kind") == "formula":
            model = model_of_run(asked)
            posterior, data = model.posterior, model.data
    return runs.continue_run(
        path,
        posterior,
        data,
        init,
        progress=progress,
        checkpoint_every=checkpoint_every,
        keep=keep,
        mesh=mesh,
        **own,
    )


def _part(content: Any, name: str) -> Any:
    if not isinstance(content, dict) or name not in content:
        raise RunError(f"run.json is damaged: it has no {name!r}.")
    return content[name]


def sandwich_of_run(run: str | Path) -> Draws:
    """Return a finished formula run's draws, scaled to the sandwich covariance.

    The intervals then cover the variation between samples for a model whose variances are wrong, as the plan
    notes and `sgld.sandwich` explains. The draws are on the original scale with the formula's names, with
    `.summary()` and `.interval(prob)` as for any draws. They are not the posterior: the verdict is `unknown` and
    says so.

    Args:
      run: the run directory; its data file is read again.

    Raises: RunError where `run` is not a finished formula run or its data file has changed,
    UsageError as `sgld.sandwich`.

    Example:
      >>> import tempfile
      >>> from sgld.regression.fit import fit, sandwich_of_run
      >>> from sgld.data.tables import bundled
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     draws = fit(
      ...         bundled("randhie"), "mdvis ~ physlm", family="poisson", out=folder + "/run",
      ...         progress=False).draws
      ...     wider = sandwich_of_run(folder + "/run").sd()["coefficients"]
      >>> ratio = wider / draws.sd()["coefficients"]
      >>> bool((ratio > 2).all())
      True
    """
    draws, model = _finished(run)
    with reading(run):
        standardised = model.to_standardised(draws.position)
        inside = replace(model.posterior, output=None)
        found = sandwich(inside, model.data, replace(draws, position=standardised))
        return replace(found, position=model.to_original(found.position))


def _finished(run: str | Path) -> tuple[Draws, FormulaModel]:
    """Return draws and model of a finished formula run, with its data read again."""
    draws = load(run)
    asked = RunDirectory(run).begun()
    if asked.get("kind") != "formula":
        raise RunError(
            f"{run} was not made by sgld.fit; use sgld.sandwich(posterior, data, sgld.load(path))."
        )
    return draws, model_of_run(asked)


def predict(
    run: str | Path,
    data: Any,
    *,
    kind: PredictionKind = "outcome",
    prob: float = 0.9,
    ids: Sequence[str] = (),
    table: str | None = None,
    database: str | Path | None = None,
    sep: str | None = None,
    decimal: str | None = None,
) -> Iterator[pyarrow.Table]:
    """Predict the rows of a file or table from a finished formula run, in pieces, in their order.

    Args:
      run: the run directory.
      data: the rows, as for `fit`.
      kind: "outcome", "mean" or "class", as for `sgld.Fit.predict`.
      prob: of the interval, which is central.
      ids: columns of `data` that are copied to the result, before the predictions.
      table: of rows in a database, as for `fit`.
      database: of rows in a database, as for `fit`.
      sep: of a text file, as for `fit`; by default the run's, for the same extension (.csv, .tsv).
      decimal: as `sep`.

    Yields:
      Tables of one schema, at least one: the `ids`; `mean` and `sd` of the outcome, including its
      noise; `lower` and `upper` of an interval that holds it with probability `prob`; for
      bernoulli also `probability`; for a categorical outcome `class` and `probability[level]` of each
      level. Rows are read and held in pieces of 16,384. Rows with a missing cell are
      null, if the run dropped such rows.

    Raises: RunError where `run` is not a finished formula run, DataError for the rows and `ids`,
    UsageError for `kind` and `prob`.
    """
    arrow = need("pyarrow", "tables")
    with stage("data"):
        draws, asked = load(run), RunDirectory(run).begun()
    if asked.get("kind") != "formula":
        raise RunError(
            f"{run} was not made by sgld.fit, so its model is not stored; use sgld.load(path).predict(f, x)."
        )
    with reading(Path(run) / "run.json"):
        model = FormulaModel.from_spec(_part(asked, "model"))
    with reading(run):
        predicting = Predicting(model, draws, prob=prob, seed=int(asked["seed"]), kind=kind)
        types = {name: arrow.array(values).type for name, values in predicting.blank.items()}
    with stage("data"):
        if isinstance(data, (str, Path)):
            given = TableSource.like(asked.get("data"), data, sep, decimal, table, database)
            # columns that are copied stay text: 007 is not 7
            given = given._replace(as_text=tuple(set(ids) - set(model.uses)))
        else:
            given = as_table(data)
        read = rows_in(given)
    with reading(run):
        for rows, found in predicting(read, ids):
            cells = [arrow.array(found[n], kind, from_pandas=True) for n, kind in types.items()]
            yield arrow.table([*(rows.column(n) for n in ids), *cells], names=[*ids, *types])
