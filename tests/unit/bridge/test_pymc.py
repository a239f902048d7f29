"""`sgld.from_pymc` where PyMC is installed, and the sentence where it is not."""

import importlib.util
import sys

import numpy as np
import pytest

import sgld
from sgld.errors import MissingExtra, UsageError


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymc", None)
    with pytest.raises(
        MissingExtra, match=r"pymc is needed for this; .*pip install 'sgld\[pymc\]'"
    ):
        sgld.from_pymc(object())


@pytest.mark.skipif(importlib.util.find_spec("pymc") is None, reason="needs the extra pymc")
@pytest.mark.filterwarnings("ignore")
def test_a_model_of_pymc():
    import pymc

    y = np.random.default_rng(0).normal(1.0, 2.0, 200)
    with pymc.Model() as model:
        mean = pymc.Normal("mean", 0.0, 10.0)
        sigma = pymc.HalfNormal("sigma", 5.0)
        pymc.Deterministic("ratio", mean / sigma)
        pymc.Normal("y", mean, sigma, observed=y)
    posterior, init = sgld.from_pymc(model)
    assert sorted(init) == ["mean", "sigma_log__"]
    start = model.initial_point()
    np.testing.assert_allclose(posterior.log_prior(init), model.compile_logp()(start), rtol=1e-5)
    draws = sgld.sample(posterior, progress=False)
    assert sorted(draws.position) == ["mean", "ratio", "sigma"]
    np.testing.assert_allclose(draws.mean()["mean"], y.mean(), atol=0.03)
    np.testing.assert_allclose(draws.sd()["mean"], y.std() / np.sqrt(200), rtol=0.07)
    with pytest.raises(UsageError, match=r"takes a pymc\.Model"):
        sgld.from_pymc(3)
