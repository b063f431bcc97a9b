"""The main queue's jobs of `slurm_delay.py`: which there are, and how long each waited for its start."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from offcut.cluster.slurm.records import expand
from offcut.cluster.slurm.testbed import SlurmTestbed

#: Run times of jobs: exponential with this mean, within these bounds.
RUN_S = (0.5, 1.5, 4.0)
ARRAY_RUN_S = 0.5
#: A job of several nodes has this many.
SEVERAL = (2, 4)
_DRAINED_PATIENCE_S = 300.0


@dataclass(frozen=True)
class MainJob:
    """A submission to the main queue, `submit_s` after the block's begin; an array if it has more than one task."""

    submit_s: float
    run_s: float
    nodes: int
    tasks: int = 1

    @property
    def kind(self) -> str:
        return "array" if self.tasks > 1 else "several" if self.nodes > 1 else "single"


@dataclass(frozen=True)
class Started:
    """A job, or a task of an array, as it went; instants are seconds since 1970."""

    kind: str
    submitted_s: float
    start_s: float
    end_s: float
    nodes: tuple[str, ...]

    @property
    def delay_s(self) -> float:
        """Seconds from the call of sbatch to the first line of the script."""
        return self.start_s - self.submitted_s


def job_stream(single: int, several: int, length_s: float, seed: int) -> list[MainJob]:
    """Return jobs of one and of several nodes in a random order, at random instants within `length_s`."""
    rng = random.Random(seed)
    least_s, mean_s, most_s = RUN_S
    sizes = [1] * single + [rng.randint(*SEVERAL) for _ in range(several)]
    rng.shuffle(sizes)
    instants = sorted(rng.uniform(0.0, length_s) for _ in sizes)
    return [
        MainJob(submit_s, min(most_s, max(least_s, rng.expovariate(1 / mean_s))), nodes)
        for submit_s, nodes in zip(instants, sizes, strict=True)
    ]


def job_array(tasks: int) -> list[MainJob]:
    """Return one array of tasks of one node each, submitted at once."""
    return [MainJob(0.0, ARRAY_RUN_S, 1, tasks)]


def play(slurm: SlurmTestbed, jobs: Sequence[MainJob], notes: Path) -> list[Started]:
    """Submit every job at its time, wait until all have ended, and return how each went, in the order of `jobs`.

    Each task writes the instant and its nodes to a file of its own in `notes` as the first thing that it does.
    """
    notes.mkdir(parents=True)
    submitted_s = [0.0] * len(jobs)
    failures: list[str] = []

    def submit(index: int, job: MainJob) -> None:
        note = f"{notes}/{index}.${{SLURM_ARRAY_TASK_ID:-0}}"
        script = f'echo "$(date +%s.%N) $SLURM_JOB_NODELIST" >{note}\nexec sleep {job.run_s:.3f}'
        options = ["--partition=main", f"--nodes={job.nodes}", "--time=1", "--exclusive"]
        if job.tasks > 1:
            options.append(f"--array=0-{job.tasks - 1}")
        submitted_s[index] = time.time()
        try:
            slurm.submit(script, *options)
        except Exception as error:
            failures.append(str(error))

    began_s = time.monotonic()
    threads = []
    for index, job in enumerate(jobs):
        time.sleep(max(0.0, began_s + job.submit_s - time.monotonic()))
        threads.append(threading.Thread(target=submit, args=(index, job)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit(f"sbatch failed: {failures[0]}")
    _await_drained(slurm)
    return [
        _started(job, submitted_s[index], notes / f"{index}.{task}")
        for index, job in enumerate(jobs)
        for task in range(job.tasks)
    ]


def _await_drained(slurm: SlurmTestbed) -> None:
    give_up_s = time.monotonic() + _DRAINED_PATIENCE_S
    while slurm.run("squeue", "--noheader", "--partition=main", "--format=%i").strip():
        if time.monotonic() > give_up_s:
            raise SystemExit("jobs of the main queue are still waiting or running after 300 s")
        time.sleep(0.5)


def _started(job: MainJob, submitted_s: float, note: Path) -> Started:
    start, nodes = note.read_text().split()
    return Started(job.kind, submitted_s, float(start), float(start) + job.run_s, tuple(expand(nodes)))
