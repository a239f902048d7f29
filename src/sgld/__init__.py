"""Bayesian learning at the cost of stochastic gradient descent, with a verdict on every run.

This module is the public interface. Names are imported at their first use, so that `import sgld` and
`sgld --help` are fast; the table below gives the module of each name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import diffusion as diffusion
    from . import errors as errors
    from . import gallery as gallery
    from . import networks as networks
    from . import sklearn as sklearn
    from . import testing as testing
    from . import torch as torch
    from . import typing as typing
    from . import variational as variational
    from .approximation.mode import Mode as Mode
    from .approximation.mode import find_map as find_map
    from .data.open import open as open
    from .diagnostics.gradient_noise import gradient_statistics as gradient_statistics
    from .inference.confirm import confirm as confirm
    from .inference.laplace import laplace as laplace
    from .inference.laplace import sandwich as sandwich
    from .inference.reference import reference as reference
    from .inference.sample import sample as sample
    from .inference.step_halving import step_halving as step_halving
    from .inference.tuning.ensemble import rejection_rate as rejection_rate
    from .inference.variational import Variational as Variational
    from .inference.variational import bayes_by_backprop as bayes_by_backprop
    from .interfaces.arviz_criteria import compare_models as compare_models
    from .interfaces.arviz_criteria import loo as loo
    from .interfaces.arviz_criteria import waic as waic
    from .interfaces.sklearn import SGLDClassifier as SGLDClassifier
    from .interfaces.sklearn import SGLDRegressor as SGLDRegressor
    from .model.numpyro import from_numpyro as from_numpyro
    from .model.posterior import Posterior as Posterior
    from .model.pymc import from_pymc as from_pymc
    from .regression.fit import fit as fit
    from .regression.fit import resume as resume
    from .regression.result import Fit as Fit
    from .results.draws import Draws as Draws
    from .results.storage import load as load
    from .results.summary import compare as compare
    from .samplers.baoa import BAOA as BAOA
    from .samplers.gradients.control_variates import SVRG as SVRG
    from .samplers.gradients.control_variates import ControlVariates as ControlVariates
    from .samplers.gradients.full import Full as Full
    from .samplers.gradients.full import Minibatch as Minibatch
    from .samplers.gradients.saga import SAGA as SAGA
    from .samplers.preconditioners.adaptive import AdaGrad as AdaGrad
    from .samplers.preconditioners.adaptive import RMSprop as RMSprop
    from .samplers.preconditioners.fixed import Dense as Dense
    from .samplers.preconditioners.fixed import Diagonal as Diagonal
    from .samplers.preconditioners.fixed import LowRank as LowRank
    from .samplers.preconditioners.fixed import Scalar as Scalar
    from .samplers.preconditioners.kronecker import Kronecker as Kronecker
    from .samplers.replica_exchange import ReplicaExchange as ReplicaExchange
    from .samplers.schedules import constant as constant
    from .samplers.schedules import cosine_cycles as cosine_cycles
    from .samplers.schedules import from_learning_rate as from_learning_rate
    from .samplers.schedules import from_welling_teh as from_welling_teh
    from .samplers.schedules import polynomial as polynomial
    from .samplers.schedules import polynomial_between as polynomial_between
    from .samplers.schedules import power as power
    from .samplers.schedules import robbins_monro as robbins_monro
    from .samplers.sghmc import SGHMC as SGHMC
    from .samplers.sgld import SGLD as SGLD
    from .samplers.sgnht import SGNHT as SGNHT
    from .samplers.ubu import UBU as UBU

_NAMES = {
    "model.posterior": "Posterior",
    "data.open": "open",
    "model.numpyro": "from_numpyro",
    "model.pymc": "from_pymc",
    "inference.sample": "sample",
    "regression.fit": "fit resume",
    "regression.result": "Fit",
    "results.storage": "load",
    "results.draws": "Draws",
    "inference.reference": "reference",
    "inference.tuning.ensemble": "rejection_rate",
    "inference.confirm": "confirm",
    "inference.step_halving": "step_halving",
    "results.summary": "compare",
    "interfaces.arviz_criteria": "loo waic compare_models",
    "diagnostics.gradient_noise": "gradient_statistics",
    "inference.laplace": "laplace sandwich",
    "approximation.mode": "find_map Mode",
    "inference.variational": "bayes_by_backprop Variational",
    "samplers.sgld": "SGLD",
    "samplers.sghmc": "SGHMC",
    "samplers.baoa": "BAOA",
    "samplers.ubu": "UBU",
    "samplers.sgnht": "SGNHT",
    "samplers.replica_exchange": "ReplicaExchange",
    "samplers.gradients.full": "Full Minibatch",
    "samplers.gradients.control_variates": "ControlVariates SVRG",
    "samplers.gradients.saga": "SAGA",
    "samplers.preconditioners.fixed": "Scalar Diagonal Dense LowRank",
    "samplers.preconditioners.kronecker": "Kronecker",
    "samplers.preconditioners.adaptive": "RMSprop AdaGrad",
    "samplers.schedules": "constant cosine_cycles from_learning_rate from_welling_teh polynomial polynomial_between power robbins_monro",
    "sklearn": "SGLDRegressor SGLDClassifier",
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = (
    "diffusion",
    "errors",
    "gallery",
    "networks",
    "sklearn",
    "testing",
    "torch",
    "typing",
    "variational",
)

# left out of `import *`, which must not fail if an extra is missing
_EXTRAS = ("torch", "sklearn", "SGLDClassifier", "SGLDRegressor")

__all__ = ["__version__", *(n for n in (*_WHERE, *_MODULES) if n not in _EXTRAS)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        from .errors import check_requirements

        check_requirements()
        value = getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
    elif name in _MODULES:
        value = importlib.import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module 'sgld' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_EXTRAS})
