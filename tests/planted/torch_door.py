"""Bugs in the PyTorch door: optimisers, the check of the loss, ensembles and their predictions."""

from .mutant import Mutant

ITERATES = (
    "tests/unit/torch_door/test_torch_optimisers.py::test_the_same_noise_gives_the_iterates_of_jax"
)
STATIONARY = (
    "tests/unit/torch_door/test_torch_optimisers.py::test_stationary_variance_is_the_closed_form"
)
LOSS = "tests/unit/torch_door/test_torch_loss.py::"
ENSEMBLE = "tests/unit/torch_door/test_torch_ensemble.py::"
ENTROPIES = ENSEMBLE + "test_entropies_add_up"
VALUES = ENSEMBLE + "test_values_are_those_of_the_mixture"

TORCH_DOOR = [
    Mutant(
        "torch SGLD: noise of half the variance", "torch/optimisers.py",
        "theta.add_(self._noise(p).to(theta.dtype), alpha=math.sqrt(2 * h * T))",
        "theta.add_(self._noise(p).to(theta.dtype), alpha=math.sqrt(h * T))", ITERATES,
    ),
    Mutant(
        "torch pSGLD: the metric, not its root, in the noise", "torch/optimisers.py",
        "D.sqrt().mul_(xi)", "D.mul(xi)", STATIONARY,
    ),
    Mutant(
        "torch pSGLD: started at 0 without correction", "torch/optimisers.py",
        'return state["v"] / max(share, 1e-30)', 'return state["v"] / 1.0', ITERATES,
    ),
    Mutant(
        "torch SGHMC: the noise of the gradients not taken off", "torch/optimisers.py",
        "math.sqrt(2 * (alpha - beta) * h * T)", "math.sqrt(2 * alpha * h * T)", ITERATES,
    ),
    Mutant(
        "torch: the prior counts once a row", "torch/base.py",
        'group["prior_precision"] / group["num_data"]', 'group["prior_precision"] / 1', ITERATES,
    ),
    Mutant(
        "torch loss: a sum over one row is refused", "torch/loss.py",
        'r.kind == "sum" and r.rows > 1', 'r.kind == "sum" and r.rows >= 1',
        LOSS + "test_one_row_is_both",
    ),
    Mutant(
        "torch loss: more rows in all than in the batch are refused", "torch/loss.py",
        "if rows > num_data:", "if rows < num_data:", LOSS + "test_more_rows_than_data",
    ),
    Mutant(
        "torch loss: a mean over outputs taken for one over rows", "torch/loss.py",
        "any(d % len(_sizes(node)) == 0 for d in dims)",
        "any(d % len(_sizes(node)) >= 0 for d in dims)", LOSS + "test_a_sum_is_explained",
    ),
    Mutant(
        "torch ensemble: draws weigh the same", "torch/ensemble.py",
        "return w / w.sum()", "return torch.ones_like(w) / len(w)",
        ENTROPIES,
    ),
    Mutant(
        "torch ensemble: dropout stays on", "torch/ensemble.py",
        "    model.eval()\n", "    model.train()\n",
        ENSEMBLE + "test_draws_are_copies_and_the_model_is_left_as_it_is",
    ),
    Mutant(
        "torch ensemble: a draw's weight is the smallest step", "torch/ensemble.py",
        "return max(steps)", "return min(steps)",
        ENSEMBLE + "test_weights_are_the_steps_taken_from_the_draws",
    ),
    Mutant(
        "torch predictions: the entropy of one draw counts in full", "torch/predictive.py",
        "h = share * torch.special.entr", "h = torch.special.entr", ENTROPIES,
    ),
    Mutant(
        "torch predictions: a single logit is the first class's", "torch/predictive.py",
        "torch.cat([torch.zeros_like(logits), logits], 1)",
        "torch.cat([logits, torch.zeros_like(logits)], 1)", ENTROPIES,
    ),
    Mutant(
        "torch predictions: sds of the noise added to variances", "torch/predictive.py",
        "(w * noise**2).sum(0)", "(w * noise).sum(0)", VALUES,
    ),
    Mutant(
        "torch predictions: the interval leaves out twice as much", "torch/predictive.py",
        "for q in ((1 - interval) / 2, (1 + interval) / 2)", "for q in (1 - interval, interval)",
        VALUES,
    ),
]  # fmt: skip
