"""Jobs of unknown scaling: how close the curve models come to an oracle that knows every curve.

    python benchmarks/profiling.py [--quick] [--json] [--data DIR] [--seeds N] [--first-seed S] [--families F ...]
                                   [--profilers P ...]

Each seed draws 512 nodes of the Summit trace (DIR, default $OFFCUT_SHARED/data/summit; without it a generated trace
like it), a stretch of it, and the order of the jobs. Six jobs run at once and the queue never runs dry. A job is as
long as the given time on 8 nodes. All profilers see the same nodes, jobs and noise; they run through the controller
that runs live. Figures are work over the oracle's work, mean and standard error over the seeds. The oracle has the
same one-step objective, so it is not an upper bound.

Resize cost: `18/12` restarts all processes, 1 s, `measured` (ours: 0.3/0.2 s, a node boots in 1 s and a worker in 5 s).
Only the oracle knows the costs.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import setting

from offcut.errors import OffcutError
from offcut.model import ScalingCurve
from offcut.simulate.metrics import ReplayMetrics
from offcut.simulate.options import ReplayOptions, parse_cost
from offcut.simulate.parallel_replays import replay_each
from offcut.traces.generate import generate
from offcut.traces.job_list import ListedJob, read_job_list
from offcut.traces.window_process import SUMMIT
from offcut.traces.windows import Windows, read_windows

NODES = 512
SLOTS = 6
LARGEST = 64
PROFILERS = ("gp", "linear", "amdahl", "passive", "inverse")
#: Seconds on 8 nodes, and hours of the trace that are replayed.
LENGTHS = {"5 min": (300.0, 2.5), "30 min": (1800.0, 8.0), "5 h": (18_000.0, 24.0)}
COSTS = ("18:12", "1", "measured")
#: With this cost only the profilers of main interest are run.
LEAN_COST, LEAN_PROFILERS = "1", ("gp", "linear")
#: The paper's claim over the predecessor.
PAPER = 0.223

Curve = Callable[[int], float]


def tabulated(curve: Curve) -> ScalingCurve:
    return ScalingCurve(tuple(range(1, LARGEST + 1)), tuple(curve(n) for n in range(1, LARGEST + 1)))


def synthetic(draw: random.Random) -> Curve:
    """Amdahl's law and an all-reduce that grows with the logarithm of the size."""
    serial, ring, rate = 10 ** draw.uniform(-3, -1), draw.uniform(0.0, 0.15), 10 ** draw.uniform(1, 4)
    return lambda n: rate * n / (1 + serial * (n - 1) + ring * math.log2(n))


def plateau(draw: random.Random) -> Curve:
    """Linear up to a knee, then nothing more: an input pipeline that is at its limit."""
    knee, sharp, rate = 2 ** draw.uniform(1.5, 4.5), draw.uniform(3, 8), 10 ** draw.uniform(1, 4)
    return lambda n: rate * n / (1 + (n / knee) ** sharp) ** (1 / sharp)


def nonmonotone(draw: random.Random) -> Curve:
    """Slower beyond a rack's end, and at sizes that are not a power of two."""
    base, rack = synthetic(draw), draw.choice((12, 16, 18, 24, 32))
    beyond, uneven = draw.uniform(0.55, 0.85), draw.uniform(0.75, 1.0)
    return lambda n: base(n) * (beyond if n > rack else 1.0) * (1.0 if n & (n - 1) == 0 else uneven)


def curves(family: str, draw: random.Random, real: dict[str, ScalingCurve]) -> dict[str, ScalingCurve]:
    """The kinds of jobs of one family of workloads, in the order of the list."""
    kinds = {"synthetic": synthetic, "plateau": plateau, "nonmonotone": nonmonotone}
    if family == "real":
        names = sorted(real)
        draw.shuffle(names)
        return {name: real[name] for name in names}
    if family == "sweeps":
        # Trials of three networks: a measured one, and two that scale otherwise.
        name = draw.choice(sorted(real))
        return {name: real[name], "synthetic": tabulated(synthetic(draw)), "plateau": tabulated(plateau(draw))}
    return {f"{family} {i}": tabulated(kinds[family](draw)) for i in range(7)}


FAMILIES = ("real", "sweeps", "synthetic", "plateau", "nonmonotone")


def job_list(kinds: dict[str, ScalingCurve], run_s: float) -> list[ListedJob]:
    return [
        ListedJob(
            id=name,
            curve_name=name,
            curve=curve,
            submit_s=0.0,
            min_nodes=1,
            max_nodes=LARGEST,
            samples=run_s * curve.rate_at(8),
            grow_cost_s=18.0,
            shrink_cost_s=12.0,
        )
        for name, curve in kinds.items()
    ]


def real_curves(data: Path) -> dict[str, ScalingCurve]:
    path = data / "jobs-imagenet-1001.json.gz"
    if path.is_file():
        return {job.curve_name: job.curve for job in read_job_list(path)}
    from offcut.simulate.imagenet_networks import NETWORKS

    return {network.name: network.curve for network in NETWORKS}


def trace(data: Path, seed: int) -> Windows:
    path = data / "windows.csv.gz"
    windows = read_windows(path) if path.is_file() else generate(4 * NODES, 5 * 86_400.0, 1, SUMMIT)
    return windows.sample(NODES, seed)


def busy_start(windows: Windows, hours: float, draw: random.Random) -> float:
    """A stretch of the trace with about 50 idle nodes in the mean: one that has 20 to 150 of them."""
    first_s, last_s = windows.span_s
    for _ in range(200):
        start_s = draw.uniform(first_s, max(first_s, last_s - 3600 * hours))
        idle = windows.between(start_s, start_s + 3600 * hours).length_s.sum() / (3600 * hours)
        if 20 <= idle <= 150:
            return start_s
    return first_s


