"""Variational inference: Bayes by Backprop, families, the ELBO and its gradient."""

from .family import FullRank, MeanField, Reparameterised
from .fit import bayes_by_backprop
from .objective import Elbo, elbo, kl_weight, reparameterised_gradient, scale_mixture_prior
from .result import Variational

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
