"""The record of a job: whom faults struck, who trained which step under which generation, who ended how."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcut.model.events import WorkerExited
from offcut.service.paths import StatePaths
from offcut.store.journal import Journal


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault struck `worker` while it was at `step` (not yet applied) under `generation`; 0: before it was a
    member.
    """

    plan: int
    worker: str
    pid: int
    step: int
    rank: int
    generation: int


@dataclass(frozen=True, slots=True)
class End:
    """A worker's end, as its agent reported it."""

    outcome: str
    detail: str


class Account:
    """Every property looks again: a job that runs has more to tell each time."""

    def __init__(self, paths: StatePaths, job: str) -> None:
        self.job = job
        self.directory = paths.job(job)
        self._journal = paths.journal
        self._read = 0
        self._told: list[WorkerExited] = []

    @property
    def strikes(self) -> list[Strike]:
        found = []
        for path in sorted(self.directory.glob("fault-*")):
            if told := path.read_text():
                where = json.loads(told)
                where.pop("time_s")
                # Who writes a checkpoint beside the training does not say under which generation.
                where["generation"] = where["generation"] or self.last_generation(where["worker"])
                found.append(Strike(plan=int(path.name.split("-")[1]), **where))
        return found

    def _records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each line with its worker."""
        for path in self.directory.glob("records/*.jsonl"):
            for line in path.read_text().splitlines():
                if line.endswith("}"):
                    yield path.stem, json.loads(line)

    @property
    def contributed(self) -> dict[int, set[str]]:
        """Generation to the workers that contributed to a step in it."""
        found: dict[int, set[str]] = defaultdict(set)
        for worker, record in self._records():
            if "samples" in record:
                found[record["generation"]].add(worker)
        return dict(sorted(found.items()))

    def applied(self, step: int) -> dict[int, set[str]]:
        """Generation to the workers that applied this step in it."""
        found: dict[int, set[str]] = defaultdict(set)
        for worker, record in self._records():
            if "loss" in record and record["step"] == step:
                found[record["generation"]].add(worker)
        return dict(sorted(found.items()))

    def first_step_after(self, generation: int) -> int:
        """The first step that was applied in a later generation than this."""
        return min(
            record["step"] for _, record in self._records() if "loss" in record and record["generation"] > generation
        )

    def last_generation(self, worker: str) -> int:
        """The last one in which the worker contributed to a step; 0: none."""
        return max((generation for generation, workers in self.contributed.items() if worker in workers), default=0)

    @property
    def ends(self) -> dict[str, End]:
        """By worker, where jobs have one on each node."""
        return {
            f"{event.member.node}#{event.member.incarnation}:0": End(event.outcome, event.detail)
            for event in self._exits()
        }

    def _exits(self) -> list[WorkerExited]:
        journal = Journal(self._journal)
        try:
            for number, event in journal.events(after=self._read):
                self._read = number
                if isinstance(event, WorkerExited) and event.job == self.job:
                    self._told.append(event)
        finally:
            journal.close()
        return self._told

    @property
    def checkpoints(self) -> dict[int, Path]:
        """What has a checkpoint's name, by step."""
        found = {}
        for path in self.directory.glob("checkpoints/step-*"):
            found[int(path.name.removeprefix("step-"))] = path
        return dict(sorted(found.items()))


def node_of(worker: str) -> str:
    return worker.partition("#")[0]


def incarnation_of(worker: str) -> int:
    return int(worker.partition("#")[2].partition(":")[0])
