"""BFTrainer's experiments, replayed through offcut's controller: the papers' claims and the results here.

    python benchmarks/bftrainer.py [--quick] [--json] [--width 1024|full] [--data DIR] [--report PAGE.html]

DIR (default: $OFFCUT_SHARED/data/summit) holds `windows.csv.gz` and the two job lists of the published replayer's
artifact. The queue is always full: the list starts again when it is used up. `--quick` replays fewer combinations, and
the full width for three days only. Uf is work over the zero-cost optimum of the running jobs, Us work over what the
same jobs do on a static machine of equal node-time, `work` the work over all idle node-time (docs/metrics.md).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import setting

from offcut.errors import OffcutError
from offcut.simulate.metrics import ReplayMetrics
from offcut.simulate.options import ReplayOptions, parse_cost
from offcut.simulate.parallel_replays import replay_each
from offcut.traces.job_list import ListedJob, read_job_list
from offcut.traces.windows import Windows, read_windows

SEED = 20210210
#: Where the published replayer starts.
START_S = 72_743.0
QUICK_HOURS = 72.0
LISTS = {"diverse": "jobs-imagenet-1001.json.gz", "hpo": "jobs-hpo-shufflenet-1000.json.gz"}
PUBLISHED = parse_cost("published")
TITLES = ("width", "list", "jobs", "policy", "T s", "cost", "how", "Uf", "Us", "work", "limit", "resizes", "ev/s")
FORM = "{:>5} {:>8} {:>5} {:>12} {:>4} {:>15} {:>10}  {:>6} {:>6} {:>6} {:>6} {:>8} {:>6}  {}"


@dataclass(frozen=True, slots=True)
class Case:
    """One replay. `claim`: the papers' claim about such a run. `quick`: True if --quick includes it."""

    width: str
    jobs: str
    options: ReplayOptions
    claim: str = ""
    quick: bool = False


def cases() -> list[Case]:
    """All that is replayed, in the order of the table."""
    base = ReplayOptions(concurrency=10, cost=PUBLISHED, repeat=True)
    found: list[Case] = []
    for width in ("1024", "full"):
        small = width == "1024"

        def add(claim: str = "", *, jobs: str = "diverse", quick: bool = False, width: str = width, **to: Any) -> None:
            if isinstance(to.get("cost"), str):
                to["cost"] = parse_cost(to["cost"])
            found.append(Case(width, jobs, replace(base, **to), claim, quick))

        for horizon_s in (10.0, 30.0, 60.0, 120.0, 300.0, 600.0):
            said = {10.0: "T_fwd = 10 s is the published default", 120.0: "about 120 s is best; Us up to .93"}
            add(
                said.get(horizon_s, ""),
                horizon_s=horizon_s,
                quick=horizon_s == 120 or (small and horizon_s in (10, 300)),
            )
        for cost in ("5", "1", "measured"):
            add(cost=cost, quick=small and cost == "measured")
        add("R = 18/12 with the published objective and accounting", accounting="published", quick=small)
        add("the same at the published default", accounting="published", horizon_s=10.0, quick=small)
        add("equal share is the heuristic to beat", policy="equal-share", quick=small)
        add(policy="greedy", quick=small)
        add(policy="first-come", quick=small)
        if not small:
            add("", placement="random", quick=True)
        for jobs_at_once in (20, 100):
            add(concurrency=jobs_at_once)
        for jobs_at_once in (20, 100, 200, None):
            add(concurrency=jobs_at_once, cost="1", quick=not small and jobs_at_once in (100, 200))
        add("one network, 1,000 trials", jobs="hpo")
        add(jobs="hpo", policy="equal-share")
        add(jobs="hpo", concurrency=100, cost="1")
    return found


def key(case: Case) -> dict[str, Any]:
    o = case.options
    cost = "18/12" if o.cost == PUBLISHED else f"{o.cost.grow_s:g}/{o.cost.shrink_s:g}"
    if o.cost.boot_s or o.cost.start_s:
        cost += f"+{o.cost.boot_s + o.cost.start_s:g} boot"
    return {
        "width": case.width,
        "list": case.jobs,
        "concurrency": "auto" if o.concurrency is None else o.concurrency,
        "policy": o.policy,
        "horizon_s": o.horizon_s,
        "cost": cost,
        "accounting": o.accounting,
        "placement": o.placement,
    }


def run(data: Path, *, quick: bool, width: str | None, processes: int) -> list[tuple[Case, ReplayMetrics]]:
    windows = read_windows(data / "windows.csv.gz")
    widths = {"1024": windows.sample(1024, SEED), "full": windows}
    lists: dict[str, tuple[ListedJob, ...]] = {name: read_job_list(data / file) for name, file in LISTS.items()}
    wanted = [case for case in cases() if (case.quick or not quick) and width in (None, case.width)]
    results: dict[int, ReplayMetrics] = {}
    for nodes, table in widths.items():
        for name, jobs in lists.items():
            numbers = [i for i, case in enumerate(wanted) if (case.width, case.jobs) == (nodes, name)]
            if numbers:
                end_s = START_S + 3600 * QUICK_HOURS if quick and nodes == "full" else None
                made = _replay(table, jobs, [wanted[i] for i in numbers], end_s, processes)
                results.update(zip(numbers, made, strict=True))
    return [(wanted[i], results[i]) for i in sorted(results)]


