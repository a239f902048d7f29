"""Provide short names of the classes that run directories store, independent of their modules.

A run directory names a class by its tag, for example "BAOA", and never by the path of a module. If
a module or a class moves or gets another name, CLASS_OF_TAG maps the same tag to the new place.

Older versions wrote the path of the module, for example "sgld.sampler.baoa.BAOA".
TAG_OF_FORMER_CLASS lists these paths and never changes.
"""

from __future__ import annotations

import importlib
from typing import Any

# every class that a file may name, by its module; a renamed class keeps its tag in CLASS_OF_TAG
_MODULES = {
    "sgld.approximation.known": "Doubt Known",
    "sgld.approximation.laplace": "Laplace",
    "sgld.approximation.low_rank": "LowRankLaplace",
    "sgld.approximation.modes": "KnownModes",
    "sgld.approximation.rays": "Ray",
    "sgld.results.plan": "Plan Predicted Setup",
    "sgld.samplers.baoa": "BAOA",
    "sgld.samplers.confined_hmc": "ConfinedHMC Regions",
    "sgld.samplers.gradients.control_variates": "ControlVariates Guide SVRG",
    "sgld.samplers.gradients.full": "Estimate Full Minibatch",
    "sgld.samplers.gradients.saga": "SAGA",
    "sgld.samplers.hmc": "HMC",
    "sgld.samplers.preconditioners.adaptive": "AdaGrad RMSprop",
    "sgld.samplers.preconditioners.fixed": "Dense Diagonal LowRank Scalar",
    "sgld.samplers.preconditioners.kronecker": "Kronecker",
    "sgld.samplers.replica_exchange": "ReplicaExchange",
    "sgld.samplers.schedules": "Constant CosineCycles CycleTemperature Polynomial Power RobbinsMonro Scaled",
    "sgld.samplers.sghmc": "SGHMC",
    "sgld.samplers.sgld": "SGLD",
    "sgld.samplers.sgnht": "SGNHT",
    "sgld.samplers.stationary": "AffineLaw Law",
    "sgld.samplers.ubu": "UBU",
}
CLASS_OF_TAG = {
    name: f"{module}:{name}" for module, names in _MODULES.items() for name in names.split()
}

# classes by the module that older versions wrote; those of sgld.typing occur only in digests
_FORMER_MODULES = {
    "sgld.draws.plan": "Plan Predicted",
    "sgld.draws.setup": "Setup",
    "sgld.gaussian.dense": "Laplace",
    "sgld.gaussian.doubts": "Doubt",
    "sgld.gaussian.known": "Known",
    "sgld.gaussian.lowrank": "LowRankLaplace",
    "sgld.gaussian.modes": "KnownModes",
    "sgld.gaussian.rays": "Ray",
    "sgld.gradient.control_variates": "ControlVariates",
    "sgld.gradient.estimate": "Estimate",
    "sgld.gradient.full": "Full",
    "sgld.gradient.guide": "Guide",
    "sgld.gradient.minibatch": "Minibatch",
    "sgld.gradient.saga": "SAGA",
    "sgld.gradient.svrg": "SVRG",
    "sgld.law.affine": "AffineLaw",
    "sgld.law.overdamped": "Law",
    "sgld.preconditioner.adaptive": "AdaGrad RMSprop",
    "sgld.preconditioner.fixed": "Dense Diagonal LowRank Scalar",
    "sgld.preconditioner.kronecker": "Kronecker",
    "sgld.sampler.baoa": "BAOA",
    "sgld.sampler.confined": "ConfinedHMC Regions",
    "sgld.sampler.hmc": "HMC",
    "sgld.sampler.replica_exchange": "ReplicaExchange",
    "sgld.sampler.sghmc": "SGHMC",
    "sgld.sampler.sgld": "SGLD",
    "sgld.sampler.sgnht": "SGNHT",
    "sgld.sampler.ubu": "UBU",
    "sgld.schedule": "Constant CosineCycles CycleTemperature Polynomial Power RobbinsMonro Scaled",
    "sgld.typing": "Estimator Preconditioner Sampler",
}
TAG_OF_FORMER_CLASS = {
    f"{module}.{name}": name for module, names in _FORMER_MODULES.items() for name in names.split()
}
_PATH_OF = {tag: path for path, tag in TAG_OF_FORMER_CLASS.items()}


def class_of(written: str) -> Any:
    """Return the class that a file names by tag or former path; None for any other name.

    Example:
      >>> from sgld.results.tags import class_of
      >>> class_of("BAOA") is class_of("sgld.sampler.baoa.BAOA")
      True
      >>> class_of("subprocess.Popen") is None
      True
    """
    where = CLASS_OF_TAG.get(TAG_OF_FORMER_CLASS.get(written, written))
    if where is None:
        return None
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)


def tag_of(kind: type) -> str | None:
    """Return the tag of a class; None for a class that is not stored.

    Example:
      >>> import sgld
      >>> from sgld.results.tags import tag_of
      >>> tag_of(sgld.BAOA), tag_of(dict)
      ('BAOA', None)
    """
    name = f":{kind.__qualname__}"
    tags = (tag for tag, where in CLASS_OF_TAG.items() if where.endswith(name))
    return next((tag for tag in tags if class_of(tag) is kind), None)


def stable_name(kind: type) -> str:
    """Return a name of a class of this library that stays the same when its module moves.

    Example:
      >>> import sgld
      >>> from sgld.results.tags import stable_name
      >>> stable_name(sgld.BAOA)
      'sgld:BAOA'
    """
    return f"sgld:{tag_of(kind) or kind.__qualname__}"


def former_name(kind: type) -> str:
    """Return the name that older versions used in digests for a class of this library.

    Example:
      >>> import sgld
      >>> from sgld.results.tags import former_name
      >>> former_name(sgld.BAOA)
      'sgld.sampler.baoa.BAOA'
    """
    name = tag_of(kind) or kind.__qualname__
    return _PATH_OF.get(name, f"{kind.__module__}.{kind.__qualname__}")
