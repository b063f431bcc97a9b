"""Weights the gradients of virtual shards, as they are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from offcut.errors import InputError


class ShardGradients:
    """Multiplies each gradient by the weight of what it is of, before it is added to what is there.

    So the sum over all shards is the gradient of the mean over the global batch, and gradients between two loops over
    shards can be removed as in plain torch. `torch.autograd.grad` is not concerned.
    """

    def __init__(self) -> None:
        self._weight = 1.0
        #: The nodes that add up the gradients of parameters; they are kept alive because hooks belong to them.
        self._nodes: list[Any] = []
        self._hooks: list[Any] = []
        self._parameters: list[int] = []
        #: By parameter: where its gradient was after the last backward pass, and how often it had been changed.
        self._seen: dict[torch.nn.Parameter, tuple[int, int]] = {}

    def begin_step(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Begin a step in which `parameters` are trained."""
        if [id(p) for p in parameters] == self._parameters:
            return
        self.end()
        self._parameters = [id(p) for p in parameters]
        for p in parameters:
            node = torch.autograd.graph.get_gradient_edge(p).node
            self._nodes.append(node)
            self._hooks.append(node.register_prehook(lambda grads, p=p: self._weighted(p, grads)))
            self._hooks.append(p.register_post_accumulate_grad_hook(self._see))

    def enter(self, weight: float) -> None:
        """Begin with a shard, which is this much of the global batch."""
        self._weight = weight

    def outside(self, weight: float) -> None:
        """Begin with what the script does outside of the loop over shards.

        Args:
            weight: how much of the global batch this member's shards are together.
        """
        self._seen.clear()
        self._weight = weight

    def _weighted(self, p: torch.nn.Parameter, grads: tuple[torch.Tensor | None, ...]) -> tuple[Any, ...]:
        seen = self._seen.get(p)
        if seen is not None and (p.grad is None or (p.grad.data_ptr(), p.grad._version) != seen):
            raise InputError(
                "offcut.torch: gradients were removed or changed inside the loop over the shards, by zero_grad() for "
                "example: those of the shards before are lost.",
                next_step="Call zero_grad() before the loop over the shards, and optimizer.step() after it.",
            )
        if self._weight == 0.0:
            # Another member has this shard. 0 times an infinite gradient would be NaN.
            return tuple(None if grad is None else torch.zeros_like(grad) for grad in grads)
        return tuple(None if grad is None else grad * self._weight for grad in grads)

    def _see(self, p: torch.Tensor) -> None:
        if p.grad is not None and not p.grad.is_sparse:
            self._seen[p] = (p.grad.data_ptr(), p.grad._version)

    def end(self) -> None:
        """Leave gradients as they are from now on."""
        for hook in self._hooks:
            hook.remove()
        self._nodes, self._hooks, self._parameters = [], [], []
        self._seen.clear()
