"""What differs between supported versions of other libraries, and the errors for unsupported ones."""

import importlib.metadata
import types
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sgld
from sgld import errors
from sgld.core import versions
from sgld.errors import MissingExtra, SGLDWarning, need
from sgld.interfaces.arviz_criteria import difference


@pytest.fixture(autouse=True)
def asked_again():
    """Forget what was checked: each test changes what is installed."""
    for function in (errors.check_requirements, versions.warn_of_slow_versions):
        function.cache_clear()
    yield
    for function in (errors.check_requirements, versions.warn_of_slow_versions):
        function.cache_clear()


@pytest.fixture
def installed(monkeypatch):
    """Set the version that a library seems to have; None takes it away."""

    def set_version(name, version):
        found = importlib.metadata.version

        def seem(asked):
            if asked != name:
                return found(asked)
            if version is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return version

        monkeypatch.setattr(importlib.metadata, "version", seem)

    return set_version


# -- which versions are installed ----------------------------------------------------------------


def test_what_is_installed_here_is_enough():
    for extra in (None, "tables", "cli", "report", "numpyro", "sklearn", "duckdb"):
        errors.check_requirements(extra)


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("jax", "0.7.2", r"needs jax 0\.8 or newer; 0\.7\.2 .*pip install 'jax>=0\.8'"),
        ("jax", "0.10.0rc1", None),
        ("numpy", "", None),  # what an interrupted pip leaves behind has no version
        ("arviz-stats", "0.7", r"arviz-stats 0\.8 or newer; 0\.7 is installed"),
        ("blackjax", None, r"blackjax, which is not installed: pip install 'blackjax>=1\.3'"),
    ],
)
def test_an_old_or_missing_library_is_named_with_the_command(installed, name, version, message):
    installed(name, version)
    if message is None:
        return errors.check_requirements()
    with pytest.raises(MissingExtra, match=message):
        sgld.__getattr__("Posterior")
    return None


def test_an_old_library_of_an_extra_is_named_where_it_is_needed(installed):
    installed("numpyro", "0.19.0")
    with pytest.raises(MissingExtra, match=r"numpyro 0\.20 or newer; 0\.19\.0 .*numpyro>=0\.20"):
        need("numpyro.distributions", "numpyro")


# -- JAX -----------------------------------------------------------------------------------------


def test_constants_are_found_in_every_form_of_an_expression():
    c = np.arange(3.0, dtype=np.float32)
    closed = jax.make_jaxpr(lambda x: x * c)(c)
    (held,) = versions.bound_constants(closed)
    np.testing.assert_array_equal(held, c)
    assert len(versions.bound_constants(closed.jaxpr)) in (0, 1)  # 1 since JAX 0.11


@pytest.mark.parametrize(("version", "platform", "warned"), [
    ("0.10.2", "gpu", True), ("0.11.0", "cuda", True), ("0.10.2", "cpu", False),
    ("0.10.1", "gpu", False), ("0.11.1", "gpu", False), ("0.11.1", "cpu", True), ("0.12.0.1", "cpu", False),
])  # fmt: skip
def test_slow_versions_are_announced_once(installed, monkeypatch, version, platform, warned):
    installed("jaxlib", version)
    monkeypatch.setattr(jax, "devices", lambda: [types.SimpleNamespace(platform=platform)])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            versions.warn_of_slow_versions()
    assert [one.category for one in seen] == [SGLDWarning] * warned
    assert all(f"jaxlib {version}" in str(one.message) for one in seen)


def test_a_library_that_turns_double_precision_on_is_overruled():
    before = jax.config.read("jax_enable_x64")
    with versions.same_precision():
        jax.config.update("jax_enable_x64", not before)
    assert jax.config.read("jax_enable_x64") == before


# -- ArviZ ---------------------------------------------------------------------------------------


def posterior(shift):
    return sgld.Posterior(lambda t: 0.0 * t, lambda t, y: -0.5 * (y - shift * t) ** 2)


@pytest.fixture(scope="module")
def criteria():
    """LOO of three models of the same rows, at all rows and at 60 of them."""
    rng = np.random.default_rng(0)
    y = rng.normal(1.0, 1.0, 250).astype(np.float32)
    t = rng.normal(y.mean(), 1 / np.sqrt(len(y)), (4, 500))
    draws = sgld.Draws.of(t)
    models = {"right": 1.0, "near": 1.1, "far": 1.8}
    return [
        {
            name: sgld.loo(draws, posterior(shift), y, subsample=rows, progress=False)
            for name, shift in models.items()
        }
        for rows in (None, 60)
    ]


