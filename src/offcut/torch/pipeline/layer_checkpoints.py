"""Checkpoints of a state that is spread over the members: a file for each layer, published when all are written.

A checkpoint is a directory `step-N` with `common.pt` and `layer-I.pt` for every layer. A job can go on from it at any
size, and each member reads its own layers. Until it is complete it is called `.step-N.G`, where G is the generation
that writes it: the layers of two generations do not mix, because one of them may have gone back to a checkpoint. No
member waits for another: each writes its own layers, and the member that finds the directory complete renames it.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from offcut.torch.state.fault_points import FaultPoints, NoFaults
from offcut.torch.state.training_state import map_tensors

#: How many published checkpoints stay.
KEEP = 2
_PUBLISHED = re.compile(r"step-(\d+)")
_UNPUBLISHED = re.compile(r"\.step-(\d+)\.(\d+)")
_UNREADABLE = re.compile(r"\.step-(\d+)\.unreadable")


class SavedLayers(NamedTuple):
    """What one member saves: the part of the state that all members have, and layers by number."""

    common: dict[str, Any]
    layers: dict[int, dict[str, Any]]


class LayerCheckpoints:
    """The checkpoints of a job of `layers` layers, in `directory`. `on_problem` is told of a full or read-only disk.

    Nothing is published once `overtaken_by` returns a generation's number.
    """

    def __init__(
        self,
        directory: Path,
        layers: int,
        age_s: float,
        on_problem: Callable[[str], None],
        faults: FaultPoints | None = None,
        overtaken_by: Callable[[], int] = lambda: 0,
    ) -> None:
        self._overtaken_by = overtaken_by
        self._directory = directory
        self._layers = layers
        self._period_s = age_s / 2
        self._on_problem = on_problem
        self._faults = faults or NoFaults()
        # The first is due at once: without a checkpoint, the loss of a stage is the loss of the training.
        self._next_s = 0.0
        self._writer: threading.Thread | None = None
        #: The newest step that this member has begun to write.
        self._begun = -1
        #: The last generation that formed with this member.
        self._generation = 0

    @property
    def due(self) -> bool:
        """Whether the newest checkpoint is getting old."""
        return time.monotonic() >= self._next_s and self._writer is None

    def begin(
        self, step: int, generation: int, workers: tuple[str, ...], rank: int, read: Callable[[], SavedLayers]
    ) -> None:
        """Copy this member's part and begin to write it in a thread of its own; see `Checkpointer`."""
        self._next_s = time.monotonic() + self._period_s
        self._begun = step
        self._join()
        common, layers = map_tensors(read(), lambda tensor: tensor.detach().cpu().clone())
        self._writer = threading.Thread(
            target=self.write, args=(step, common, layers, generation), name="offcut-checkpoint", daemon=True
        )
        self._writer.start()

    def members_changed(self, generation: int, workers: tuple[str, ...]) -> None:
        """Make a checkpoint due in a new generation: the parts of members that have left may never be written."""
        self._generation = generation
        if self._begun > self.newest_step():
            self._next_s = 0.0

    def _join(self) -> None:
        if self._writer is not None:
            self._writer.join()
            self._writer = None

    def write(
        self, step: int, common: dict[str, Any], layers: dict[int, dict[str, Any]], generation: int | None = None
    ) -> None:
        """Write this member's part of a checkpoint of `generation` (None: the one that it is in), at once."""
        place = self._directory / f".step-{step:010d}.{self._generation if generation is None else generation}"
        try:
            place.mkdir(parents=True, exist_ok=True)
            for name, tree in [("common", common), *((f"layer-{i}", tree) for i, tree in layers.items())]:
                half = place / f".{name}.{os.getpid()}.{threading.get_ident()}"
                with half.open("wb") as file:
                    torch.save(tree, file)
                    self._faults.visit("writing", step=step)
                    file.flush()
                    os.fsync(file.fileno())
                half.replace(place / f"{name}.pt")
        except FileNotFoundError:
            pass  # a newer one has been published meanwhile, and this directory removed
        except (OSError, RuntimeError) as error:
            self._on_problem(f"a checkpoint at step {step} could not be written: {error}")

    def publish(self, stable_step: int, rank: int = 0) -> bool:
        """Publish the newest complete checkpoint of a stable step; return whether there was one."""
        if self._writer is not None and not self._writer.is_alive():
            self._writer = None
        if rank != 0:
            return False  # one member looks into the directory; all may publish
        unpublished = self._unpublished()
        ready = [(step, place) for step, place in unpublished if step <= stable_step and self._whole(place)]
        if not ready:
            return False
        step, place = ready[0]
        self._faults.visit("publishing", step=step)
        if newer := self._overtaken_by():
            self._on_problem(f"the checkpoint at step {step} does not count: generation {newer} has formed elsewhere")
            shutil.rmtree(place, ignore_errors=True)
            return False
        with suppress(OSError):  # another member was quicker, or an earlier generation published the same state
            place.replace(self._directory / f"step-{step:010d}")
        old = [self._directory / f"step-{n:010d}" for n in self._steps()[KEEP:]]
        debris = [other for n, other in unpublished if n <= step]
        for path in [*old, *debris, *self._set_aside_before(step)]:
            shutil.rmtree(path, ignore_errors=True)
        return True

    def save_now(self, step: int, saved: SavedLayers) -> None:
        """Write this member's part before this returns, and publish the checkpoint if it was the last part."""
        self._join()
        self.write(step, saved.common, saved.layers)
        self.publish(step)

    def newest_step(self) -> int:
        """Return the step of the newest published checkpoint; -1 if there is none."""
        return max(self._steps(), default=-1)

    def before(self, step: int) -> int:
        """Return the step of the newest published checkpoint before that of `step`; -1 if there is none."""
        return max((found for found in self._steps() if found < step), default=-1)

    def has(self, step: int, layers: Collection[int]) -> bool:
        """Return whether those layers of that step can be read; other layers may be missing."""
        return all(self._file(step, f"layer-{i}") is not None for i in layers)

    def layer(self, step: int, i: int) -> dict[str, Any]:
        return self._read(step, f"layer-{i}")

    def common(self, step: int) -> dict[str, Any]:
        return self._read(step, "common")

    def read(self, step: int, layers: Collection[int]) -> tuple[dict[str, Any], dict[int, dict[str, Any]]] | None:
        """Return the common part of that checkpoint, and those layers; None, and report it, if they cannot be read."""
        try:
            return self.common(step), {i: self.layer(step, i) for i in layers}
        except Exception as error:  # torch raises many types of errors for a damaged file; an older one may be readable
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            self._on_problem(f"the checkpoint of step {step} cannot be read ({reason}); trying an older one")
            return None

    def set_aside(self, step: int) -> None:
        """Put the checkpoints of later steps than `step`, from which the training goes on, out of the way.

        Published ones must not count as newer than the training's own: they are renamed, and stay until a later step
        than theirs is published. Of unpublished ones no layer may be read any more: they are removed.
        """
        for later in [found for found in self._steps() if found > step]:
            with suppress(OSError):
                (self._directory / f"step-{later:010d}").rename(self._directory / f".step-{later:010d}.unreadable")
        for later, place in self._unpublished():
            if later > step:
                shutil.rmtree(place, ignore_errors=True)

    def finish_writing(self) -> None:
        """Wait until this member has written what it has begun to write."""
        self._join()

    def _set_aside_before(self, step: int) -> list[Path]:
        found = ((path, _UNREADABLE.fullmatch(path.name)) for path in self._directory.iterdir())
        return [path for path, match in found if match and int(match[1]) < step]

    def _read(self, step: int, name: str) -> dict[str, Any]:
        place = self._file(step, name)
        if place is None:
            raise FileNotFoundError(f"{name}.pt of step {step} is missing")
        tree: dict[str, Any] = torch.load(place, weights_only=True, map_location="cpu")
        return tree

    def _file(self, step: int, name: str) -> Path | None:
        """Return the file of that step: the published one, or else the newest generation's; None if there is none."""
        published = self._directory / f"step-{step:010d}"
        places = [published] if published.is_dir() else [place for n, place in self._unpublished() if n == step]
        return next((file for place in places if (file := place / f"{name}.pt").is_file()), None)

    def _whole(self, place: Path) -> bool:
        return (place / "common.pt").is_file() and all((place / f"layer-{i}.pt").is_file() for i in range(self._layers))

    def _steps(self) -> list[int]:
        """Return the steps of published checkpoints, newest first."""
        return sorted((int(match[1]) for _, match in self._named(_PUBLISHED)), reverse=True)

    def _unpublished(self) -> list[tuple[int, Path]]:
        """Return the steps and directories of unpublished checkpoints: the newest first, of the newest generation."""
        found = [(int(match[1]), int(match[2]), path) for path, match in self._named(_UNPUBLISHED)]
        return [(step, path) for step, _, path in sorted(found, reverse=True)]

    def _named(self, name: re.Pattern[str]) -> list[tuple[Path, re.Match[str]]]:
        if not self._directory.is_dir():
            return []
        found = ((path, name.fullmatch(path.name)) for path in self._directory.iterdir())
        return [(path, match) for path, match in found if match]
