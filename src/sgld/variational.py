"""Variational inference: Bayes by Backprop, families, the ELBO and its gradient."""

from .inference.variational import Variational, bayes_by_backprop, elbo
from .inference.variational_family import (
    Elbo,
    FullRank,
    MeanField,
    Reparameterised,
    kl_weight,
    reparameterised_gradient,
    scale_mixture_prior,
)

__all__ = [
    "Elbo",
    "FullRank",
    "MeanField",
    "Reparameterised",
    "Variational",
    "bayes_by_backprop",
    "elbo",
    "kl_weight",
    "reparameterised_gradient",
    "scale_mixture_prior",
]
