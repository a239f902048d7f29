"""What the tests of the PyTorch door share: parameters, steps, a model and draws of it."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

torch.set_num_threads(1)  # small tensors: threads would only wait for each other

import sgld.torch as st  # noqa: E402

F = torch.nn.functional

KINDS = [st.SGLD, st.PSGLD, st.SGHMC]

each = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def leaf(values, dtype=torch.float64):
    return torch.nn.Parameter(torch.as_tensor(values, dtype=dtype).clone())


def step_on(optimizer, grads):
    """A step with gradients written by hand, one per parameter."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for p, g in zip(params, grads, strict=True):
        p.grad = None if g is None else torch.as_tensor(g, dtype=p.dtype)
    optimizer.step()


class Mixed(torch.nn.Module):
    """Several dtypes, a buffer, a name with a dot, dropout; a module and a weight with two names."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
        self.tied = self.net[0]
        self.other = torch.nn.Linear(3, 3)
        self.other.weight = self.tied.weight
        self.narrow = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
        self.register_buffer("file", torch.arange(3))

    def forward(self, x):
        return self.other(self.tied(self.net(x))) * self.narrow.float() + self.file


def drawn(model, n=5, weights=(0.5, 1.0, 0.25, 2.0, 1.0)):
    ensemble = st.Ensemble(model)
    generator = torch.Generator().manual_seed(8)
    for k in range(n):
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape, generator=generator))
        ensemble.collect(weight=weights[k])
    return ensemble


def squares(outputs, target):
    """Minus the log density of N(outputs, 1), a number per row."""
    return 0.5 * (outputs[:, 0] - target) ** 2


def linear(num_data=300, seed=3):
    """A linear module in float64, its rows, and the closed form of its posterior under N(0, 1)."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_data, 3))
    x[:, 1] += 0.8 * x[:, 0]
    y = x @ [1.0, -2.0, 0.5] + 0.3 + rng.standard_normal(num_data)
    design = np.column_stack([x, np.ones(num_data)])
    covariance = np.linalg.inv(design.T @ design + np.eye(4))
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1).double()
    return model, (torch.tensor(x), torch.tensor(y)), covariance @ design.T @ y, covariance
