"""The training that every system runs, and the record that its members write of each step."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

ENV_NOTES, ENV_NAME, ENV_WIDTH, ENV_WORK = "RESIZE_NOTES", "RESIZE_NAME", "RESIZE_WIDTH", "RESIZE_WORK_S"

#: Parameters by name: width and number of the square layers.
MODELS = {"84k": (256, 1), "25M": (2048, 6), "100M": (4096, 6)}
BATCH = 60
SAMPLES = 4096


def model() -> torch.nn.Module:
    """The one that the environment names."""
    return network(os.environ[ENV_WIDTH])


def network(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    width, layers = MODELS[name]
    square = [part for _ in range(layers) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(), *square, torch.nn.Linear(width, 10))


def optimizer(of: torch.nn.Module) -> torch.optim.Optimizer:
    """SGD with momentum: the state is twice the parameters."""
    return torch.optim.SGD(of.parameters(), lr=1e-3, momentum=0.9)


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 64, generator=generator)
    return TensorDataset(x, x[:, :10].argmax(1))


def work() -> None:
    """The time that an accelerator would take."""
    time.sleep(float(os.environ[ENV_WORK]))


def share(step: int, rank: int, world: int) -> torch.Tensor:
    """A peer's samples of a step."""
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(step))
    return order[:BATCH][rank::world]


class Notes:
    """One process's file of steps: instant, step, world; `ready` notes step 0."""

    def __init__(self) -> None:
        name = os.environ.get(ENV_NAME) or os.environ["OFFCUT_WORKER"]
        path = Path(os.environ[ENV_NOTES]) / f"{name}.{os.getpid()}"
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def ready(self) -> None:
        """The process is up, everything is imported and built: it may join."""
        self.done(0, 0)

    def done(self, step: int, world: int) -> None:
        os.write(self._file, f"{time.monotonic():.6f} {step} {world}\n".encode())


@dataclass(frozen=True, slots=True)
class Step:
    time_s: float
    name: str
    pid: int
    step: int
    world: int


class Record:
    """All processes' notes as they come."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}
        self.steps: list[Step] = []

    def refresh(self) -> None:
        for path in self._directory.iterdir():
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            name, _, pid = path.name.rpartition(".")
            for line in whole.splitlines():
                time_s, step, world = line.split()
                self.steps.append(Step(float(time_s), name, int(pid), int(step), int(world)))

    def complete(
        self, after_s: float, worlds: tuple[int, ...], without: frozenset[int]
    ) -> tuple[float, frozenset[int]] | None:
        """When a step after `after_s` was first done on all members, as many as `worlds` allows; their pids.

        None of them is in `without`.
        """
        by_step: dict[tuple[int, int], dict[int, float]] = {}
        for step in self.steps:
            if step.time_s > after_s and step.world in worlds and step.pid not in without:
                done = by_step.setdefault((step.step, step.world), {})
                done.setdefault(step.pid, step.time_s)
        whole = [(max(done.values()), frozenset(done)) for (_, world), done in by_step.items() if len(done) == world]
        return min(whole, key=lambda entry: entry[0]) if whole else None

    def ready(self, after_s: float, name: str) -> Step | None:
        """The first `ready` after an instant; of a process called `name`, unless that is empty."""
        return next((s for s in self.steps if s.step == 0 and name in ("", s.name) and s.time_s > after_s), None)


def median_gap_s(steps: list[Step], pid: int, last: int = 20) -> float:
    """Median time between the last steps of one process."""
    times = [step.time_s for step in steps if step.pid == pid][-last:]
    gaps = sorted(b - a for a, b in pairwise(times))
    return gaps[len(gaps) // 2] if gaps else float("nan")
