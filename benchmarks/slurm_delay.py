"""The cost of offcut for the main queue: how much later its jobs start, on a real Slurm of virtual nodes.

    python benchmarks/slurm_delay.py [--mode preemptible|backfill] [--runs 3] [--seed 0] [--quick] [--json]

Definitions
-----------
Start delay
    Seconds from the call of `sbatch` to the first line of the job's script. A task of a job array is a job of its own:
    its delay counts from the array's one `sbatch`, so it contains the wait for the tasks before it.
A, A', B
    The same block of main jobs (same instants, sizes, run times), played on the same Slurm: twice without offcut (A and
    A'), and once while offcut trains on every node that it may claim (B). At the beginning of B every node is claimed.
    The controller is started before each B and ended after it; A and A' begin when every node is idle.
Pair
    One main job in A, A' and B. Tasks of an array are paired by their index: Slurm starts them in this order.
Added delay
    Of a pair: delay in B less the mean of its delays in A and A'. An array on a full machine queues behind itself in A
    as well, so the added delay of its tasks is what an administrator sees: by how much the whole array was shifted.
    `added_delay_p50_s` and `added_delay_p99_s` are quantiles over all pairs of all runs, each task counted once.
Noise
    The same jobs, Slurm with itself: A' less A. `noise_p50_s` is the median of its size, `noise_p99_s` the 99th
    percentile of the difference taken both ways, since which of the two came first means nothing.
Claimed share
    The share of main jobs in B of which at least one node was held by a pilot when they were submitted.
Trained share
    Trained node-seconds (by the controller's journal) as a share of the idle node-seconds (no main job held the node)
    less the time in which workers booted, in idle windows of at least 5 s, over all B.
Orphans
    Jobs of offcut that Slurm still lists, and processes of jobs that are still alive, after the controller's end.

A run is three blocks: two streams of 55 jobs of one node and 20 of two to four nodes each, at random instants of 35 s,
and an array of 150 tasks of one node: 300 main jobs. For each block the order of A, A' and B is drawn, so that the
three follow each other within two minutes and no phase always comes first. Each run has a Slurm and a seed of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import setting
from slurm_delay_harvest import LONG_WINDOW_S, Harvest, idle_windows, node_seconds, took_claimed_node
from slurm_delay_stream import MainJob, Started, job_array, job_stream, play
from slurm_delay_train import STEP_S

from offcut.cluster.slurm.testbed import SlurmTestbed
from offcut.cluster.slurm.testbed_config import FAST_SCHEDULER, SlurmTestbedConfig

KINDS = ("single", "several", "array", "all")
PHASES = ("A", "A'", "B")
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
#: Between two phases, so that what the one has left to do does not slow the next.
SETTLE_S = 1.0


@dataclass(frozen=True)
class Pair:
    """One main job, with its start delays in A, A' and B."""

    kind: str
    nodes: int
    a_s: float
    a2_s: float
    b_s: float
    claimed: bool

    @property
    def added_s(self) -> float:
        return self.b_s - (self.a_s + self.a2_s) / 2


@dataclass
class Measured:
    """What the runs gave so far."""

    pairs: list[Pair] = field(default_factory=list)
    windows: dict[str, dict[str, float]] = field(default_factory=lambda: {"all": {}, "long": {}})
    orphans: int = 0
    orders: list[list[str]] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)

    def add_windows(self, kind: str, sums: dict[str, float]) -> None:
        known = self.windows[kind]
        for name, value in sums.items():
            known[name] = known.get(name, 0.0) + value


@dataclass(frozen=True)
class Blocks:
    """How many main jobs of each kind a run has."""

    streams: int = 2
    single: int = 55
    several: int = 20
    length_s: float = 35.0
    array: int = 150

    def draw(self, seed: int) -> list[list[MainJob]]:
        """Return the blocks' jobs."""
        drawn = [job_stream(self.single, self.several, self.length_s, 1000 * seed + i) for i in range(self.streams)]
        return [*drawn, job_array(self.array)]


QUICK = Blocks(streams=1, single=16, several=6, length_s=8.0, array=24)


