"""Variational inference: Bayes by Backprop, families, the ELBO and its gradient."""

from .family import FullRank as FullRank
from .family import MeanField as MeanField
from .family import Reparameterised as Reparameterised
from .fit import bayes_by_backprop as bayes_by_backprop
from .objective import Elbo as Elbo
from .objective import elbo as elbo
from .objective import kl_weight as kl_weight
from .objective import reparameterised_gradient as reparameterised_gradient
from .objective import scale_mixture_prior as scale_mixture_prior
from .result import Variational as Variational
