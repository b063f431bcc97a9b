"""Splits a state into a small skeleton and the tensors whose bytes are worth moving by themselves.

The skeleton is the tree with these tensors emptied. It is written by torch.save and read with `weights_only`, which
builds only containers and tensors.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import torch

from offcut.torch.state.plain_values import read_back
from offcut.torch.state.training_state import map_tensors

#: Smaller tensors (counters, biases) stay in the skeleton.
INLINE_BYTES = 1024


def take_apart(tree: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the skeleton (uint8 [n], on the CPU), and the living tensors by name, in order.

    A name is the tensor's number and its path in the tree.
    """
    paths = _paths(tree, "")
    tensors: dict[str, torch.Tensor] = {}
    shapes: list[tuple[int, ...] | None] = []

    def empty(tensor: torch.Tensor) -> torch.Tensor:
        path, tensor = next(paths), tensor.detach()
        if tensor.numel() * tensor.element_size() <= INLINE_BYTES:
            shapes.append(None)
            return tensor.cpu().clone()
        shapes.append(tuple(tensor.shape))
        tensors[f"{len(tensors)}:{path}"] = tensor
        return torch.empty(0, dtype=tensor.dtype)

    bones = map_tensors(tree, empty)
    written = io.BytesIO()
    torch.save({"tree": bones, "shapes": shapes}, written)
    return torch.frombuffer(bytearray(written.getvalue()), dtype=torch.uint8), tensors


def check(tree: Any) -> None:
    """Raise InputError unless `tree` can be written and read back."""
    skeleton, _ = take_apart(tree)
    read_back(skeleton.numpy().tobytes())


def put_together(
    skeleton: torch.Tensor, supply: Callable[[str, tuple[int, ...], torch.dtype], torch.Tensor]
) -> dict[str, Any]:
    """Return the tree, on the CPU; `supply` is called for each tensor in order, with its path in the tree."""
    saved = torch.load(io.BytesIO(skeleton.numpy().tobytes()), weights_only=True, map_location="cpu")
    paths, shapes = _paths(saved["tree"], ""), iter(saved["shapes"])

    def fill(tensor: torch.Tensor) -> torch.Tensor:
        path, shape = next(paths), next(shapes)
        return tensor if shape is None else supply(path, shape, tensor.dtype)

    tree: dict[str, Any] = map_tensors(saved["tree"], fill)
    return tree


def _paths(tree: Any, path: str) -> Iterator[str]:
    """Yield the paths of the tensors, in the order of map_tensors."""
    if isinstance(tree, torch.Tensor):
        yield path
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from _paths(value, f"{path}/{key}" if path else str(key))
    elif isinstance(tree, (list, tuple)):
        for i, value in enumerate(tree):
            yield from _paths(value, f"{path}/{i}")
