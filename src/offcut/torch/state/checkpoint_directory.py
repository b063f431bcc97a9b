"""The directory with a job's checkpoints: which there are, and how one is published or put out of the way."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

#: How many published checkpoints stay.
KEEP = 2
_PUBLISHED = re.compile(r"step-(\d+)")
_UNPUBLISHED = re.compile(r"\.step-(\d+)\.(.*)")


class CheckpointDirectory:
    """A directory that all nodes see, with one directory for each checkpoint; what is called `step-N` is complete.

    Until it is published a checkpoint is called `.step-N.G`, where G is the generation that writes it: the shares of
    two generations do not mix, because one of them may have gone back to an earlier step.

    Args:
        path: the directory; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def unpublished(self, step: int, made_by: int | str) -> Path:
        """Return where a checkpoint is written.

        Args:
            step: the step whose state it is.
            made_by: the generation that writes it, or what else makes the name unique.
        """
        return self.path / f".step-{step:010d}.{made_by}"

    def published(self, step: int) -> Path:
        """Return where the checkpoint of a step is once it is published."""
        return self.path / f"step-{step:010d}"

    def steps(self) -> list[int]:
        """Return the steps of published checkpoints, the newest first."""
        return sorted((int(match[1]) for match, _ in self._named(_PUBLISHED)), reverse=True)

    def places(self, step: int) -> list[Path]:
        """Return where the state of a step may be: the published checkpoint, or else the unpublished, newest first."""
        if self.published(step).is_dir():
            return [self.published(step)]
        found = [(match[2], path) for match, path in self._named(_UNPUBLISHED) if int(match[1]) == step]
        return [path for made_by, path in sorted(found, key=lambda item: _number(item[0]), reverse=True)]

    def claim(self, unpublished: Path) -> Path | None:
        """Take an unpublished checkpoint to publish it; return its new place, None if another member was quicker."""
        mine = unpublished.with_name(f"{unpublished.name}.{os.urandom(4).hex()}")
        try:
            unpublished.rename(mine)
        except FileNotFoundError:
            return None
        return mine

    def publish(self, step: int, complete: Path) -> None:
        """Give a complete checkpoint its final name, and delete those that it makes superfluous. OSError."""
        final = self.published(step)
        if final.exists():  # the same state, by members of an earlier generation
            shutil.rmtree(complete)
        else:
            complete.rename(final)
        old = [self.published(found) for found in self.steps()[KEEP:]]
        # The writers of other unpublished ones of these steps have died, or this checkpoint was quicker.
        debris = [path for match, path in self._named(_UNPUBLISHED) if int(match[1]) <= step]
        for path in [*old, *debris]:
            # Renamed first: a directory with the final name is always complete.
            gone = path.with_name(f".step-{0:010d}.{path.name}")
            with suppress(FileNotFoundError):
                path.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)

    def set_aside(self, step: int) -> None:
        """Rename a published checkpoint that is not used; it stays until one of a later step is published. OSError."""
        aside = self.unpublished(step, "unreadable")
        shutil.rmtree(aside, ignore_errors=True)
        self.published(step).rename(aside)

    def drop_unpublished_after(self, step: int) -> None:
        """Delete unpublished checkpoints of later steps: none of their shares may be read any more."""
        for match, path in self._named(_UNPUBLISHED):
            if int(match[1]) > step and match[2] != "unreadable":
                shutil.rmtree(path, ignore_errors=True)

    def _named(self, name: re.Pattern[str]) -> list[tuple[re.Match[str], Path]]:
        if not self.path.is_dir():
            return []
        found = ((name.fullmatch(path.name), path) for path in self.path.iterdir())
        return [(match, path) for match, path in found if match]


def _number(made_by: str) -> int:
    return int(made_by) if made_by.isdecimal() else -1
