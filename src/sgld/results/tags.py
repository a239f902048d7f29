"""Short names of the classes that run directories store, independent of the modules that define them.

A run directory names a class by its tag, for example "BAOA", and never by the path of a module. A module
or a class may therefore move or change its name: CLASS_OF_TAG then names the new place under the same tag.

Versions up to commit 0de9404 wrote the path of the module, for example "sgld.sampler.baoa.BAOA". TAG_OF_FORMER_CLASS
lists these paths as they were then, and never changes.
"""

from __future__ import annotations

import importlib
from typing import Any

# every class that a file may name, by its tag: "module:class"
CLASS_OF_TAG = {
    "AdaGrad": "sgld.samplers.preconditioners.adaptive:AdaGrad",
    "AffineLaw": "sgld.samplers.stationary:AffineLaw",
    "BAOA": "sgld.samplers.baoa:BAOA",
    "ConfinedHMC": "sgld.samplers.confined_hmc:ConfinedHMC",
    "Constant": "sgld.samplers.schedules:Constant",
    "ControlVariates": "sgld.samplers.gradients.control_variates:ControlVariates",
    "CosineCycles": "sgld.samplers.schedules:CosineCycles",
    "CycleTemperature": "sgld.samplers.schedules:CycleTemperature",
    "Dense": "sgld.samplers.preconditioners.fixed:Dense",
    "Diagonal": "sgld.samplers.preconditioners.fixed:Diagonal",
    "Doubt": "sgld.approximation.known:Doubt",
    "Estimate": "sgld.samplers.gradients.full:Estimate",
    "Full": "sgld.samplers.gradients.full:Full",
    "Guide": "sgld.samplers.gradients.control_variates:Guide",
    "HMC": "sgld.samplers.hmc:HMC",
    "Known": "sgld.approximation.known:Known",
    "KnownModes": "sgld.approximation.modes:KnownModes",
    "Kronecker": "sgld.samplers.preconditioners.kronecker:Kronecker",
    "Laplace": "sgld.approximation.laplace:Laplace",
    "Law": "sgld.samplers.stationary:Law",
    "LowRank": "sgld.samplers.preconditioners.fixed:LowRank",
    "LowRankLaplace": "sgld.approximation.low_rank:LowRankLaplace",
    "Minibatch": "sgld.samplers.gradients.full:Minibatch",
    "Plan": "sgld.results.plan:Plan",
    "Polynomial": "sgld.samplers.schedules:Polynomial",
    "Power": "sgld.samplers.schedules:Power",
    "Predicted": "sgld.results.plan:Predicted",
    "Ray": "sgld.approximation.rays:Ray",
    "Regions": "sgld.samplers.confined_hmc:Regions",
    "ReplicaExchange": "sgld.samplers.replica_exchange:ReplicaExchange",
    "RMSprop": "sgld.samplers.preconditioners.adaptive:RMSprop",
    "RobbinsMonro": "sgld.samplers.schedules:RobbinsMonro",
    "SAGA": "sgld.samplers.gradients.saga:SAGA",
    "Scalar": "sgld.samplers.preconditioners.fixed:Scalar",
    "Scaled": "sgld.samplers.schedules:Scaled",
    "Setup": "sgld.results.plan:Setup",
    "SGHMC": "sgld.samplers.sghmc:SGHMC",
    "SGLD": "sgld.samplers.sgld:SGLD",
    "SGNHT": "sgld.samplers.sgnht:SGNHT",
    "SVRG": "sgld.samplers.gradients.control_variates:SVRG",
    "UBU": "sgld.samplers.ubu:UBU",
}

# classes by the module that older versions wrote; those of sgld.typing are in digests alone
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
    """Return the class that a file names, by its tag or by its path of older versions; None for any other name.

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
    """Return the name of a class of this library in the digests of versions up to commit 0de9404.

    Example:
      >>> import sgld
      >>> from sgld.results.tags import former_name
      >>> former_name(sgld.BAOA)
      'sgld.sampler.baoa.BAOA'
    """
    name = tag_of(kind) or kind.__qualname__
    return _PATH_OF.get(name, f"{kind.__module__}.{kind.__qualname__}")
