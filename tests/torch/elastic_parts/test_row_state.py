"""What `RowState` refuses, in a script by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import offcut.torch
from offcut.errors import InputError


def begun(hidden: offcut.torch.RowState) -> tuple[nn.Module, Any, Any]:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return offcut.torch.elastic(model, optimizer, DataLoader(TensorDataset(torch.rand(10, 3)), 4), state=[hidden])


def test_rows_are_used_inside_a_step() -> None:
    hidden = offcut.torch.RowState(torch.zeros(4, 2))
    with pytest.raises(InputError, match=r"outside of a step.*\n?.*state=\[\.\.\.\]"):
        _ = hidden.rows
    model, optimizer, loader = begun(hidden)
    for _ in offcut.torch.epochs(1):
        for (x,) in loader:
            rows = hidden.rows
            assert rows.shape == (len(x), 2)
            assert not rows.requires_grad
            with pytest.raises(InputError, match="in the middle of a step"):
                hidden.reset()
            hidden.rows = model(x) + rows
            model(x).sum().backward()
            optimizer.step()
            with pytest.raises(InputError, match="outside of a step"):
                hidden.rows = rows
    # The last batch has two rows; the others keep their value.
    kept = hidden.state_dict()["value"]
    assert kept.shape == (4, 2)
    assert bool((kept != 0).all())
    hidden.reset()
    assert not hidden.state_dict()["value"].any()


def test_rows_are_set_before_the_gradients_are_summed() -> None:
    hidden = offcut.torch.RowState(torch.zeros(4, 2))
    model, _, loader = begun(hidden)
    for _ in offcut.torch.epochs(1):
        for (x,) in loader:
            model(x).sum().backward()
            offcut.torch.reduce_gradients()
            with pytest.raises(InputError, match="after the step's gradients were summed"):
                hidden.rows = model(x)
            return


@pytest.mark.parametrize(
    ("initial", "dim", "named"),
    [
        (torch.zeros(3, 2), 0, r"a batch of 4 rows, and a state of 3 \(in dimension 0\)"),
        (torch.zeros(1, 4, 2), 0, r"a batch of 4 rows, and a state of 1 \(in dimension 0\)"),
        (torch.zeros(4, 5), 0, r"the shape \(4, 2\), where \(4, 5\) is expected"),
        ((torch.zeros(4, 2), torch.zeros(4, 2)), 0, r"the shape None, where \(4, 2\) is expected"),
    ],
)
def test_shapes_that_do_not_fit_are_named(initial: Any, dim: int, named: str) -> None:
    hidden = offcut.torch.RowState(initial, dim=dim)
    model, _, loader = begun(hidden)
    for _ in offcut.torch.epochs(1):
        for (x,) in loader:
            with pytest.raises(InputError, match=named):
                hidden.rows = model(x)
            return
