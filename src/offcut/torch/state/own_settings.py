"""A trial that goes on from another trial's checkpoint keeps the optimizer settings that its own script has made."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from offcut.wire.worker_env import COPIED_STEP_FILE


def copied_step(checkpoints: Path) -> int:
    """Return the step of the checkpoint that was copied from another trial; -1 if none was.

    Args:
        checkpoints: the directory of the job's checkpoints.
    """
    with suppress(OSError, ValueError):
        return int((checkpoints / COPIED_STEP_FILE).read_text())
    return -1


class OwnSettings:
    """The settings of the optimizers' groups and schedulers, as the script has made them.

    A checkpoint of another trial has that trial's settings (learning rate, momentum, weight decay, ...). This trial's
    own parameters are to take effect, and a schedule is to go on from the place where it was: so a learning rate that a
    scheduler has lowered to a tenth becomes a tenth of this trial's own.

    Args:
        optimizers: the optimizers, before the checkpoint is loaded.
        registered: the registered objects, among which may be schedulers.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], registered: Sequence[Any]) -> None:
        self._optimizers, self._registered = optimizers, registered
        self._groups = [
            [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
            for optimizer in optimizers
        ]
        self._base_lrs = [list(item.base_lrs) if isinstance(item, LRScheduler) else [] for item in registered]

    def restore(self) -> None:
        """Give the groups and schedulers these settings, after the checkpoint was loaded."""
        for optimizer, settings in zip(self._optimizers, self._groups, strict=True):
            # The checkpoint may have groups that the script adds later.
            for group, own in zip(optimizer.param_groups, settings, strict=False):
                group.update({**own, "lr": _lr(group, own)})
        for item, base_lrs in zip(self._registered, self._base_lrs, strict=True):
            if base_lrs:
                item.base_lrs[: len(base_lrs)] = base_lrs
                item._last_lr = [group["lr"] for group in item.optimizer.param_groups]


def _lr(saved: dict[str, Any], own: dict[str, Any]) -> Any:
    """Return the learning rate of a group: the script's own, at the place of the schedule that the saved one has."""
    before, mine = saved.get("initial_lr"), own.get("initial_lr")
    if before is None or mine is None or not float(before):
        return own["lr"]
    return saved["lr"] * (mine / before)
