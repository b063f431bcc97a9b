"""Models as chains of layers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from offcut.errors import InputError  # noqa: E402
from offcut.torch.pipeline.layer_chain import layer_chain, load_model  # noqa: E402


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        h = self.a(x).relu()
        return self.c(self.b(h) + h * self.scale)


def run(chain, cuts, x):
    values = (x,)
    for first, end in pairwise(cuts):
        out = chain.stage(first, end)(*values)
        values = out if isinstance(out, tuple) else (out,)
    return values[0]


@pytest.mark.parametrize("cuts", [(0, 3), (0, 1, 3), (0, 2, 3), (0, 1, 2, 3)])
def test_stages_compute_what_the_model_does(cuts: tuple[int, ...]) -> None:
    model, x = Residual(), torch.randn(5, 4)
    assert torch.allclose(run(layer_chain(model), cuts, x), model(x))


def test_a_skip_is_named_and_carried() -> None:
    chain = layer_chain(Residual())
    assert chain.names == ["a: Linear", "b: Linear", "c: Linear"]
    assert chain.carried == [("relu",), ("add",), ("c",)]
    assert set(chain.parameters_of(1, 2)) == {"b.weight", "b.bias", "scale"}
    every = set(chain.parameters_of(0, 3))
    assert every == {name for name, _ in Residual().named_parameters()}


def test_tied_weights_cannot_be_cut_apart() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    chain = layer_chain(model)
    chain.stage(0, 3)
    with pytest.raises(InputError, match=r"parameter 0?\.?weight is used by layer 0 .* and by layer 2"):
        chain.stage(0, 1)


class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_a_model_that_cannot_be_traced_is_refused() -> None:
    with pytest.raises(InputError, match="tracing it failed"):
        layer_chain(Branches())
    with pytest.raises(InputError, match="no layers"):
        layer_chain(nn.Sequential())
    with pytest.raises(InputError, match="layers 0 to 8, the model has 3"):
        layer_chain(Residual()).stage(0, 9)


def test_loading_a_model(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        "import torch\ndef build():\n    return torch.nn.Sequential(torch.nn.Linear(2, 2))\ndef no():\n    return 3\n"
    )
    assert len(layer_chain(load_model(f"{path}:build"))) == 1
    for where, message in (
        (f"{path}:none", "no function 'none'"),
        (f"{path}:no", "returned int"),
        (str(path), "does not name a function|no such file"),
        (f"{tmp_path}/x.py:build", "no such file"),
    ):
        with pytest.raises(InputError, match=message):
            load_model(where)
