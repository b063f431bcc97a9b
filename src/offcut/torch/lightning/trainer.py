"""Lightning's Trainer, with `OffcutStrategy` in a job."""

from __future__ import annotations

import inspect
import os
from typing import Any

import lightning.pytorch
from lightning.pytorch.strategies import DDPStrategy

from offcut.errors import InputError
from offcut.torch.lightning.strategy import OffcutStrategy
from offcut.wire.worker_env import ENV_AGENT


class Trainer(lightning.pytorch.Trainer):
    """Lightning's `Trainer`, which trains as a member in a job. Outside of one it is Lightning's own.

    Args:
        options: those of `lightning.Trainer`. In a job `OffcutStrategy` takes the place of a `strategy` for one device,
            or of "ddp".

    Raises:
        InputError: in a job, the strategy is another one.
    """

    def __init__(self, **options: Any) -> None:
        if os.environ.get(ENV_AGENT):
            options["strategy"] = _in_job(options.get("strategy", "auto"))
        super().__init__(**options)

    # For those who look at it, as `LightningCLI` does.
    __init__.__signature__ = inspect.signature(lightning.pytorch.Trainer.__init__)  # type: ignore[attr-defined]


def _in_job(strategy: Any) -> OffcutStrategy:
    if isinstance(strategy, OffcutStrategy):
        return strategy
    name = strategy if isinstance(strategy, str) else ""
    if name in ("auto", "offcut") or name.startswith("ddp") or isinstance(strategy, DDPStrategy):
        return OffcutStrategy()
    raise InputError(
        f"offcut.torch.lightning: Trainer(strategy={name or type(strategy).__name__!r}) is not supported in a job of "
        "mode 'session'.",
        next_step="Leave `strategy` out, or run the script in mode 'restart', as under torchrun.",
    )
