"""Checks the promises after the demo: releases in time, no lost step, the loss of an undisturbed run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcut.cli.demo.scenario import DemoJob
from offcut.service.metrics.job_metrics import percentile
from offcut.wire.step_records import StepHistory, history
from offcut.wire.worker_env import ENV_GOAL, ENV_JOB_DIR, ENV_RECORDS

#: The largest difference from the loss of an undisturbed run; sums are computed in another order.
LOSS_TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class JobCheck:
    id: str
    state: str
    #: Stable steps that the job reported to the controller.
    steps: int
    samples: int
    loss: float | None
    reference_loss: float | None
    #: Stable steps that are incomplete in the records, and steps that were computed again.
    lost: int
    redone: int
    #: Samples of a data epoch that counted more than once.
    repeated: int

    @property
    def difference(self) -> float | None:
        if self.loss is None or self.reference_loss is None:
            return None
        return abs(self.loss - self.reference_loss)

    @property
    def held(self) -> bool:
        if self.steps == 0:
            return True
        same = self.difference is not None and self.difference <= LOSS_TOLERANCE
        return same and self.lost == 0 and self.repeated == 0


def check_job(shown: dict[str, Any], directory: Path, job: DemoJob, scratch: Path) -> JobCheck:
    """Compare a job's records with what it reported and with an undisturbed run of the same script."""
    steps = history(directory / "records")
    stable = int(shown["steps"])
    last = steps.get(stable)
    samples = sum(len(record.samples) for step, record in steps.items() if step <= stable)
    return JobCheck(
        id=shown["id"],
        state=shown["state"],
        steps=stable,
        samples=samples,
        loss=last.loss if last else None,
        reference_loss=_reference(job, samples, stable, scratch) if stable else None,
        lost=sum(not _whole(steps.get(step)) for step in range(1, stable + 1)),
        redone=sum(max(0, len(record.applied_in) - 1) for record in steps.values()),
        repeated=_repeated(steps, stable),
    )


def _whole(record: StepHistory | None) -> bool:
    return record is not None and record.loss is not None and bool(record.samples)


def _repeated(steps: dict[int, StepHistory], stable: int) -> int:
    seen: dict[int, Counter[int]] = {}
    for step, record in steps.items():
        if step <= stable:
            seen.setdefault(record.epoch, Counter()).update(record.samples)
    return sum(times - 1 for counter in seen.values() for times in counter.values())


def _reference(job: DemoJob, samples: int, step: int, scratch: Path) -> float | None:
    """Return the loss at `step` of the same script, run alone by plain Python without resizes."""
    directory = scratch / f"reference-{job.name}"
    directory.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        ENV_JOB_DIR: str(directory),
        ENV_RECORDS: "1",
        ENV_GOAL: str(samples),
    }
    done = subprocess.run(
        [sys.executable, str(job.script)], env=environment, cwd=directory, capture_output=True, check=False
    )
    (directory / "output").write_bytes(done.stdout + done.stderr)
    record = history(directory / "records").get(step)
    return record.loss if record else None


def check_jobs(
    shown: list[dict[str, Any]],
    directory: Callable[[str], Path],
    jobs: dict[str, DemoJob],
    scratch: Path,
    done: Callable[[str], None],
) -> list[JobCheck]:
    """Check every job; `done` is called with each id when its reference run has ended."""

    def one(job: dict[str, Any]) -> JobCheck:
        checked = check_job(job, directory(job["id"]), jobs[job["id"]], scratch)
        done(job["id"])
        return checked

    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(one, shown))


def delay_figures(delays_s: list[float]) -> dict[str, Any]:
    """Return how many delays there are, and the p50, p90 and longest of them; None where there are none."""
    rounded = [round(delay_s, 3) for delay_s in delays_s]
    return {
        "n": len(rounded),
        "p50_s": percentile(rounded, 0.5),
        "p90_s": percentile(rounded, 0.9),
        "longest_s": max(rounded, default=None),
    }


def late_releases(releases: list[dict[str, Any]], grace_s: float) -> list[dict[str, Any]]:
    """Return the releases that took longer than the grace time, or that ended with a kill."""
    return [item for item in releases if item["killed"] or item["took_s"] > grace_s]
