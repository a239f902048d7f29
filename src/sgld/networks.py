"""Bayesian neural networks: priors per layer, predictive probabilities, scores of models.

A network's weights are a position like any other: a pytree of arrays (a dict, the parameters of a
Flax linen module), or a module of Equinox or of Flax's nnx, passed to `sgld.sample` as `init`.
"""

from .inference.network_scores import (
    Classes,
    HeldBack,
    Scores,
    classes,
    held_back,
    kronecker,
    scores,
)
from .inference.prediction_halving import HalvedPredictions, step_halving
from .model.modules import Network, as_module, part
from .model.network_priors import (
    LaplacePrior,
    LearntPrior,
    NormalPrior,
    StudentTPrior,
    laplace_prior,
    normal_prior,
    student_t_prior,
)
from .results.storage import restore

__all__ = [
    "Classes",
    "HalvedPredictions",
    "HeldBack",
    "LaplacePrior",
    "LearntPrior",
    "Network",
    "NormalPrior",
    "Scores",
    "StudentTPrior",
    "as_module",
    "classes",
    "held_back",
    "kronecker",
    "laplace_prior",
    "normal_prior",
    "part",
    "restore",
    "scores",
    "step_halving",
    "student_t_prior",
]
