"""Lightning's Trainer as an elastic training: `import offcut.torch.lightning as L` in place of `import lightning as L`.

`Trainer` and `OffcutStrategy` are offcut's, and the strategy's name "offcut" is registered. Every other name is the one
of `lightning`, or of `lightning.pytorch`. Outside of a job the Trainer is Lightning's own.

- `strategy`: what a `Trainer` asks of its strategy; `trainer`: the `Trainer` that has it in a job
- `elastic_fit`: ties a Trainer's loops to an elastic training; `fit_loaders`: the loaders that the loops get
- `trainer_state`: what belongs to the training's state besides the model; `logged_values`: values that a module logs,
  over the global batch; `log_files`: the loggers' files, which one member writes after another
"""

from __future__ import annotations

import importlib
from typing import Any

from offcut.torch.lightning.strategy import OffcutStrategy
from offcut.torch.lightning.trainer import Trainer

__all__ = ["OffcutStrategy", "Trainer"]


def __getattr__(name: str) -> Any:
    """Return what `lightning`, or else `lightning.pytorch`, has by this name."""
    for package in ("lightning", "lightning.pytorch"):
        found = getattr(importlib.import_module(package), name, None)
        if found is not None:
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
