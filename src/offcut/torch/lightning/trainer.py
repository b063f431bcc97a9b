"""Lightning's Trainer with `OffcutStrategy`."""

from __future__ import annotations

import inspect
from typing import Any

import lightning.pytorch

from offcut.torch.lightning.strategy import OffcutStrategy


class Trainer(lightning.pytorch.Trainer):
    """Lightning's `Trainer`, which trains as a member of an offcut job, or alone.

    Args:
        options: those of `lightning.Trainer`. A `strategy` of "auto", which is the default, is `OffcutStrategy()`.
    """

    def __init__(self, **options: Any) -> None:
        if options.get("strategy", "auto") == "auto":
            options["strategy"] = OffcutStrategy()
        super().__init__(**options)

    # For those who look at it, as `LightningCLI` does.
    __init__.__signature__ = inspect.signature(lightning.pytorch.Trainer.__init__)  # type: ignore[attr-defined]
