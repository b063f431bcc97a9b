"""The time of one allocation: offcut's exact solver, HiGHS on the same counts, and the published node-level MILP.

    python benchmarks/allocate.py [--quick] [--json]

Every solver gets the same instances in the same run. The node-level model (one binary per job and node, as published)
is solved by HiGHS and by CBC (python-mip==1.15.0, `pip install offcut[bench]`; reported as absent if it is not
installed), each in a process of its own that is ended at the time limit. `solve_ms` of offcut is the decision with
pieces built and kernels warm; a peer's time is its solver's call alone, its model built before.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from offcut.allocate import exact
from offcut.allocate.exact.pieces import build
from offcut.model import AllocationProblem, JobRequest, ScalingCurve

sys.path.insert(0, str(Path(__file__).parent))
import setting
from allocate_peers import cbc_nodes, highs_counts, highs_nodes

SEED = 20210210
#: The milliseconds that a decision of this many jobs on this many nodes may take.
AIMS_MS = {(10, 50): 0.1, (100, 4608): 0.5, (1000, 10000): 3.0, (1000, 100000): 25.0}
COLD_AIM_S = 1.0
PEERS: dict[str, Callable[[AllocationProblem, float], tuple[float, float, bool]]] = {
    "HiGHS, counts": highs_counts.solve,
    "HiGHS, nodes": highs_nodes.solve,
    "CBC, nodes": cbc_nodes.solve,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One solver on one kind of instance, `ran` of its `instances`: a peer stops at the first failure.

    Times are per decision, runs that were cut off included; `ratio` is the median over offcut's.
    """

    jobs: int
    nodes: int
    solver: str
    instances: int
    median_ms: float | None
    max_ms: float | None
    ran: int
    proven: int
    worst_gap: float | None
    ratio: float | None
    note: str = ""


def instance(jobs: int, nodes: int, number: int) -> AllocationProblem:
    """Jobs of seven kinds whose speed-up is measured, with noise, at 1, 2, 4 .. 64 nodes; half of them run already."""
    rng = random.Random(f"{SEED} {jobs} {nodes} {number}")
    sizes = (1, 2, 4, 8, 16, 32, 64)
    curves = [
        ScalingCurve(sizes, tuple(n**exponent * rng.uniform(0.97, 1.03) for n in sizes))
        for exponent in (0.8, 0.88, 0.92, 0.95, 0.97, 0.98, 1.0)
    ]
    left = nodes
    made = []
    for i in range(jobs):
        current = rng.randint(1, min(64, left)) if left and rng.random() < 0.5 else 0
        left -= current
        made.append(
            JobRequest(
                id=f"job {i}",
                min_nodes=1,
                max_nodes=64,
                curve=rng.choice(curves),
                current=current,
                grow_cost_s=rng.uniform(15, 20),
                shrink_cost_s=rng.uniform(10, 13),
            )
        )
    return AllocationProblem(nodes=nodes, horizon_s=120.0, jobs=tuple(made))


def time_exact(problems: list[AllocationProblem]) -> tuple[list[float], list[float], int, float]:
    """Per instance the median decision time of 7 and the objective; how many are proven; the median time to build."""
    times, objectives, proven, built = [], [], 0, []
    for problem in problems:
        answers = [exact.solve(problem) for _ in range(7)]
        times.append(statistics.median(answer.solve_ms for answer in answers))
        objectives.append(answers[0].objective)
        proven += answers[0].proven
        started = time.perf_counter()
        build(problem)
        built.append((time.perf_counter() - started) * 1e3)
    return times, objectives, proven, statistics.median(built)


def _peer_process(name: str, problem: AllocationProblem, limit_s: float, back: Connection) -> None:
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # CBC prints even with its log level at 0
    try:
        back.send(PEERS[name](problem, limit_s))
    except ImportError as error:
        back.send(f"absent: {error}")


