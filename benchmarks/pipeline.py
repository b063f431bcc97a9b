"""The pipeline planner: its plans compared with those of others, and its predictions compared with real steps.

1. Closed forms of every schedule against the simulator; speed of the simulator, the partitioners and the exploration.
2. Plans for VGG-16, ResNet-50, GNMT and AlexNet (PipeDream's published profiles) on 2 to 16 devices and two networks:
   data parallelism (all-reduce after every micro-batch, and once per step), GPipe, 1F1B, BaPipe's choice, PipeDream's
   hybrid (its own steady-state time, and its plan as a synchronous step in our simulator), and offcut's planner.
3. Predicted against real step times: layers that sleep for declared times over links with declared delays, and a
   network that computes on two ranks.

`python benchmarks/pipeline.py [--quick] [--json]`; the profiles are looked for under $OFFCUT_SHARED or ../shared.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import setting

from offcut.pipeline.frontier.chain import LayerOption, chain_frontier
from offcut.pipeline.hardware import Link, homogeneous
from offcut.pipeline.layer_profile import Chain, Floats, LayerProfile
from offcut.pipeline.peers.bapipe import bapipe_plan
from offcut.pipeline.peers.baselines import data_parallel_step_s, pipedream_hybrid
from offcut.pipeline.peers.closed_forms import checks
from offcut.pipeline.plan import Plan, Stage
from offcut.pipeline.planner.candidates import CandidatePlan, make_candidate
from offcut.pipeline.planner.device_chain import DeviceChain
from offcut.pipeline.planner.explore import Explorer, evaluate
from offcut.pipeline.planner.partition import StageSlots, balance, least_bound
from offcut.pipeline.planner.problem import PlanningProblem
from offcut.pipeline.profile_file import read_profile
from offcut.pipeline.schedules import SCHEDULES, Shape
from offcut.pipeline.simulator import simulate
from offcut.pipeline.stage_costs import plain_costs

MODELS = ("vgg16", "resnet50", "gnmt", "alexnet")
NETWORKS = {"10 Gbit/s": 1.25e9, "12 GB/s": 12e9}
WORKERS = Path(__file__).with_name("pipeline_workers.py")
MICRO_BATCHES = 32
FRONTIER = "frontier, 1000 layers x 4 strategies"


def closed_forms() -> tuple[int, int]:
    results = [check.holds for check in checks()]
    return len(results), results.count(False)


def speeds(profiles: dict[str, LayerProfile]) -> list[dict[str, Any]]:
    rows = []
    shape, costs = Shape(ranks=64, micro_batches=1024), plain_costs([1.0] * 64, [2.0] * 64)
    program = SCHEDULES["1f1b"].program(shape)
    simulate(program, costs)
    best = min(_timed(lambda: simulate(program, costs)) for _ in range(5))
    rows.append({"what": "simulator, 131,072 operations", "value": program.size / best, "unit": "operations/s"})
    draw = np.random.default_rng(0)
    for layers, devices in ((200, 64), (1000, 256)):
        cuts = np.zeros(layers + 1)
        cuts[1:-1] = draw.lognormal(0, 1, layers - 1)
        chain = Chain(
            micro_batch=1,
            forward_s=draw.lognormal(0, 0.7, layers),
            backward_s=draw.lognormal(0, 0.7, layers),
            weight_grad_s=np.zeros(layers),
            cut_bytes=cuts,
            stored_bytes=draw.lognormal(0, 1, layers),
            parameter_bytes=draw.lognormal(0, 1, layers),
        )
        slots = StageSlots(
            chains=[chain] * devices,
            links=[Link(bandwidth_bytes_s=20.0)] * (devices - 1),
            memory_bytes=[4000.0] * devices,
            in_flight=list(range(devices, 0, -1)),
        )
        for name, work in (
            ("balance", lambda s=slots: balance(s)),
            ("least bound", lambda s=slots: least_bound(s, 32)),
        ):
            best = min(_timed(work) for _ in range(3))
            rows.append({"what": f"{name}, {layers} layers x {devices} devices, memory", "value": best, "unit": "s"})
    best = min(_timed(lambda: chain_frontier(*_strategies(1000))) for _ in range(3))
    rows.append({"what": FRONTIER, "value": best, "unit": "s"})
    for model in ("vgg16", "resnet50", "gnmt"):
        for network, bandwidth in NETWORKS.items():
            took = min(_timed(lambda m=model, b=bandwidth: _explore(profiles[m], b, range(1, 65))) for _ in range(2))
            rows.append({"what": f"all of 1..64 devices, {model}, {network}", "value": took, "unit": "s"})
    return rows


def _strategies(layers: int) -> tuple[list[list[LayerOption]], Floats]:
    """Layers that can run as they are, recomputed, split or replicated, all different."""
    draw = np.random.default_rng(1)
    names = (("as is", 0, 2.0, 2.0), ("recompute", 0, 1.0, 2.5), ("split", 0, 0.7, 1.5), ("replicate", 1, 1.2, 1.0))
    options = []
    for memory, seconds in zip(draw.lognormal(0, 1, layers), draw.lognormal(0, 0.7, layers), strict=True):
        noise = draw.uniform(0.8, 1.2, (len(names), 2))
        options.append(
            [
                LayerOption(name=name, layout=layout, memory_bytes=memory * m * u, time_s=seconds * t * v)
                for (name, layout, m, t), (u, v) in zip(names, noise, strict=True)
            ]
        )
    move = draw.lognormal(-2, 1, layers - 1)
    return options, np.array([[[0.0, x], [x, 0.0]] for x in move])


def _timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _problem(profile: LayerProfile, bandwidth: float, devices: int) -> PlanningProblem:
    size = profile.micro_batches[0]
    return PlanningProblem(
        profile=profile,
        hardware=homogeneous(devices, bandwidth_bytes_s=bandwidth),
        batch=MICRO_BATCHES * size,
        micro_batches=(size,),
    )


def _explore(profile: LayerProfile, bandwidth: float, sizes: Any) -> list[Any]:
    explorer = Explorer(_problem(profile, bandwidth, max(sizes)))
    return [explorer.explore(n) for n in sizes]


def planning(profiles: dict[str, LayerProfile]) -> list[dict[str, Any]]:
    rows = []
    for model, (network, bandwidth), n in itertools.product(MODELS, NETWORKS.items(), (2, 4, 8, 16)):
        profile = profiles[model]
        problem = _problem(profile, bandwidth, 16)
        chain = profile.chain(profile.micro_batches[0])
        device_chain = DeviceChain(profile, problem.hardware, profile.micro_batches[0], {})
        alone_s = MICRO_BATCHES * chain.total_s
        link = problem.hardware.link
        found = Explorer(problem).explore(n)
        assert found.best is not None
        split = balance(device_chain.slots(n, 1, (1,) * n)) if n <= chain.layers else None
        period_s, cuts, replicas = pipedream_hybrid(chain, n, bandwidth)
        theirs = bapipe_plan(problem, n)
        each = data_parallel_step_s(chain, MICRO_BATCHES, n, link, sync_each_micro_batch=True)
        once = data_parallel_step_s(chain, MICRO_BATCHES, n, link, sync_each_micro_batch=False)
        parallel_bytes = 2 * chain.parameter_bytes.sum() + chain.stored_bytes.sum()
        rows.append(
            {
                "model": model,
                "network": network,
                "devices": n,
                "dp_each_micro_batch": alone_s / each,
                "dp_accumulating": alone_s / once,
                "gpipe": _speedup(problem, device_chain, split, "gpipe", alone_s),
                "1f1b": _speedup(problem, device_chain, split, "1f1b", alone_s),
                "bapipe": alone_s / theirs.step_s if theirs else None,
                "bapipe_plan": theirs.label if theirs else None,
                "pipedream_steady": chain.total_s / period_s,
                "pipedream_plan_synchronous": alone_s / _run(problem, device_chain, cuts, replicas, "1f1b").step_s,
                "pipedream_plan": "-".join(map(str, replicas)),
                "ours": alone_s / found.best.step_s,
                "our_plan": found.best.label,
                "bound": alone_s / found.bound_s,
                "gap": found.gap,
                "gap_any": found.gap_any,
                "our_gb": found.best.memory_bytes / 1e9,
                "memory_of_data_parallel_over_ours": parallel_bytes / found.best.memory_bytes,
                "memory_of_data_parallel_over_leanest": parallel_bytes / min(p.memory_bytes for p in found.plans),
            }
        )
    return rows


def _run(problem: PlanningProblem, device_chain: DeviceChain, cuts: Any, replicas: Any, schedule: str) -> Plan:
    made = make_candidate(problem, device_chain, cuts, replicas, SCHEDULES[schedule])
    assert isinstance(made, CandidatePlan)
    return evaluate(problem, made)


def _speedup(
    problem: PlanningProblem, device_chain: DeviceChain, split: Any, schedule: str, alone_s: float
) -> float | None:
    if split is None:
        return None
    return alone_s / _run(problem, device_chain, split.cuts, (1,) * (len(split.cuts) - 1), schedule).step_s


def _plan(schedule: str, cuts: tuple[int, ...], replicas: tuple[int, ...], times: Any, *, hop_s: float, m: int) -> Plan:
    """A plan of 2-sample micro-batches; `times` are (forward, backward) per layer; its step is simulated."""
    spans = list(itertools.pairwise(cuts))
    forward = [sum(t[0] for t in times[a:b]) for a, b in spans]
    backward = [sum(t[1] for t in times[a:b]) for a, b in spans]
    stages = tuple(
        Stage(
            first_layer=a,
            end_layer=b,
            place=s % len(replicas),
            forward_s=forward[s],
            backward_s=backward[s],
            weight_grad_s=0.0,
            hop_s=hop_s if s < len(spans) - 1 else 0.0,
            sync_s=0.0,
            parameter_bytes=0.0,
            state_bytes=0.0,
            stored_bytes=1.0,
        )
        for s, (a, b) in enumerate(spans)
    )
    plan = Plan(
        model="benchmark",
        devices=sum(replicas),
        batch=2 * m,
        micro_batch=2,
        schedule=schedule,
        replicas=replicas,
        stages=stages,
        step_s=0.0,
        bound_s=0.0,
        bubble_of_step=0.0,
        bubble_of_span=0.0,
        peak_bytes=(),
        peak_in_flight=(),
    )
    return replace(plan, step_s=plan.timeline().step_s)


def sleeping(quick: bool) -> list[dict[str, Any]]:
    """Every schedule on even and uneven stages, over fast and slow links, and with replicas and chunks."""
    from pipeline_peers.local_processes import run_local

    unit = 0.008 if quick else 0.012
    even, uneven = [(1, 2)] * 4, [(1, 2), (2, 3), (1, 1), (2, 4)]
    m = 8
    wanted: dict[int, list[tuple[str, str, tuple[int, ...], tuple[int, ...], Any, float, str]]] = {2: [], 3: [], 4: []}
    for p, (name, times), slow in itertools.product((2, 3, 4), (("even", even), ("uneven", uneven)), (0.0, 1.5)):
        for schedule in ("gpipe", "1f1b", "1f1b-so", "1f1b-link"):
            case = f"{p} stages {name}, link {slow:g} F"
            wanted[p].append((case, schedule, tuple(range(p + 1)), (1,) * p, times[:p], slow, "own"))
    for name, times in (("even", even), ("uneven", uneven)):
        for schedule in ("gpipe", "1f1b", "1f1b-so"):
            case = f"4 stages {name}, torch.distributed.pipelining"
            wanted[4].append((case, schedule, (0, 1, 2, 3, 4), (1,) * 4, times, 0.0, "native"))
        case = f"4 ranks {name}, torch.distributed.pipelining"
        wanted[4].append((case, "interleaved", tuple(range(9)), (1,) * 4, times * 2, 0.0, "native"))
        for replicas, cuts in (((3, 1), (0, 3, 4)), ((2, 2), (0, 2, 4)), ((1, 2, 1), (0, 1, 3, 4)), ((4,), (0, 4))):
            label = "-".join(map(str, replicas))
            wanted[4].append((f"4 ranks {name}, replicas", f"1f1b {label}", cuts, replicas, times, 0.0, "own"))
    kinds = sorted({pair for cases in wanted.values() for case in cases for pair in case[4]})
    measured = run_local(f"{WORKERS}:calibrate", 1, [(unit * f, unit * b) for f, b in kinds], timeout_s=120)[0]
    real_of = dict(zip(kinds, measured, strict=True))
    rows = []
    for p, cases in wanted.items():
        plans = [
            _plan(schedule.split()[0], cuts, replicas, [real_of[t] for t in times], hop_s=slow * unit, m=m)
            for _, schedule, cuts, replicas, times, slow, _ in cases
        ]
        with tempfile.TemporaryDirectory() as folder:
            board = f"{folder}/board"
            np.memmap(board, dtype=np.float64, mode="w+", shape=(2, 16, 64)).flush()
            argument = {
                "board": board,
                "repeats": 2 if quick else 4,
                "cases": [
                    (plan, [(unit * f, unit * b) for f, b in case[4]], case[5] * unit, case[6])
                    for plan, case in zip(plans, cases, strict=True)
                ],
            }
            steps = run_local(f"{WORKERS}:sleeping", p, argument, timeout_s=400)[0]
        for plan, case, real in zip(plans, cases, steps, strict=True):
            rows.append(_prediction(case[0], case[1], plan.step_s, real, "sleeps"))
    return rows


def computing(quick: bool) -> list[dict[str, Any]]:
    """Two ranks that compute, one core each: the cost of each stage is measured while the other one computes."""
    from pipeline_peers.local_processes import run_local

    cases = []
    for layers, cut in ((8, 4), (8, 3), (8, 5)):
        for schedule, m in (("gpipe", 4), ("1f1b", 8)):
            plan = _plan(schedule, (0, cut, layers), (1, 1), [(1.0, 2.0)] * layers, hop_s=0.0, m=m)
            cases.append((replace(plan, batch=96 * m, micro_batch=96), 768, layers, "native"))
    argument = {"repeats": 3 if quick else 6, "cases": cases}
    first, second = run_local(f"{WORKERS}:computing", 2, argument, timeout_s=240)
    rows = []
    for (plan, _, layers, _), (a, real), (b, _) in zip(cases, first, second, strict=True):
        stages = [replace(stage, forward_s=f, backward_s=g) for stage, (f, g) in zip(plan.stages, (a, b), strict=True)]
        predicted = replace(plan, stages=tuple(stages)).timeline().step_s
        case = f"2 stages compute, {plan.stages[0].end_layer}+{layers - plan.stages[0].end_layer} layers"
        rows.append(_prediction(case, plan.schedule, predicted, real, "computes"))
    return rows


def _prediction(case: str, schedule: str, predicted_s: float, real_s: float, kind: str) -> dict[str, Any]:
    return {
        "kind": kind,
        "case": case,
        "schedule": schedule,
        "predicted_s": predicted_s,
        "real_s": real_s,
        "error": real_s / predicted_s - 1,
    }


def order(rows: list[dict[str, Any]]) -> tuple[int, int]:
    """Of the pairs of one case whose predictions differ by more than 5 %: (in the right order, all)."""
    right = total = 0
    for a, b in itertools.combinations(rows, 2):
        if a["case"] != b["case"]:
            continue
        low, high = sorted((a, b), key=lambda row: row["predicted_s"])
        if high["predicted_s"] > 1.05 * low["predicted_s"]:
            total += 1
            right += high["real_s"] > low["real_s"]
    return right, total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, shorter sleeps; under 4 minutes")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    options = parser.parse_args()
    folder = setting.shared() / "data" / "pipedream-profiles"
    if not folder.is_dir():
        sys.exit(f"the profiles are not here ({folder}); set OFFCUT_SHARED")
    profiles = {model: read_profile(folder / f"{model}.txt") for model in MODELS}
    checked, failed = closed_forms()
    plans = planning(profiles)
    quickness = speeds(profiles)
    real = [*sleeping(options.quick), *computing(options.quick)]
    right, pairs = order([row for row in real if row["kind"] == "sleeps"])
    gnmt = next(r for r in plans if (r["model"], r["network"], r["devices"]) == ("gnmt", "10 Gbit/s", 4))
    errors = [abs(row["error"]) for row in real]
    summary = {
        "gnmt_speedup_vs_data_parallel": gnmt["ours"] / gnmt["dp_each_micro_batch"],
        "gnmt_speedup_vs_accumulating_data_parallel": gnmt["ours"] / gnmt["dp_accumulating"],
        "median_prediction_error": statistics.median(errors),
        "median_prediction_error_sleeping": statistics.median(
            abs(row["error"]) for row in real if row["kind"] == "sleeps"
        ),
        "median_prediction_error_computing": statistics.median(
            abs(row["error"]) for row in real if row["kind"] == "computes"
        ),
        "configurations": len(real),
        "order_right": right,
        "order_pairs": pairs,
        "closed_forms_checked": checked,
        "closed_forms_failed": failed,
        "worst_gap_to_bound": max(row["gap"] for row in plans),
        "frontier_1000_layers_s": next(row["value"] for row in quickness if row["what"] == FRONTIER),
        "median_gap_to_bound": statistics.median(row["gap"] for row in plans),
    }
    machine = setting.made_with("numpy", seeds=[0, 1])
    if options.json:
        rows = {"plans": plans, "speeds": quickness, "predictions": real}
        print(json.dumps({"rows": rows, "summary": summary, **machine}))
        return
    _print(plans, quickness, real, summary, machine)


def _print(plans: Any, quickness: Any, real: Any, summary: Any, machine: Any) -> None:
    def cell(value: Any) -> str:
        return "–" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)

    print(", ".join(f"{k} {v}" for k, v in machine.items()))
    print(f"\nSpeed-up over one device, {MICRO_BATCHES} micro-batches of the profile's batch a step\n")
    columns = ("model", "network", "devices", "dp_each_micro_batch", "dp_accumulating", "gpipe", "1f1b", "bapipe")
    columns += ("pipedream_steady", "pipedream_plan_synchronous", "ours", "our_plan", "bound", "gap", "our_gb")
    columns += ("memory_of_data_parallel_over_ours", "memory_of_data_parallel_over_leanest")
    heads = ("model", "network", "n", "DP each mb", "DP accum.", "GPipe", "1F1B", "BaPipe", "PipeDream steady")
    heads += ("its plan, sync", "ours", "our plan", "bound", "gap", "GB", "DP GB / ours", "DP GB / leanest")
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for row in plans:
        print("| " + " | ".join(cell(row[c]) for c in columns) + " |")
    print("\n| what | value | unit |\n|---|---|---|")
    for row in quickness:
        print(f"| {row['what']} | {row['value']:,.3g} | {row['unit']} |")
    print("\n| case | schedule | predicted s | real s | error % |\n|---|---|---|---|---|")
    for row in real:
        figures = f"{row['predicted_s']:.4f} | {row['real_s']:.4f} | {100 * row['error']:+.1f}"
        print(f"| {row['case']} | {row['schedule']} | {figures} |")
    print()
    for key, value in summary.items():
        print(f"{key}: {cell(value) if not isinstance(value, float) else f'{value:.4f}'}")


if __name__ == "__main__":
    main()
