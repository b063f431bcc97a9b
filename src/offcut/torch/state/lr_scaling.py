"""The learning rate under a fixed batch per rank: a rule for the size, and a warm-up after a resize.

With B samples per rank and w ranks the global batch is w·B. The linear rule multiplies the learning rate by w (Goyal et
al. 2017, section 2.1), the square-root rule by √w (Krizhevsky 2014, section 3.1). After a resize the factor moves
linearly from its old value to its new one, over `warmup_steps` steps (Goyal et al., section 2.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from offcut.errors import InputError

RULES = {"none": lambda world: 1.0, "linear": float, "sqrt": math.sqrt}


class LrScaling:
    """Scales the learning rate.

    Only an applied step changes it, so that all members that applied the same steps agree.

    `state_dict` is part of the training's state.
    """

    def __init__(self, rule: str, warmup_steps: int) -> None:
        if rule not in RULES:
            raise InputError(f"Session: lr_rule is {rule!r}.", next_step=f"Choose one of {', '.join(RULES)}.")
        if warmup_steps < 0:
            raise InputError(f"Session: warmup_steps is {warmup_steps}.", next_step="It must be at least 0.")
        self._rule = RULES[rule]
        self._warmup_steps = warmup_steps
        #: The size of the last applied step (0: none yet), the first step of that size, and the factor before it.
        self._world, self._since, self._before = 0, 0, 1.0

    def factor(self, step: int, world: int) -> float:
        """Return what the learning rate of step `step` is multiplied by at `world` members."""
        since, before = self._at(step, world)
        after = self._rule(world)
        done = 1.0 if self._warmup_steps == 0 else min(1.0, (step - since + 1) / self._warmup_steps)
        return before + (after - before) * done

    def applied(self, step: int, world: int) -> None:
        """Note that step `step` was applied at `world` members."""
        self._since, self._before = self._at(step, world)
        self._world = world

    def _at(self, step: int, world: int) -> tuple[int, float]:
        if world == self._world:
            return self._since, self._before
        # Before the first resize there is no warm-up: the script's own schedule begins the training.
        return step, self._rule(world) if self._world == 0 else self.factor(step - 1, self._world)

    @contextmanager
    def during(self, optimizers: list[torch.optim.Optimizer], step: int, world: int) -> Iterator[None]:
        """Give the groups this step's learning rates within the context; schedulers only ever see the script's own."""
        factor = self.factor(step, world)
        groups = [group for optimizer in optimizers for group in optimizer.param_groups] if factor != 1.0 else []
        own = [group["lr"] for group in groups]
        for group, rate in zip(groups, own, strict=True):
            # A learning rate that is a tensor stays the script's own object, unchanged.
            group["lr"] = rate * factor
        try:
            yield
        finally:
            for group, rate in zip(groups, own, strict=True):
                group["lr"] = rate

    def state_dict(self) -> dict[str, Any]:
        return {"world": self._world, "since": self._since, "before": self._before}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._world, self._since, self._before = state["world"], state["since"], state["before"]