def measure_run(measured: Measured, blocks: Blocks, seed: int, given: argparse.Namespace) -> None:
    """Play every block three times on a fresh Slurm, and add what was measured."""
    root = Path(tempfile.mkdtemp(prefix="slurm-delay-"))
    preempts = given.mode == "preemptible"
    config = SlurmTestbedConfig.with_nodes(
        given.nodes,
        worker_template=True,
        preempt_mode="CANCEL" if preempts else "OFF",
        scheduler="" if given.site_defaults else FAST_SCHEDULER,
        lines={"MinJobAge": "30"},
    )
    slurm = SlurmTestbed(root / "slurm", config)
    slurm.start()
    rng = random.Random(seed)
    try:
        for number, jobs in enumerate(blocks.draw(seed)):
            order = list(PHASES)
            rng.shuffle(order)
            measured.orders.append(order)
            played: dict[str, list[Started]] = {}
            claimed: list[bool] = []
            for phase in order:
                await_idle(slurm)
                scratch = root / f"{number}-{PHASES.index(phase)}"
                if phase == "B":
                    played[phase], claimed = play_with_offcut(measured, slurm, jobs, scratch, given)
                else:
                    played[phase] = play(slurm, jobs, scratch / "main")
                measured.loads.append(os.getloadavg()[0])
                show_phase(seed, number, phase, played[phase])
            measured.pairs += [
                Pair(a.kind, len(a.nodes), a.delay_s, a2.delay_s, b.delay_s, held)
                for a, a2, b, held in zip(*(played[phase] for phase in PHASES), claimed, strict=True)
            ]
    finally:
        slurm.stop()
        if not os.environ.get("OFFCUT_KEEP"):
            shutil.rmtree(root, ignore_errors=True)


def play_with_offcut(
    measured: Measured, slurm: SlurmTestbed, jobs: Sequence[MainJob], scratch: Path, given: argparse.Namespace
) -> tuple[list[Started], list[bool]]:
    """Play the jobs while offcut trains. Return how they went, and which of them took a claimed node."""
    harvest = Harvest(slurm, scratch / "offcut", mode=given.mode, interval_s=given.interval_s)
    try:
        time.sleep(SETTLE_S)
        began_s = time.time()
        started = play(slurm, jobs, scratch / "main")
        ended_s = time.time()
        measured.orphans += harvest.stop()
    finally:
        if harvest.process.poll() is None:
            harvest.process.kill()
    spans = harvest.spans()
    windows = idle_windows(started, slurm.config.names, began_s, ended_s)
    measured.add_windows("all", node_seconds(spans, windows))
    long = [window for window in windows if window[2] - window[1] >= LONG_WINDOW_S]
    measured.add_windows("long", node_seconds(spans, long))
    return started, [took_claimed_node(job, spans) for job in started]


def await_idle(slurm: SlurmTestbed) -> None:
    """Wait until every node is idle, and a little longer."""
    give_up_s = time.monotonic() + 60
    show = ("sinfo", "--noheader", "--partition=main", "--states=idle", "--format=%D")
    while int(slurm.run(*show).strip() or 0) < len(slurm.config.names):
        if time.monotonic() > give_up_s:
            raise SystemExit("not every node became idle")
        time.sleep(0.2)
    time.sleep(SETTLE_S)


def show_phase(seed: int, block: int, phase: str, jobs: Sequence[Started]) -> None:
    delays = [job.delay_s for job in jobs]
    words = ", ".join(f"{name} {quantile(delays, share):.2f} s" for name, share in QUANTILES.items())
    print(
        f"seed {seed}, block {block}, {phase:2}: {len(jobs)} jobs, start delay {words}, "
        f"mean {statistics.fmean(delays):.2f} s; load {os.getloadavg()[0]:.1f}",
        file=sys.stderr,
        flush=True,
    )


# -- figures ----------------------------------------------------------------------------------------------------------


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def quantiles(values: Sequence[float]) -> dict[str, float]:
    return {name: round(quantile(values, share), 4) for name, share in QUANTILES.items()}


