"""Which of a job's generations trains, in a file beside its checkpoints: for members that no controller reaches."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class GenerationMark:
    """The number of the last generation that has formed, in the file `path`, which all nodes see.

    Members that are cut off from the controller train on, because they cannot know that it has set a newer generation
    elsewhere. What they would write then must not count: they see it here.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        #: The last generation that formed with this member.
        self._own = -1

    def formed(self, generation: int, *, first: bool) -> None:
        """Note that a generation has formed with this member; the first member writes it down.

        It does so whatever is there: after a journal was restored from a copy, smaller numbers than that may be given.
        """
        self._own = generation
        if first:
            unfinished = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            with suppress(OSError):  # a full disk, which checkpoints report
                unfinished.write_text(str(generation))
                unfinished.replace(self._path)

    def overtaken_by(self) -> int:
        """Return the number of the generation that has formed without this member since; 0 if there is none."""
        with suppress(OSError, ValueError):
            formed = int(self._path.read_text())
            return formed if formed > self._own >= 0 else 0
        return 0
