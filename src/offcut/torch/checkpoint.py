"""Checkpoints for the case that every member is lost: written beside the training, published whole or not at all."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from offcut.torch.faults import Faults
from offcut.torch.state import map_tensors

_NAME = re.compile(r"step-(\d+)\.pt")
_UNPUBLISHED = re.compile(r"\.step-(\d+)\.\d+\.\d+")
#: How many published checkpoints stay.
KEEP = 2


class Checkpoints:
    """`directory` holds one file per checkpoint; what has the final name is whole.

    A checkpoint is written in a thread of its own from a copy of the state, and published only when its step is
    stable. `on_problem` hears of a full or read-only disk.
    """

    def __init__(
        self, directory: Path, age_s: float, on_problem: Callable[[str], None], faults: Faults | None = None
    ) -> None:
        self._faults = faults or Faults([])
        self._directory = directory
        # A new one is begun at half the age: the last published one is as old as that plus the writing.
        self._period_s = age_s / 2
        self._on_problem = on_problem
        self._next_s = time.monotonic() + self._period_s
        self._writer: threading.Thread | None = None
        self._written: tuple[int, Path] | None = None

    def maybe_begin(self, step: int, tree: Callable[[], dict[str, Any]]) -> None:
        """Begin a checkpoint of the state at this boundary if the last one is getting old."""
        if time.monotonic() < self._next_s or self._writer is not None or self._written is not None:
            return
        self._next_s = time.monotonic() + self._period_s
        copy = map_tensors(tree(), lambda tensor: tensor.detach().cpu().clone())
        self._writer = threading.Thread(target=self._write, args=(step, copy), name="offcut-checkpoint", daemon=True)
        self._writer.start()

    def publish(self, stable_step: int) -> None:
        """Publish what has been written, if its step is stable by now."""
        if self._writer is not None and not self._writer.is_alive():
            self._writer = None
        if self._writer is None and self._written is not None and self._written[0] <= stable_step:
            self._publish(*self._written)
            self._written = None

    def save_now(self, step: int, tree: dict[str, Any]) -> None:
        """Write and publish at once: the last member goes, or the training has come to its end."""
        self._write(step, tree)
        if self._written is not None and self._written[0] == step:
            self._publish(*self._written)
            self._written = None

    def newest(self) -> dict[str, Any] | None:
        """The newest checkpoint that can be read, or None. Tells of those that cannot."""
        for path in sorted(self._published(), reverse=True):
            try:
                return torch.load(path, weights_only=True, map_location="cpu")
            except Exception as error:  # torch raises many kinds for a damaged file; the next older one may do
                self._on_problem(f"the checkpoint {path.name} cannot be read ({error}); trying an older one")
        return None

    def _published(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        return [path for path in self._directory.iterdir() if _NAME.fullmatch(path.name)]

    def _debris(self, step: int) -> list[Path]:
        """What writers of earlier steps left unpublished: they died, or this one has overtaken them."""
        found = ((path, _UNPUBLISHED.fullmatch(path.name)) for path in self._directory.iterdir())
        return [path for path, match in found if match and int(match[1]) < step]

    def _write(self, step: int, tree: dict[str, Any]) -> None:
        path = self._directory / f".step-{step:010d}.{os.getpid()}.{threading.get_ident()}"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                torch.save(tree, file)
                self._faults.at("writing", step=step)
                file.flush()
                os.fsync(file.fileno())
            self._written = (step, path)
        except (OSError, RuntimeError) as error:
            self._on_problem(f"a checkpoint at step {step} could not be written: {error}")
            with suppress(OSError):
                path.unlink()

    def _publish(self, step: int, path: Path) -> None:
        self._faults.at("publishing", step=step)
        try:
            path.replace(self._directory / f"step-{step:010d}.pt")
            for old in [*sorted(self._published(), reverse=True)[KEEP:], *self._debris(step)]:
                old.unlink(missing_ok=True)
        except OSError as error:
            self._on_problem(f"the checkpoint at step {step} could not be published: {error}")