def _replay(
    windows: Windows, jobs: tuple[ListedJob, ...], cases: list[Case], end_s: float | None, processes: int
) -> list[ReplayMetrics]:
    def tell(number: int, found: ReplayMetrics) -> None:
        print(_row(cases[number], found), file=sys.stderr, flush=True)

    options = [case.options for case in cases]
    return replay_each(windows, jobs, options, start_s=START_S, end_s=end_s, processes=processes, finished=tell)


def summary(runs: list[tuple[Case, ReplayMetrics]]) -> dict[str, float | None]:
    """Return the numbers that the README quotes; None if the run was left out."""

    def of(**wanted: Any) -> ReplayMetrics | None:
        base = {
            "list": "diverse",
            "policy": "exact",
            "horizon_s": 120.0,
            "accounting": "stall",
            "placement": "together",
        }
        wanted = base | wanted
        return next((m for case, m in runs if all(key(case)[k] == v for k, v in wanted.items())), None)

    published = of(width="1024", concurrency=10, cost="18/12")
    equal = of(width="1024", concurrency=10, cost="18/12", policy="equal-share")
    default = of(width="1024", concurrency=10, cost="18/12", horizon_s=10.0)
    measured = of(width="1024", concurrency=10, cost="0.3/0.2+6 boot")
    full = of(width="full", concurrency=10, cost="18/12")
    random = of(width="full", concurrency=10, cost="18/12", placement="random")
    hundred = of(width="full", concurrency=100, cost="1/1")
    many = of(width="full", concurrency=200, cost="1/1")
    return {
        "uf_published_1024": published and published.uf,
        "uf_published_1024_default_horizon": default and default.uf,
        "uf_measured_1024": measured and measured.uf,
        "work_share_full_100": hundred and hundred.work_share,
        "work_share_full_100_limit": hundred and hundred.work_share_limit,
        "work_share_full_200": many and many.work_share,
        "work_share_full_200_limit": many and many.work_share_limit,
        "over_equal_share": published.uf / equal.uf - 1 if published and equal else None,
        "over_equal_share_work": published.work_node_h / equal.work_node_h - 1 if published and equal else None,
        "resizes_saved_by_placement": 1 - full.resizes / random.resizes if full and random else None,
        "events_per_s_full": full and full.events_per_s,
        "events_per_s_full_100": hundred and hundred.events_per_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer combinations, under 4 minutes")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--data", type=Path, help="the directory of the Summit files")
    parser.add_argument("--width", choices=("1024", "full"), help="only 1,024 of the nodes, or only all of them")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="replays at a time")
    parser.add_argument("--report", type=Path, help="write table and figures to this HTML file")
    given = parser.parse_args()
    began = time.perf_counter()
    try:
        runs = run(
            given.data or setting.shared() / "data" / "summit",
            quick=given.quick,
            width=given.width,
            processes=given.processes,
        )
    except OffcutError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    machine = setting.made_with(
        "numpy",
        "numba",
        seed=SEED,
        quick=given.quick,
        wall_s=round(time.perf_counter() - began, 1),
        peak_process_mib=max(
            resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ),
    )
    if given.report is not None:
        from offcut.report.replay_page import replay_page

        given.report.write_text(replay_page([(case.options, m) for case, m in runs], "the Summit fortnight"))
    if given.json:
        rows = [key(case) | {"claim": case.claim} | m.as_dict() for case, m in runs]
        json.dump({"machine": machine, "rows": rows, "summary": summary(runs)}, sys.stdout, indent=1)
        print()
        return
    _print(runs, machine)


def _row(case: Case, m: ReplayMetrics) -> str:
    k = key(case)
    how = "random" if k["placement"] == "random" else k["accounting"]
    us = "–" if m.us is None else f"{m.us:.3f}"
    return FORM.format(
        k["width"], k["list"], k["concurrency"], k["policy"], f"{k['horizon_s']:g}", k["cost"], how,
        f"{m.uf:.4f}", us, f"{m.work_share:.4f}", f"{m.work_share_limit:.4f}", m.resizes,
        f"{m.events_per_s:,.0f}", case.claim,
    )  # fmt: skip


def _print(runs: list[tuple[Case, ReplayMetrics]], machine: dict[str, Any]) -> None:
    print(FORM.format(*TITLES, "the papers"))
    for case, m in runs:
        print(_row(case, m))
    print("\nlosses as shares of the fluid optimum")
    for case, m in runs:
        losses = "  ".join(f"{name} {value:.2%}" for name, value in m.fluid_losses.items())
        k = key(case)
        named = f"{k['width']:>5} {k['list']:>8} {k['concurrency']:>5} {k['policy']:>12} {k['horizon_s']:>4g}"
        print(f"{named} {k['cost']:>15}  {losses}")
    print()
    for name, value in summary(runs).items():
        print(f"{name:>36} {'–' if value is None else f'{value:.4f}'}")
    print(", ".join(f"{name} {value}" for name, value in machine.items()))


if __name__ == "__main__":
    main()