def peer(name: str, problem: AllocationProblem, limit_s: float) -> tuple[float, float, bool] | str:
    """A peer's time in ms, objective and proof, in a process of its own; else why there is none."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_peer_process, args=(name, problem, limit_s, there), daemon=True)
    process.start()
    there.close()
    try:
        # Building the model and starting take time too; a solver that does not keep its limit is ended.
        found: tuple[float, float, bool] | str = here.recv() if here.poll(limit_s + 20) else "ended at the limit"
    except EOFError:
        found = "crashed"
    process.kill()
    process.join()
    return found


def peer_row(name: str, problems: list[AllocationProblem], mine: list[float], my_ms: float, limit_s: float) -> Row:
    """Run a peer on instances until one of them does not finish."""
    times, gaps, proven, note = [], [], 0, ""
    for problem, best in zip(problems, mine, strict=True):
        found = peer(name, problem, limit_s)
        if isinstance(found, str):
            note = found
            break
        times.append(found[0])
        proven += found[2]
        if math.isfinite(found[1]):
            gaps.append((best - found[1]) / abs(best))
        if not found[2]:
            note = f"limit of {limit_s:g} s" if math.isfinite(found[1]) else f"no answer in {limit_s:g} s"
            break
    median = statistics.median(times) if times else None
    return Row(
        jobs=len(problems[0].jobs),
        nodes=problems[0].nodes,
        solver=name,
        instances=len(problems),
        median_ms=median,
        max_ms=max(times, default=None),
        ran=len(times),
        proven=proven,
        worst_gap=max(gaps, default=None),
        ratio=None if median is None else median / my_ms,
        note=note,
    )


def cold_start_s(runs: int) -> list[float]:
    """Seconds from the start of a fresh Python process to its first decision, kernels cached."""
    code = (
        "from offcut.allocate import exact; from offcut.model import *;"
        "c = ScalingCurve((1, 2, 4), (1.0, 1.8, 3.0));"
        "j = [JobRequest(id=i, min_nodes=1, max_nodes=4, curve=c) for i in 'ab'];"
        "exact.solve(AllocationProblem(nodes=5, horizon_s=60.0, jobs=tuple(j)))"
    )
    taken = []
    for _ in range(runs + 1):  # the first fills caches
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        taken.append(time.perf_counter() - started)
    return taken[1:]


def plan(quick: bool) -> list[tuple[int, int, int, dict[str, int]]]:
    """Jobs, nodes, instances for offcut, and instances for each peer."""
    if quick:
        return [
            (10, 50, 40, {"HiGHS, counts": 5, "HiGHS, nodes": 2, "CBC, nodes": 3}),
            (10, 200, 40, {"HiGHS, counts": 3, "CBC, nodes": 1}),
            (100, 4608, 40, {"HiGHS, counts": 3}),
            (1000, 10000, 20, {"HiGHS, counts": 1}),
            (1000, 100000, 20, {"HiGHS, counts": 1}),
        ]
    return [
        (10, 50, 100, {"HiGHS, counts": 20, "HiGHS, nodes": 5, "CBC, nodes": 10}),
        (10, 200, 100, {"HiGHS, counts": 20, "HiGHS, nodes": 3, "CBC, nodes": 3}),
        (10, 500, 100, {"HiGHS, counts": 20, "HiGHS, nodes": 2, "CBC, nodes": 2}),
        (50, 1000, 100, {"HiGHS, counts": 10, "HiGHS, nodes": 1, "CBC, nodes": 1}),
        (100, 4608, 100, {"HiGHS, counts": 10}),
        (1000, 10000, 50, {"HiGHS, counts": 5}),
        (1000, 100000, 50, {"HiGHS, counts": 3}),
    ]


def main() -> None:
    """Run, print a table, or JSON with `rows` and `summary`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under 4 minutes")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--limit", type=float, default=None, metavar="S", help="a peer's time limit")
    options = parser.parse_args()
    limit_s = options.limit if options.limit is not None else (15.0 if options.quick else 60.0)
    say = partial(print, file=sys.stderr if options.json else sys.stdout)
    head = setting.made_with("numpy", "numba", "highspy", "mip", seed=SEED, peer_limit_s=limit_s)
    say("\n".join(f"{key}: {value}" for key, value in head.items()))
    cold = cold_start_s(5 if options.quick else 9)
    say(
        f"first decision of a fresh process: {statistics.median(cold):.2f} s, at best {min(cold):.2f} s "
        f"(aim {COLD_AIM_S:g} s)\n"
    )
    columns = ("jobs", "nodes", "solver", "median ms", "max ms", "proven", "worst gap", "ratio")
    say("{:>5} {:>6}  {:<14} {:>10} {:>10} {:>7} {:>10} {:>9}".format(*columns))
    exact.warm()
    rows: list[Row] = []
    medians, aims = {}, {}
    for jobs, nodes, count, peers in plan(options.quick):
        problems = [instance(jobs, nodes, i) for i in range(count)]
        times, objectives, proven, build_ms = time_exact(problems)
        median = statistics.median(times)
        medians[f"{jobs}x{nodes}"] = median
        if (jobs, nodes) in AIMS_MS:
            aims[f"{jobs}x{nodes}"] = median <= AIMS_MS[jobs, nodes]
        note = f"pieces built in {build_ms:.3g} ms"
        rows.append(Row(jobs, nodes, "offcut", count, median, max(times), count, proven, 0.0, 1.0, note))
        show(rows[-1], say)
        for name, few in peers.items():
            rows.append(peer_row(name, problems[:few], objectives[:few], median, limit_s))
            show(rows[-1], say)
    ratios = {
        name: {f"{row.jobs}x{row.nodes}": row.ratio for row in rows if row.solver == name and row.ratio is not None}
        for name in PEERS
    }
    summary = {
        "median_ms": medians,
        "aims_ms": {f"{jobs}x{nodes}": aim for (jobs, nodes), aim in AIMS_MS.items()},
        "aims_met": aims,
        "cold_start_s": statistics.median(cold),
        "cold_start_least_s": min(cold),
        "cold_start_met": statistics.median(cold) <= COLD_AIM_S,
        "ratios": ratios,
        "all_proven": all(row.proven == row.instances for row in rows if row.solver == "offcut"),
        "never_beaten": all(row.worst_gap is None or row.worst_gap >= -1e-6 for row in rows),
    }
    if options.json:
        print(json.dumps({**head, "rows": [asdict(row) for row in rows], "summary": summary}))
        return
    missed = [size for size, met in aims.items() if not met]
    say("\nevery aim met" if not missed and summary["cold_start_met"] else f"\naims missed: {missed or 'cold start'}")


def show(row: Row, say: Callable[..., None]) -> None:
    """Print one row."""

    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    say(
        f"{row.jobs:>5} {row.nodes:>6}  {row.solver:<14} {number(row.median_ms, '.3f'):>10} "
        f"{number(row.max_ms, '.3f'):>10} {row.proven:>3}/{row.instances:<3} {number(row.worst_gap, '.1e'):>10} "
        f"{number(row.ratio, ',.0f'):>9}  {row.note}"
    )


if __name__ == "__main__":
    main()
