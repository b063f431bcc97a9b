"""Rows of a batch: tensors in tuples, lists and dicts, whose first dimension counts the samples."""

from __future__ import annotations

from typing import Any

import torch

from offcut.errors import InputError
from offcut.torch.state.training_state import map_tensors


def rows_in(batch: Any) -> int:
    """Return the number of rows of a batch.

    Args:
        batch: what a function of the script has drawn: tensors, or tuples, lists and dicts of them, whose first
            dimension counts the rows.

    Raises:
        InputError: it has no tensor with rows, or its tensors have different numbers of them.
    """
    lengths: set[int] = set()

    def count(tensor: torch.Tensor) -> torch.Tensor:
        lengths.add(len(tensor) if tensor.dim() else 0)
        return tensor

    map_tensors(batch, count)
    if len(lengths) != 1 or 0 in lengths:
        several = "tensors with different numbers of rows" if len(lengths) > 1 else "no tensor with rows"
        raise InputError(
            f"offcut.torch: the function that draws batches, or rows, returned {several}.",
            next_step="Let it return tensors, or a tuple or dict of them, with one row for each sample of the global "
            "batch.",
        )
    return lengths.pop()


def rows_of(batch: Any, rows: list[int]) -> Any:
    """Return some rows of a batch, in the same containers; the batch's own tensors if they are all of it."""
    index = torch.tensor(rows, device="cpu")

    def choose(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if rows == list(range(len(tensor))) else tensor[index.to(tensor.device)]

    return map_tensors(batch, choose)
