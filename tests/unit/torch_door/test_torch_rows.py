"""Rows as they come: dtypes, shapes of labels, transforms that are random; and rows that a network cannot take."""

import random
import warnings

import numpy as np
import pytest

from sgld.errors import SGLDWarning, UsageError

torch = pytest.importorskip("torch")

from torch_parts import F, drawn  # noqa: E402

from sgld.torch.likelihood import checked  # noqa: E402
from sgld.torch.network import floating  # noqa: E402
from sgld.torch.rows import read_rows  # noqa: E402

CPU = torch.device("cpu")


def rows():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(60, 4, generator=generator)
    return x, (x[:, 0] > 0).long()


def read(model, data):
    return read_rows(data, CPU, 0, floating(model))


def refused(sentence, data, outputs=2, loss=F.cross_entropy):
    model = torch.nn.Linear(4, outputs)
    with pytest.raises(UsageError, match=sentence):
        checked(model, loss, read(model, data))


def test_rows_have_a_dtype_of_the_network():
    x, y = rows()
    single, double, both = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2).double(), torch.nn.Linear(4, 2)  # fmt: skip
    both.register_buffer("wide", torch.zeros(1, dtype=torch.float64))
    for data in ((x.double().numpy(), y.numpy()), torch.utils.data.TensorDataset(x.double(), y)):
        found = read(single, data)
        assert found.inputs[0].dtype == torch.float32 and torch.equal(found.inputs[0], x)
        assert found.target.dtype == torch.int64
        checked(single, F.cross_entropy, found)
    checked(double, F.cross_entropy, read(double, (x, y)))
    assert read(both, (x, y)).inputs[0].dtype == torch.float32  # one that it has
    assert read(both, (x.half(), y)).inputs[0].dtype == torch.float64
    assert read(single, (x, x.double())).target.dtype == torch.float32
    assert read(double, (x, x.double())).target.dtype == torch.float64
    assert read(double, (x, x)).target.dtype == torch.float32
    assert read(single, {"ids": y, "labels": y}).inputs["ids"].dtype == torch.int64
    assert read_rows((x.double(), y), CPU, 0).inputs[0].dtype == torch.float64


def test_a_target_of_another_shape_is_told_what_to_do():
    x, y = rows()
    binary = F.binary_cross_entropy_with_logits
    refused(r"one number a row: use target\[:, 0\]\.$", (x, y[:, None]))
    refused(r"use target\[:, 0\]\.long\(\)\.$", (x, y[:, None].float()))
    refused(
        r"target: target\[:, None\]\.$|outputs: target\[:, None\]\.$", (x, y.float()), 1, binary
    )
    refused(r"outputs: target\[:, None\]\.float\(\)", (x, y), 1, binary)
    refused(r"floating point, use target\.float\(\)", (x, y[:, None]), 1, binary)
    with pytest.warns(UserWarning, match="different to the input size"):
        refused(r"where that mean is .*; give .*: target\[:, None\]", (x, y.float()), 1, F.mse_loss)
    refused(r"integers are taken by embeddings alone, x\.float\(\)", (y[:, None].repeat(1, 4), y))


def test_rows_that_a_network_does_not_take_when_it_predicts():
    ensemble = drawn(torch.nn.Linear(3, 2))
    for x, sentence in (
        (torch.zeros(4, 5), r"x, \[4, 5\] of float32 \(mat1.*rows first, each like the rows that it"),
        (torch.zeros(4, 3, dtype=torch.long), r"x\.float\(\) by other layers"),
        (torch.zeros(3), r"one output per row of x.* Got shape \[2\].*a single row is x\[None\]"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=sentence):
            ensemble.predict_proba(x)
    assert ensemble.outputs(torch.zeros(0, 3)).shape == (5, 0, 2)


class Transformed(torch.utils.data.Dataset):
    def __init__(self, transform):
        self.transform, self.rows = transform, rows()

    def __len__(self):
        return len(self.rows[1])

    def __getitem__(self, i):
        return self.transform(self.rows[0][i]), self.rows[1][i]


@pytest.mark.parametrize(
    "transform",
    [
        lambda x: x + torch.randn(4),
        lambda x: x * float(np.random.choice([-1.0, 1.0])),  # noqa: NPY002
        lambda x: x if random.random() < 0.5 else x.flip(0),
    ],
    ids=["torch", "numpy", "python"],
)
def test_random_transforms_are_told_and_change_no_stream(transform, monkeypatch):
    def both():
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        found = read_rows(Transformed(transform), CPU, 0)
        return found.digest(), float(torch.rand(())), np.random.rand(), random.random()  # noqa: NPY002

    with pytest.warns(SGLDWarning, match=r"read again \(input 0\).*random transforms stay"):
        told = both()
    monkeypatch.setattr("sgld.torch.rows._say_random", lambda loader, whole: None)
    assert told == both()


def test_what_is_the_same_when_it_is_read_again_is_not_told():
    x, _ = rows()

    def longest(batch):  # rows as long as the longest of the batch
        sizes = torch.tensor([n for _, n in batch])
        return torch.arange(float(sizes.max())).repeat(len(batch), 1), sizes

    padded = [(x[i], 1 + (i == 3)) for i in range(60)]  # the one long row is not read again
    once = iter(range(60))

    class Once(Transformed):
        def __getitem__(self, i):
            next(once)
            return super().__getitem__(i)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_rows(Transformed(lambda x: x), CPU, 0)
        read_rows(torch.utils.data.DataLoader(Transformed(lambda x: x), batch_size=7, shuffle=True), CPU, 0)  # fmt: skip
        read_rows(torch.utils.data.DataLoader(padded, batch_size=60, collate_fn=longest), CPU, 0)
        read_rows(Once(lambda x: x), CPU, 0)
