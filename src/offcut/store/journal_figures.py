"""What a journal has written since it was opened, and what it could not write."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from offcut.histogram import Histogram

_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


@dataclass(slots=True)
class JournalFigures:
    """Counts of one process."""

    events: int = 0
    #: Of the events as they are stored, without what SQLite adds.
    event_bytes: int = 0
    #: By what could not be done. After `append` or `sync` the controller ends; a later snapshot takes the place of one
    #: that failed; of the story only lines are missing.
    failures: Counter[str] = field(default_factory=lambda: Counter(append=0, sync=0, snapshot=0, story=0))
    #: How long the disk took to make events safe.
    sync_seconds: Histogram = field(default_factory=lambda: Histogram(_BOUNDS_S))

    def note_written(self, size_bytes: int) -> None:
        """Count one event."""
        self.events += 1
        self.event_bytes += size_bytes