def test_the_table_of_models_is_the_same_with_every_arviz(criteria):
    whole, some = criteria
    columns = ["rank", "elpd", "p", "elpd_diff", "weight", "se", "dse", "warning"]
    for found in (whole, some):
        table = sgld.compare_models(found)
        own = columns + ["subsampling_dse"] * (found is some)
        assert list(table.columns) == own and list(table.index) == ["right", "near", "far"]
        assert list(table["rank"]) == [0, 1, 2] and (table.elpd_diff >= 0).all()
        for name, one in found.items():
            np.testing.assert_allclose(table.elpd[name], one.elpd)  # not rounded
            np.testing.assert_allclose([table.se[name], table.p[name]], [one.se, one.p])
        assert abs(table.weight.sum() - 1) < 1e-6 and table.weight["far"] < 0.05
    table, best = sgld.compare_models(whole), whole["right"]
    for name, one in whole.items():
        apart = best.elpd_i - one.elpd_i
        np.testing.assert_allclose(table.elpd_diff[name], apart.sum(), atol=1e-6)
        np.testing.assert_allclose(table.dse[name], np.sqrt(250 * apart.var()))
    table, best = sgld.compare_models(some), some["right"]
    for name, one in some.items():
        about = best.approximation - one.approximation
        apart = difference(best.elpd_i - one.elpd_i, about[one.numbers], about)
        found = table.loc[name, ["elpd_diff", "dse", "subsampling_dse"]]
        np.testing.assert_allclose(
            found.astype(float), [apart.total, apart.se, apart.subsampling_se]
        )


def test_weights_of_a_subsample_are_not_equal(criteria):
    """ArviZ's stacking of criteria with NaN at other rows stops where it begins, at equal weights."""
    whole, some = (sgld.compare_models(found).weight for found in criteria)
    np.testing.assert_allclose(some, whole, atol=0.05)  # rows not taken are approximated
    for method in ("stacking", "bb-pseudo-bma", "pseudo-bma"):
        weight = sgld.compare_models(criteria[1], method=method).weight
        assert weight["right"] > 0.5 and weight["far"] < 0.05


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pandas, called by arviz-stats
def test_containers_are_those_that_arviz_compares(criteria):
    import arviz_stats

    whole, some = ({n: one.to_arviz() for n, one in found.items()} for found in criteria)
    for found, own in ((whole, criteria[0]), (some, criteria[1])):
        table = arviz_stats.compare(found)
        assert list(table.index) == ["right", "near", "far"]
        assert found["right"].elpd == own["right"].elpd
    assert some["right"].subsample_size == 60


def test_an_arviz_with_other_containers_is_named(criteria, monkeypatch):
    from arviz_stats import utils

    def other(**fields):
        raise TypeError("an unexpected keyword")

    for name in ("ELPDData", "ELPDDataLOO", "ELPDDataLOOSubsample"):
        if hasattr(utils, name):
            monkeypatch.setattr(utils, name, other)
    with pytest.raises(MissingExtra, match=r"arviz-stats .* is tested with 0\.8 to 1\.3"):
        criteria[0]["right"].to_arviz()


def test_waic_has_a_container_too():
    y = np.random.default_rng(1).normal(size=100).astype(np.float32)
    draws = sgld.Draws.of(np.random.default_rng(2).normal(0, 0.1, (4, 200)))
    found = sgld.waic(draws, posterior(1.0), y, progress=False)
    assert found.to_arviz().elpd == found.elpd and jnp.isfinite(found.elpd)


@pytest.mark.parametrize("version", ["1.3.0", "2.0"])
def test_inference_data_of_a_newer_arviz_is_refused(monkeypatch, version):
    import sys

    newer = types.SimpleNamespace(InferenceData=dict, __version__=version)
    monkeypatch.setitem(sys.modules, "arviz", newer)
    draws = sgld.Draws.of(np.zeros((2, 10)))
    with pytest.raises(MissingExtra, match=rf"before 1\.0; {version} is installed.*to_arviz\(\)"):
        draws.to_inferencedata()
