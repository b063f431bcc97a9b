"""The cost of offcut for the main queue: the start delay of its jobs, with and without offcut, on a real Slurm.

    python benchmarks/slurm_delay.py [--quick] [--json] [--log FILE.swf.gz] [--nodes 12] [--jobs 110] [--length-s 200]

The first jobs of a real SWF log, compressed in time and scaled to the machine, are submitted to the partition `main` of
a private Slurm three times: twice alone (A and A', which show how much Slurm varies by itself)
and once while offcut harvests the idle nodes (B). A job's delay is from the call of sbatch to the first line of its
script. Jobs are paired: `a_a` is A' less A, `b_a` is B less the mean of A and A'. The three take place one after
another on a fresh Slurm each, in an order that `--seed` draws.

The trained time comes from the controller's journal, the idle time from the main jobs' own times and nodes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import setting

from offcut.cluster.slurm.testbed import SlurmTestbed, SlurmTestbedConfig
from offcut.report.run_timeline import timeline
from offcut.service.paths import StatePaths
from offcut.store.journal import Journal
from offcut.traces.read_log import read_log
from offcut.wire.client import Client

LOG = "logs/alcf-theta_2022.swf.gz"
TRAIN = Path(__file__).with_name("slurm_delay_train.py")
#: Windows shorter than this are not counted in `trained_share`.
LONG_WINDOW_S = 60.0
#: Workers are forked from one process because the nodes share this machine; measured scaling would show its load.
SITE = """
[settings]
horizon_s = 20.0
profiler = "oracle"
[slurm]
partition = "idle"
interval_s = 1.0
pending_limit_s = 10.0
bench_s = 5.0
worker_template = "{template}"
[slurm.worker_env]
GLOO_SOCKET_IFNAME = "lo"
"""


@dataclass(frozen=True)
class MainJob:
    at_s: float
    run_s: float
    nodes: int
    limit_min: int


@dataclass(frozen=True)
class Ran:
    """A main job as it went: delay from sbatch to its script, and when it held which nodes (seconds since 1970)."""

    delay_s: float
    start_s: float
    end_s: float
    nodes: tuple[str, ...]


def workload(log: Path, nodes: int, jobs: int, length_s: float) -> list[MainJob]:
    """The log's first jobs: submissions spread over `length_s`, run times alike, sizes by the machines'."""
    read = read_log(log)
    first = sorted(read.jobs, key=lambda job: job.submit_s)[:jobs]
    factor = (first[-1].submit_s - first[0].submit_s) / length_s
    machine = read.machine or max(job.nodes for job in first)
    return [
        MainJob(
            at_s=(job.submit_s - first[0].submit_s) / factor,
            run_s=max(0.2, job.run_s / factor),
            nodes=min(nodes, math.ceil(job.nodes / machine * nodes)),
            limit_min=max(1, math.ceil((job.requested_s or job.run_s) / factor / 60)),
        )
        for job in first
    ]


def play(slurm: SlurmTestbed, jobs: Sequence[MainJob], scratch: Path) -> list[Ran]:
    """Submit every job at its time, and wait for the last to end."""
    submitted: list[float] = [0.0] * len(jobs)
    failures: list[str] = []

    def submit(index: int, job: MainJob) -> None:
        note = scratch / f"{index}.started"
        script = f'echo "$(date +%s.%N) $SLURM_JOB_NODELIST" >{note}\nexec sleep {job.run_s:.3f}'
        submitted[index] = time.time()
        try:
            slurm.submit(script, "--partition=main", f"--nodes={job.nodes}", f"--time={job.limit_min}", "--exclusive")
        except Exception as error:
            failures.append(str(error))

    began_s = time.monotonic()
    threads = []
    for index, job in enumerate(jobs):
        time.sleep(max(0.0, began_s + job.at_s - time.monotonic()))
        threads.append(threading.Thread(target=submit, args=(index, job)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit(f"sbatch failed: {failures[0]}")
    give_up_s = time.monotonic() + 600
    while slurm.run("squeue", "--noheader", "--partition=main", "--format=%i").strip():
        if time.monotonic() > give_up_s:
            raise SystemExit("the main queue does not come to its end")
        time.sleep(0.2)
    ran = []
    for index, job in enumerate(jobs):
        start, hosts = (scratch / f"{index}.started").read_text().split(" ", 1)
        names = tuple(slurm.run("scontrol", "show", "hostnames", hosts.strip()).split())
        ran.append(Ran(float(start) - submitted[index], float(start), float(start) + job.run_s, names))
    return ran


class Harvest:
    """offcut on the private Slurm, with two trainings without end."""

    def __init__(self, slurm: SlurmTestbed, root: Path) -> None:
        self.paths = StatePaths(root)
        self.paths.prepare()
        (root / "site.toml").write_text(SITE.format(template=slurm.worker_template))
        command = [sys.executable, "-m", "offcut", "up", "--cluster", "slurm", "--config", str(root / "site.toml")]
        with (root / "controller.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--state", str(root), "--log-json"], env=slurm.env, stdout=log, stderr=log
            )
        give_up_s = time.monotonic() + 120
        while not self.paths.socket.exists():
            if self.process.poll() is not None or time.monotonic() > give_up_s:
                raise SystemExit(f"the controller did not start: {(root / 'controller.log').read_text()[-800:]}")
            time.sleep(0.05)
        self.client = Client(self.paths.socket)
        for name in ("a", "b"):
            sizes = f"1:{len(slurm.config.names)}"
            job = {"name": name, "command": [str(TRAIN)], "workdir": str(root), "sizes": sizes}
            self.client.post("/v1/jobs", job)
        while sum(job["size"] for job in self.client.get("/v1/status")["jobs"]) < len(slurm.config.names):
            if time.monotonic() > give_up_s:
                raise SystemExit("not every idle node came to be trained on")
            time.sleep(0.1)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)


def idle_windows(
    ran: Sequence[Ran], names: Sequence[str], from_s: float, to_s: float
) -> list[tuple[str, float, float]]:
    """(node, start, end) in which no main job held the node."""
    windows = []
    for name in names:
        free_s = from_s
        for job in sorted((job for job in ran if name in job.nodes), key=lambda job: job.start_s):
            if job.start_s > free_s:
                windows.append((name, free_s, min(job.start_s, to_s)))
            free_s = max(free_s, job.end_s)
        if free_s < to_s:
            windows.append((name, free_s, to_s))
    return windows


def node_seconds(
    paths: StatePaths, windows: Sequence[tuple[str, float, float]], least_s: float = 0.0
) -> dict[str, float]:
    """Idle, claimed, booting and trained node-seconds within the windows of at least `least_s`."""
    journal = Journal(paths.journal)
    run = timeline(journal.replay())
    journal.close()
    sums = {"idle": 0.0, "claimed": 0.0, "boots": 0.0, "trained": 0.0}
    for node, start_s, end_s in windows:
        if end_s - start_s < least_s:
            continue
        sums["idle"] += end_s - start_s
        for span in run.spans:
            if span.node == node and span.condition in ("held", "boots", "trains"):
                shared_s = max(0.0, min(end_s, span.end_s) - max(start_s, span.start_s))
                sums["claimed"] += shared_s
                sums["boots"] += shared_s if span.condition == "boots" else 0.0
                sums["trained"] += shared_s if span.condition == "trains" else 0.0
    return sums


def one_phase(phase: str, jobs: Sequence[MainJob], nodes: int) -> tuple[list[Ran], dict[str, Any]]:
    root = Path(tempfile.mkdtemp(prefix="slurm-delay-"))
    slurm = SlurmTestbed(root / "slurm", SlurmTestbedConfig.with_nodes(nodes, worker_template=phase == "B"))
    slurm.start()
    harvest = None
    totals: dict[str, Any] = {}
    try:
        if phase == "B":
            harvest = Harvest(slurm, root / "offcut")
        began_s = time.time()
        (root / "main").mkdir()
        ran = play(slurm, jobs, root / "main")
        ended_s = time.time()
        if harvest is not None:
            harvest.stop()
            left = slurm.run("squeue", "--noheader", "--format=%i").split()
            time.sleep(1.0)  # let jobs that are ending end
            windows = idle_windows(ran, slurm.config.names, began_s, ended_s)
            totals = {
                "all": node_seconds(harvest.paths, windows),
                "long": node_seconds(harvest.paths, windows, LONG_WINDOW_S),
                "orphans": len(left) + len(slurm.strays()),
            }
        return ran, totals
    finally:
        if harvest is not None and harvest.process.poll() is None:
            harvest.process.kill()
        slurm.stop()
        if not os.environ.get("OFFCUT_KEEP"):
            shutil.rmtree(root, ignore_errors=True)


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--log", type=Path, default=setting.shared() / "data" / LOG)
    parser.add_argument("--nodes", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=110)
    parser.add_argument("--length-s", type=float, default=200.0)
    parser.add_argument("--seed", type=int, default=0, help="of the order of A, A' and B")
    given = parser.parse_args()
    if given.quick:
        given.jobs, given.length_s = 24, 40.0
    jobs = workload(given.log, given.nodes, given.jobs, given.length_s)
    order = ["A", "A'", "B"]
    random.Random(given.seed).shuffle(order)
    machine = setting.made_with()
    print(
        f"{machine}; {given.log.name}, {len(jobs)} jobs in {given.length_s:g} s on {given.nodes} nodes", file=sys.stderr
    )
    delays: dict[str, list[float]] = {}
    totals: dict[str, Any] = {}
    for phase in order:
        ran, more = one_phase(phase, jobs, given.nodes)
        delays[phase] = [job.delay_s for job in ran]
        totals |= more
        p50, p99, mean = quantile(delays[phase], 0.5), quantile(delays[phase], 0.99), statistics.fmean(delays[phase])
        words = f"{phase:2}: start delay p50 {p50:.2f} s, p99 {p99:.2f} s, mean {mean:.2f} s"
        print(f"{words}; load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    document = report(jobs, delays, totals, order, machine, given)
    if given.json:
        print(json.dumps(document, indent=2))
    else:
        print_tables(document)


def report(
    jobs: Sequence[MainJob],
    delays: dict[str, list[float]],
    totals: dict[str, Any],
    order: Sequence[str],
    machine: dict[str, Any],
    given: argparse.Namespace,
) -> dict[str, Any]:
    pairs = list(zip(delays["A"], delays["A'"], delays["B"], strict=True))
    a_a = [second - first for first, second, _ in pairs]
    b_a = [harvested - (first + second) / 2 for first, second, harvested in pairs]
    long = totals["long"]
    base = long["idle"] - long["boots"]
    # Which of the two came first means nothing: noise is the difference taken both ways.
    both_ways = [*a_a, *(-value for value in a_a)]
    size = [abs(value) for value in a_a]
    return {
        "machine": machine,
        "log": given.log.name,
        "order": list(order),
        "seed": given.seed,
        "nodes": given.nodes,
        "rows": [
            {"job": i, "nodes": job.nodes, "run_s": job.run_s, "a_s": a, "a2_s": a2, "b_s": b}
            for i, (job, (a, a2, b)) in enumerate(zip(jobs, pairs, strict=True))
        ],
        "node_seconds": {"all": totals["all"], "long": long},
        "noise": {"p50_s": quantile(size, 0.5), "p99_s": quantile(both_ways, 0.99)},
        "summary": {
            "added_delay_p50_s": quantile(b_a, 0.5),
            "added_delay_p99_s": quantile(b_a, 0.99),
            "trained_share": long["trained"] / base if base > 0 else None,
            "orphans": totals["orphans"],
        },
    }


def print_tables(document: dict[str, Any]) -> None:
    summary, noise = document["summary"], document["noise"]
    print(f"{len(document['rows'])} main jobs, paired")
    print(f"added delay        p50 {summary['added_delay_p50_s']:.3f} s   p99 {summary['added_delay_p99_s']:.3f} s")
    print(f"Slurm with itself  p50 {noise['p50_s']:.3f} s   p99 {noise['p99_s']:.3f} s")
    for kind, sums in document["node_seconds"].items():
        shown = ", ".join(f"{name} {value:.0f}" for name, value in sums.items())
        print(f"node-seconds in {kind} windows: {shown}")
    if summary["trained_share"] is not None:
        print(f"trained, of the idle node-seconds in long windows less boot: {100 * summary['trained_share']:.1f} %")
    print(f"orphans: {summary['orphans']}")


if __name__ == "__main__":
    main()
