"""The posterior of a module in one call, the update rules of `sgld` as PyTorch optimisers, and ensembles.

    ensemble = sgld.torch.sample(model, loss, dataset, prior_sd=1.0)    # judged by its predictions

    optimizer = sgld.torch.SGLD(model.parameters(), step_size=1e-6, num_data=len(train))
    loss.backward(); optimizer.step()          # loss: the MEAN negative log likelihood of the batch

One convention with the rest of the package: h multiplies the gradient of the full-data log
posterior, here -(num_data grad(loss) + prior_precision theta). Importing this module without
torch raises MissingExtra with the command that installs it; `import sgld` never imports torch.
"""

from ..errors import need

need("torch", "torch")

from .ensemble import Ensemble  # noqa: E402
from .monitor import Batches  # noqa: E402
from .optimisers import PSGLD, SGHMC, SGLD  # noqa: E402
from .predictive import Classes, Values  # noqa: E402
from .sample import resume, sample  # noqa: E402

__all__ = ["PSGLD", "SGHMC", "SGLD", "Batches", "Classes", "Ensemble", "Values", "resume", "sample"]