def figures(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return the figures of one kind of job, by the definitions above."""
    differences = [pair.a2_s - pair.a_s for pair in pairs]
    return {
        "n": len(pairs),
        "without_s": quantiles([delay for pair in pairs for delay in (pair.a_s, pair.a2_s)]),
        "with_s": quantiles([pair.b_s for pair in pairs]),
        "added_s": quantiles([pair.added_s for pair in pairs]),
        "noise_p50_s": round(quantile([abs(value) for value in differences], 0.5), 4),
        "noise_p99_s": round(quantile([*differences, *(-value for value in differences)], 0.99), 4),
        "claimed_share": round(sum(pair.claimed for pair in pairs) / len(pairs), 3),
    }


def report(measured: Measured, by_run: Sequence[Sequence[Pair]], about: dict[str, Any]) -> dict[str, Any]:
    kinds = {
        kind: figures(chosen)
        for kind in KINDS
        if (chosen := [pair for pair in measured.pairs if kind in (pair.kind, "all")])
    }
    long = measured.windows["long"]
    base = long.get("idle", 0.0) - long.get("boots", 0.0)
    return {
        **about,
        "orders": measured.orders,
        "loads": [round(load, 2) for load in measured.loads],
        "kinds": kinds,
        "runs": [figures(pairs) for pairs in by_run],
        "node_seconds": measured.windows,
        "rows": [asdict(pair) for pair in measured.pairs],
        "summary": {
            "added_delay_p50_s": kinds["all"]["added_s"]["p50"],
            "added_delay_p99_s": kinds["all"]["added_s"]["p99"],
            "trained_share": round(long["trained"] / base, 4) if base > 0 else None,
            "orphans": measured.orphans,
        },
    }


def print_tables(document: dict[str, Any]) -> None:
    set_up = ", ".join(f"{name} {value}" for name, value in document["setting"].items())
    print(f"{set_up}; load {min(document['loads']):.1f} to {max(document['loads']):.1f}")
    head = f"{'':8} {'n':>5}  {'without p50/p90/p99':>20}  {'with p50/p90/p99':>20}  {'added p50/p90/p99':>20}"
    print(f"{head}  {'noise p50/p99':>14}  claimed")
    for kind, row in document["kinds"].items():
        cells = ["/".join(f"{value:.2f}" for value in row[key].values()) for key in ("without_s", "with_s", "added_s")]
        noise = f"{row['noise_p50_s']:.2f}/{row['noise_p99_s']:.2f}"
        shown = "  ".join(f"{cell:>20}" for cell in cells)
        print(f"{kind:8} {row['n']:5}  {shown}  {noise:>14}  {100 * row['claimed_share']:.0f} %")
    for number, row in enumerate(document["runs"], start=1):
        print(f"run {number}: added p50 {row['added_s']['p50']:.3f} s, p99 {row['added_s']['p99']:.3f} s")
    for kind, sums in document["node_seconds"].items():
        print(f"node-seconds in {kind} windows: {', '.join(f'{name} {value:.0f}' for name, value in sums.items())}")
    summary = document["summary"]
    if summary["trained_share"] is not None:
        share = 100 * summary["trained_share"]
        print(f"trained, of the idle node-seconds in windows of {LONG_WINDOW_S:g} s or more, less boot: {share:.1f} %")
    print(f"orphans: {summary['orphans']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mode", choices=("preemptible", "backfill"), default="preemptible")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first run's jobs and orders; each further one +1")
    parser.add_argument("--nodes", type=int, default=12)
    parser.add_argument(
        "--interval-s", type=float, default=2.0, help="from one look of offcut at the queue to the next"
    )
    parser.add_argument("--site-defaults", action="store_true", help="Slurm's own scheduler settings, not fast ones")
    parser.add_argument("--quick", action="store_true", help="46 main jobs in one run")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    blocks = QUICK if given.quick else Blocks()
    about = {
        "machine": setting.made_with(),
        "setting": {
            "mode": given.mode,
            "nodes": given.nodes,
            "interval_s": given.interval_s,
            "step_s": STEP_S,
            "seed": given.seed,
            "SchedulerParameters": "(default)" if given.site_defaults else FAST_SCHEDULER,
            "PreemptMode": "CANCEL, GraceTime 0" if given.mode == "preemptible" else "OFF",
        },
    }
    print(about["machine"], file=sys.stderr)
    measured, by_run = Measured(), []
    for run in range(given.runs):
        before = len(measured.pairs)
        measure_run(measured, blocks, given.seed + run, given)
        by_run.append(measured.pairs[before:])
    document = report(measured, by_run, about)
    print(json.dumps(document, indent=2)) if given.json else print_tables(document)


if __name__ == "__main__":
    main()
