"""What a script logs: means over the members, in one record for each applied step."""

from __future__ import annotations

import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import torch

from offcut.torch.membership.process_group import Group
from offcut.wire.metric_records import METRICS_FILE, MetricFile, MetricRecord

#: A member that becomes the first one writes those of its last records that the one before has not written.
_RECENT = 64


class LoggedMetrics:
    """Collects what a script logs, and writes it on the first member. See `Stateful`.

    The state has the record of the last step, which may not be written yet when the last member leaves.

    Args:
        directory: the job's; None in a script by itself, which logs nothing.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        #: In this step, by name: the weighted sum of the values of each batch, or of each call.
        self._sums: dict[str, dict[tuple[int, int], float]] = {}
        self._means: dict[str, float] = {}
        self._time_s = 0.0
        #: The records of the last steps that this member has not written, and the last record at all, as a line.
        self._recent: deque[MetricRecord] = deque(maxlen=_RECENT)
        self._last = ""
        self._file: MetricFile | None = None
        self._failed = False

    @property
    def active(self) -> bool:
        """Whether what is logged goes anywhere."""
        return self._directory is not None

    @property
    def names(self) -> str:
        """The names of what was logged in this step, on which all members have to agree."""
        return ", ".join(sorted(self._sums))

    def begin_step(self) -> None:
        """Begin a step."""
        self._sums, self._means = {}, {}

    def add(self, name: str, value: float, weight: float, call: tuple[int, int] | None) -> None:
        """Add a value of this step.

        Args:
            name: its name.
            value: the mean over this member's share, or over a virtual shard.
            weight: how much of the global batch that is.
            call: the loop over virtual shards of which it is; None: the value stands for itself.
        """
        sums = self._sums.setdefault(name, {})
        call = call or (-1, len(sums))
        sums[call] = sums.get(call, 0.0) + (value * weight if weight > 0.0 else 0.0)

    def exchange(self, group: Group) -> None:
        """Sum the step's values over the members, who agree on their names. Raises Abandoned."""
        names = sorted(self._sums)
        if not names:
            return
        own = [sum(self._sums[name].values()) / len(self._sums[name]) for name in names]
        # The time is the first member's, because records are the same on all members.
        total = torch.tensor([time.time() if group.rank == 0 else 0.0, *own], dtype=torch.float64, device="cpu")
        group.wait(group.start_all_reduce(total))
        time_s, *means = total.tolist()
        self._time_s, self._means = round(time_s, 3), dict(zip(names, means, strict=True))

    def applied(self, group: Group, *, step: int, epoch: int, samples: int) -> None:
        """Note that the step was applied, so that no failure can undo the one before.

        Args:
            group: the members.
            step: the number of the step, counted from 1.
            epoch: its data epoch.
            samples: the samples of the training, with this step's.
        """
        self.write(first=group.rank == 0)
        if self._means:
            generation = group.membership.generation
            self._recent.append(MetricRecord(self._time_s, generation, step, epoch, samples, self._means))
            self._last = self._recent[-1].line()

    def write(self, *, first: bool) -> None:
        """Write the records that are not written yet, on the first member.

        Args:
            first: whether this is the first member.
        """
        if self._directory is None or self._failed:
            return
        if not first:
            if self._file is not None:
                self._file.close()
                self._file = None
            return
        try:
            if self._recent and self._file is None:
                self._file = MetricFile(self._directory / METRICS_FILE)
            for record in self._recent:
                if self._file is not None and (record.generation, record.step) > self._file.last:
                    self._file.write(record)
        except OSError as error:
            self._failed = True
            sys.stderr.write(f"offcut: what the script logs is not kept any more: {error}\n")
        self._recent.clear()

    def state_dict(self) -> dict[str, Any]:
        return {"last": self._last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["last"] != self._last:
            self._last = state["last"]
            self._recent.clear()
            if self._last:
                self._recent.append(MetricRecord.parse(self._last))
