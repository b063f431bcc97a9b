"""All that a training is: model with buffers, optimizers, registered objects, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from offcut.torch.sampler import Cursor


class Stateful(Protocol):
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


class TrainingState:
    """`step` counts applied steps, `samples` the samples in them; `cursor` is the next sample.

    A *tree* is the whole state as nested dicts, lists and tuples of tensors and plain values.
    """

    def __init__(self, model: torch.nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
        self.model = model
        self.optimizers = optimizers
        self.registered: list[Stateful] = []
        self.cursor = Cursor()
        self.step = 0
        self.samples = 0
        self._buffers = [buffer for buffer in model.buffers() if buffer is not None]
        self._kept = [buffer.detach().clone() for buffer in self._buffers]

    def tree(self) -> dict[str, Any]:
        """The state as a tree; its tensors are the living ones, not copies."""
        return {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "registered": [item.state_dict() for item in self.registered],
            "progress": {
                "step": self.step,
                "samples": self.samples,
                "epoch": self.cursor.epoch,
                "offset": self.cursor.offset,
            },
        }

    def boundary_tree(self) -> dict[str, Any]:
        """The tree as of the last boundary, in the middle of a step that has not been applied."""
        tree = self.tree()
        for (name, _), kept in zip(self.model.named_buffers(), self._kept, strict=True):
            if name in tree["model"]:
                tree["model"][name] = kept
        return tree

    def load(self, tree: dict[str, Any]) -> None:
        """Become what `tree` says."""
        if len(tree["registered"]) != len(self.registered):
            raise ValueError(
                f"the state has {len(tree['registered'])} registered objects, this script registers "
                f"{len(self.registered)}: register the same ones in every run of a job"
            )
        self.model.load_state_dict(tree["model"])
        for optimizer, saved in zip(self.optimizers, tree["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        for item, saved in zip(self.registered, tree["registered"], strict=True):
            item.load_state_dict(saved)
        progress = tree["progress"]
        self.step, self.samples = progress["step"], progress["samples"]
        self.cursor = Cursor(progress["epoch"], progress["offset"])
        self.keep_buffers()

    def keep_buffers(self) -> None:
        """Remember the buffers as they are at this boundary: a forward pass changes them before its step counts."""
        if self._buffers:
            torch._foreach_copy_(self._kept, self._buffers)

    def restore_buffers(self) -> None:
        if self._buffers:
            with torch.no_grad():
                torch._foreach_copy_(self._buffers, self._kept)

    def outside_model(self) -> list[dict[str, Any]]:
        """Copies of what a script may change right after a step: registered objects and the groups' settings."""
        groups = [
            [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
            for optimizer in self.optimizers
        ]
        return map_tensors(
            [*(item.state_dict() for item in self.registered), {"groups": groups}], lambda t: t.detach().clone()
        )

    def restore_outside_model(self, saved: list[dict[str, Any]]) -> None:
        for item, state in zip(self.registered, saved[:-1], strict=True):
            item.load_state_dict(state)
        for optimizer, groups in zip(self.optimizers, saved[-1]["groups"], strict=True):
            for group, settings in zip(optimizer.param_groups, groups, strict=True):
                group.update(settings)


def map_tensors(tree: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A copy of `tree` with every tensor replaced, in a fixed order; containers keep their kind."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, dict):
        copy = tree.copy()
        for key, value in tree.items():
            copy[key] = map_tensors(value, change)
        return copy
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tensors(value, change) for value in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_tensors(value, change) for value in tree)
    return tree