def seeds(given: argparse.Namespace) -> list[int]:
    return list(range(given.first_seed, given.first_seed + given.seeds))


def rows(given: argparse.Namespace, data: Path) -> list[dict[str, Any]]:
    real = real_curves(data)
    found: list[dict[str, Any]] = []
    lengths = {"30 min": LENGTHS["30 min"]} if given.quick else LENGTHS
    costs = ("measured",) if given.quick else COSTS
    traces = {seed: trace(data, seed) for seed in seeds(given)}
    for family in given.families:
        for length, (run_s, hours) in lengths.items():
            for cost in costs:
                all_of_them = LEAN_PROFILERS if cost == LEAN_COST else PROFILERS
                profilers = [name for name in all_of_them if name in given.profilers]
                if not profilers:
                    continue
                runs: dict[str, list[tuple[ReplayMetrics, ReplayMetrics]]] = {name: [] for name in profilers}
                for seed, windows in traces.items():
                    draw = random.Random(f"{seed} {family} {length}")
                    jobs = job_list(curves(family, draw, real), run_s)
                    start_s = busy_start(windows, hours, draw)
                    options = [
                        ReplayOptions(concurrency=SLOTS, cost=parse_cost(cost), repeat=True, profiler=name, seed=seed)
                        for name in ("oracle", *profilers)
                    ]
                    oracle, *others = replay_each(
                        windows.between(start_s, start_s + 3600 * hours),
                        jobs,
                        options,
                        start_s=start_s,
                        end_s=start_s + 3600 * hours,
                        compare=False,
                        processes=given.processes,
                    )
                    for name, metrics in zip(profilers, others, strict=True):
                        runs[name].append((metrics, oracle))
                for name, pairs in runs.items():
                    found.append(row(family, length, cost, name, pairs))
                    print(line(found[-1]), file=sys.stderr, flush=True)
    return found


def row(
    family: str, length: str, cost: str, profiler: str, pairs: list[tuple[ReplayMetrics, ReplayMetrics]]
) -> dict[str, Any]:
    ratios = [m.work_node_h / oracle.work_node_h for m, oracle in pairs]
    return {
        "family": family,
        "run": length,
        "resize_cost": cost,
        "profiler": profiler,
        "of_oracle": statistics.fmean(ratios),
        "standard_error": statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else None,
        "seeds": len(ratios),
        "by_seed": [round(ratio, 4) for ratio in ratios],
        "probing_share": statistics.fmean(m.probing_share for m, _ in pairs),
        "resizes": statistics.fmean(m.resizes for m, _ in pairs),
        "oracle_resizes": statistics.fmean(oracle.resizes for _, oracle in pairs),
        "idle_nodes": statistics.fmean(m.idle_node_h * 3600 / (m.end_s - m.start_s) for m, _ in pairs),
    }


def line(row: dict[str, Any]) -> str:
    error = "" if row["standard_error"] is None else f"± {row['standard_error']:.3f}"
    return (
        f"{row['family']:>12} {row['run']:>7} {row['resize_cost']:>9} {row['profiler']:>8}"
        f"  {row['of_oracle']:.3f} {error}  probing {row['probing_share']:6.2%}  resizes {row['resizes']:,.0f}"
    )


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """At our own measured cost, the mean over run lengths; gains over the irregular and saturating families."""

    def mean(profiler: str, family: str, **wanted: str) -> float | None:
        values = [
            r["of_oracle"]
            for r in found
            if r["profiler"] == profiler
            and r["family"] == family
            and r["resize_cost"] == "measured"
            and all(r[k] == v for k, v in wanted.items())
        ]
        return statistics.fmean(values) if values else None

    def gain(over: str) -> float | None:
        pairs = [(mean("gp", f), mean(over, f)) for f in ("synthetic", "plateau", "nonmonotone")]
        ratios = [ours / theirs for ours, theirs in pairs if ours and theirs]
        return statistics.fmean(ratios) - 1 if ratios else None

    ours = [r["probing_share"] for r in found if r["profiler"] == "gp"]
    return {
        "of_oracle": {family: mean("gp", family) for family in FAMILIES},
        "gain_over_linear": gain("linear"),
        "gain_over_passive": gain("passive"),
        "probing_share": statistics.fmean(ours) if ours else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="30-minute jobs at the measured cost; under 4 minutes")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--data", type=Path, help="the directory of the Summit files")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES, help="only these")
    parser.add_argument("--profilers", nargs="+", choices=PROFILERS, default=PROFILERS, help="only these")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=1, help="the others follow it")
    parser.add_argument("--processes", type=int, default=1, help="replays at a time")
    given = parser.parse_args()
    began = time.perf_counter()
    try:
        found = rows(given, given.data or setting.shared() / "data" / "summit")
    except OffcutError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    machine = setting.made_with(
        "numpy",
        seeds=seeds(given),
        quick=given.quick,
        wall_s=round(time.perf_counter() - began, 1),
        processor_s=round(time.process_time(), 1),
    )
    totals = summary(found)
    if given.json:
        json.dump({"machine": machine, "rows": found, "summary": totals}, sys.stdout, indent=1)
        print()
        return
    for one in found:
        print(line(one))
    print(f"\nmachine: {machine}")
    print(f"summary: {totals}")
    print(f"the paper's gain over its predecessor: {PAPER:.1%}")


if __name__ == "__main__":
    main()
