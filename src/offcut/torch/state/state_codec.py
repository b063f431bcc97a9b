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
from offcut.torch.state.training_state import TrainingState, map_tensors

#: Smaller tensors (counters, biases) stay in the skeleton.
INLINE_BYTES = 1024

#: Where a tensor is in a tree: the keys of dicts, and the places in lists and tuples.
TreePath = tuple[str | int, ...]


def is_small(path: TreePath, tensor: torch.Tensor) -> bool:
    """Return whether a tensor costs less within the skeleton than by itself."""
    return bool(tensor.numel() * tensor.element_size() <= INLINE_BYTES)


def take_apart(
    tree: Any, inline: Callable[[TreePath, torch.Tensor], bool] = is_small
) -> tuple[torch.Tensor, dict[str, torch.Tensor], dict[str, TreePath]]:
    """Split a tree.

    Args:
        tree: nested dicts, lists and tuples of tensors and plain values.
        inline: returns whether a tensor stays in the skeleton.

    Returns:
        The skeleton (uint8 [n], on the CPU); the other tensors by name, in order, the living ones; and their paths in
        the tree. A name is the path with dots: `model.0.weight`.
    """
    paths = _named_paths(tree)
    tensors: dict[str, torch.Tensor] = {}
    places: dict[str, TreePath] = {}
    shapes: list[tuple[int, ...] | None] = []

    def empty(tensor: torch.Tensor) -> torch.Tensor:
        (name, path), tensor = next(paths), tensor.detach()
        if inline(path, tensor):
            shapes.append(None)
            return tensor.cpu().clone()
        shapes.append(tuple(tensor.shape))
        tensors[name], places[name] = tensor, path
        return torch.empty(0, dtype=tensor.dtype, device="cpu")

    bones = map_tensors(tree, empty)
    written = io.BytesIO()
    torch.save({"tree": bones, "shapes": shapes}, written)
    return torch.frombuffer(bytearray(written.getvalue()), dtype=torch.uint8), tensors, places


def check_state(state: TrainingState) -> None:
    """Raise InputError unless the state can be written and read back, and its model is as it was given to offcut."""
    state.check_model()
    read_back(take_apart(state.tree())[0].numpy().tobytes())


def put_together(
    skeleton: torch.Tensor, supply: Callable[[str, tuple[int, ...], torch.dtype], torch.Tensor]
) -> dict[str, Any]:
    """Return the tree, on the CPU; `supply` is called for each tensor in order, with its name, shape and type."""
    saved = torch.load(io.BytesIO(skeleton.numpy().tobytes()), weights_only=True, map_location="cpu")
    paths, shapes = _named_paths(saved["tree"]), iter(saved["shapes"])

    def fill(tensor: torch.Tensor) -> torch.Tensor:
        (name, _), shape = next(paths), next(shapes)
        return tensor if shape is None else supply(name, shape, tensor.dtype)

    tree: dict[str, Any] = map_tensors(saved["tree"], fill)
    return tree


def _named_paths(tree: Any) -> Iterator[tuple[str, TreePath]]:
    """Yield the names and paths of the tensors, in the order of map_tensors. No name comes twice."""
    seen: dict[str, int] = {}
    for path in _paths(tree, ()):
        name = ".".join(map(str, path))
        seen[name] = count = seen.get(name, 0) + 1
        yield (name if count == 1 else f"{name}#{count}"), path


def _paths(tree: Any, path: TreePath) -> Iterator[TreePath]:
    if isinstance(tree, torch.Tensor):
        yield path
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from _paths(value, (*path, str(key)))
    elif isinstance(tree, (list, tuple)):
        for i, value in enumerate(tree):
            yield from _paths(value, (*path, i))
