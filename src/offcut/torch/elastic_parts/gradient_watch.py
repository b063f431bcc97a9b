"""Finds out whether a script changes gradients after the backward pass and before they are summed over the members."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from offcut.errors import InputError

#: A script that does it does it in its first steps.
_STEPS = 3


class GradientWatch:
    """Watches the gradients of the first steps, which costs each backward pass a call per parameter.

    Args:
        parameters: what is trained.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        #: By parameter: where its gradient was after the last backward pass, and how often it had been changed.
        self._seen: dict[torch.nn.Parameter, tuple[int, int]] = {}
        self._hooks = [p.register_post_accumulate_grad_hook(self._see) for p in parameters if p.requires_grad]
        self._left = _STEPS

    def _see(self, p: torch.Tensor) -> None:
        if p.grad is not None and not p.grad.is_sparse:
            self._seen[p] = (p.grad.data_ptr(), p.grad._version)

    def check(self) -> None:
        """Check the gradients, which are about to be summed.

        Raises:
            InputError: the script has changed one.
        """
        if not self._hooks:
            return
        for p, seen in self._seen.items():
            if p.grad is not None and (p.grad.data_ptr(), p.grad._version) != seen:
                raise InputError(
                    "offcut.torch: gradients were changed between backward() and optimizer.step() (by clip_grad_norm_, "
                    "or by a GradScaler), before they were summed over the members.",
                    next_step="Call offcut.torch.reduce_gradients() after the last backward() of a step, before that "
                    "line.",
                )
        self.pass_step()

    def pass_step(self) -> None:
        """Note that the step's gradients are summed."""
        self._seen.clear()
        self._left -= 1
        if self._left == 0:
            for hook in self._hooks:
                hook.remove()
            self._hooks = []
