"""Searches on idle nodes: offcut, against systems that stop and restart trials, and against Ray Tune.

    python benchmarks/sweep.py [--quick] [--json] [--seeds N] [--processes N] [--data DIR] [--table FILE] [--no-live]

**Best.** The table's objective is the error on digits that are not trained on. A search has found the best when a trial
has reported an accuracy (1 - error) within 1 % of the best in the table, .99 of it: 11 of the 200 configurations ever
reach that.

**In replay.** Each seed draws nodes of the Summit trace, a time at which the search begins, and the order in which the
200 configurations of examples/sweep/digits_curves.json.gz are tried; all systems get the same ones. Searches are
successive halving (rungs at 1, 3, 9 and 27 units of budget), with at most 32 trials at once, through the controller and
the search that run live. Trials scale as ShuffleNet does in BFTrainer's measurements. A unit of budget takes `unit_s`
on one node, averaged over the configurations.

- `offcut`: trials have 1 to 8 nodes. A resize costs what the controller assumes: 0.3 s to grow, 0.2 s to shrink, and
  1 s for an agent and 5 s for a worker that starts, while the trial trains on. A trial's last node saves its state.
- `restart on N`: what others do. A trial has N nodes, from its beginning to its end, and waits until it has them. When
  one of them is reclaimed, it loses the work since its last checkpoint, and is restarted: 18 s, BFTrainer's measured
  restart on Summit. A halted trial is resumed by a restart too. Nodes are given first come, first served. In favour of
  `restart`: a checkpoint per unit of budget takes no time, and neither does noticing that a node has gone.
- `time_to_best_vs_restart`: the time of `restart` until the best is found, divided by offcut's; the median over the
  seeds. Of the four N, the one whose median time is shortest, which a user would have to know beforehand.
- `time_to_best_vs_stop_only`: the same of offcut with `asha-stopping`, divided by offcut with `asha`, which promotes.
- `order_logical_node_hours`: node-hours until the best is found with order `logical`, divided by those with `arrival`.
- `decisions_equal`: whether the logs of all suggestions and decisions with order `logical` are the same on these
  windows as on 16 nodes that are never wanted, for every seed with at least 30 reclaims at 8 trials that had nodes, or
  more.
- `trials_failed_by_reclaim`: trials of offcut that failed, in all replays and live.

Intervals are order statistics that hold the median with 95 % probability. Searches that end without the best count as
infinitely long.

**Live** (`node_hours_vs_ray`, in benchmarks/sweep_live.py) and `trial_start_p95_ms` (benchmarks/trial_start.py) are
measured on this machine; without Ray (`make bench`), or with `--no-live`, they are null.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import setting
import sweep_live
import trial_start
from paired_ratios import interval_of_median
from sweep_replays import FIXED_SIZES, Setting, replay_all

from offcut.errors import OffcutError

SETTINGS = (Setting(256, 300.0), Setting(256, 60.0), Setting(1024, 300.0))
TABLE = Path(__file__).resolve().parents[1] / "examples" / "sweep" / "digits_curves.json.gz"
FORM = "{:>6} {:>7}  {:<22} {:>22} {:>22} {:>9} {:>9} {:>9}"


def compared(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each setting and system: medians, and ratios to offcut of the same seed with their intervals."""
    found = []
    cells = dict.fromkeys((row["nodes"], row["unit_s"], row["system"]) for row in rows)
    for nodes, unit_s, system in cells:
        own, ours = (
            {row["seed"]: row for row in rows if (row["nodes"], row["unit_s"], row["system"]) == (nodes, unit_s, name)}
            for name in (system, "offcut")
        )

        def ratio(key: str, own: dict[int, Any] = own, ours: dict[int, Any] = ours) -> dict[str, float] | None:
            ratios = [own[seed][key] / ours[seed][key] for seed in own if math.isfinite(ours[seed][key])]
            return asdict(interval_of_median(ratios)) if ratios else None

        found.append(
            {
                "nodes": nodes,
                "unit_s": unit_s,
                "system": system,
                "seeds": len(own),
                **{f"median_{key}": statistics.median(row[key] for row in own.values()) for key in _FIGURES},
                "found": sum(math.isfinite(row["time_to_best_s"]) for row in own.values()),
                "failed": sum(row["failed"] for row in own.values()),
                "time_to_best_ratio": ratio("time_to_best_s"),
                "node_h_to_best_ratio": ratio("node_h_to_best"),
            }
        )
    return found


_FIGURES = ("time_to_best_s", "node_h_to_best", "span_s", "node_h", "reclaims", "redone_share")


def summary(
    cells: Sequence[dict[str, Any]],
    equal: Sequence[dict[str, Any]],
    live: dict[str, Any] | None,
    start_ms: float | None,
) -> dict[str, Any]:
    """Return the figures that are claimed, of the first setting."""
    first = {
        cell["system"]: cell
        for cell in cells
        if (cell["nodes"], cell["unit_s"]) == (cells[0]["nodes"], cells[0]["unit_s"])
    }
    best_size = min(FIXED_SIZES, key=lambda size: first[f"restart on {size}"]["median_time_to_best_s"])

    def median(system: str, key: str) -> float | None:
        ratio = first[system][key]
        return None if ratio is None else ratio["median"]

    enough = [row for row in equal if row["reclaims_at_8_trials"] >= 30]
    failed = sum(cell["failed"] for cell in cells if cell["system"].startswith("offcut"))
    return {
        "time_to_best_vs_restart": median(f"restart on {best_size}", "time_to_best_ratio"),
        "restart_size": best_size,
        "time_to_best_vs_stop_only": median("offcut, stop-only", "time_to_best_ratio"),
        "order_logical_node_hours": median("offcut, order logical", "node_h_to_best_ratio"),
        "node_hours_vs_ray": None if live is None else live["node_hours_vs_ray"],
        "trials_failed_by_reclaim": failed + (0 if live is None else live["failed"]),
        "trial_start_p95_ms": start_ms,
        "decisions_equal": all(row["equal"] for row in enough) if enough else None,
        "decisions_compared": len(enough),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one setting, under 4 minutes")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--processes", type=int, default=2, help="replays at a time")
    parser.add_argument("--data", type=Path, help="the directory of the Summit files")
    parser.add_argument("--table", type=Path, default=TABLE, help="learning curves whose objective is an error")
    parser.add_argument("--no-live", action="store_true", help="only what is replayed")
    given = parser.parse_args()
    began = time.perf_counter()
    windows = (given.data or setting.shared() / "data" / "summit") / "windows.csv.gz"
    settings = SETTINGS[:1] if given.quick else SETTINGS
    try:
        rows, equal = replay_all(
            windows, given.table, settings, given.seeds, 8 if given.quick else 20, given.processes, _teller(given.json)
        )
    except OffcutError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    live = None if given.no_live else _ray(given.table, quick=given.quick)
    start_ms = None if given.no_live else _trial_start(quick=given.quick)
    cells = compared(rows)
    document = {
        "machine": setting.made_with(
            "numpy", "torch", "ray", seeds=given.seeds, quick=given.quick, wall_s=round(time.perf_counter() - began, 1)
        ),
        "rows": cells,
        "decisions": equal,
        "live": live,
        "summary": summary(cells, equal, live, start_ms),
    }
    if given.json:
        json.dump(_plain(document), sys.stdout, indent=1)
        print()
    else:
        _print(document)


def _teller(quiet: bool) -> Callable[[str], None]:
    return lambda text: None if quiet else print(text, file=sys.stderr)


def _ray(table: Path, *, quick: bool) -> dict[str, Any] | None:
    """Measure against Ray Tune; None where it is not installed."""
    if find_spec("ray") is None:
        return None
    return sweep_live.measure(table, unit_s=1.0, repeats=1 if quick else 5)


def _trial_start(*, quick: bool) -> float | None:
    """Return the 95th percentile of the time in which a trial starts on a warm worker, in milliseconds."""
    rows = trial_start.measure(trial_start.QUICK_TRIALS if quick else trial_start.TRIALS)
    return next(row.p95_ms for row in rows if row.kind == "warm")


def _plain(value: Any) -> Any:
    """Return the value with null for infinite numbers, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print(document: dict[str, Any]) -> None:
    print(
        FORM.format(
            "nodes",
            "unit s",
            "system",
            "time to best / ours",
            "node-h to best / ours",
            "h to best",
            "node-h",
            "reclaims",
        )
    )
    for cell in document["rows"]:
        print(
            FORM.format(
                cell["nodes"],
                f"{cell['unit_s']:g}",
                cell["system"],
                _interval(cell["time_to_best_ratio"]),
                _interval(cell["node_h_to_best_ratio"]),
                f"{cell['median_time_to_best_s'] / 3600:.2f}",
                f"{cell['median_node_h_to_best']:.2f}",
                f"{cell['median_reclaims']:g}",
            )
        )
    print()
    for row in document["decisions"]:
        print(
            f"seed {row['seed']}: {row['lines']} lines of the log, {'equal' if row['equal'] else 'DIFFERENT'}, with "
            f"{row['reclaims']} reclaims, {row['reclaims_at_8_trials']} of them at 8 trials or more"
        )
    print()
    for name, value in document["summary"].items():
        print(f"{name:>28} {'–' if value is None else f'{value:.3g}' if isinstance(value, float) else value}")
    print(", ".join(f"{name} {value}" for name, value in document["machine"].items()))


def _interval(ratio: dict[str, float] | None) -> str:
    return "–" if ratio is None else f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"


if __name__ == "__main__":
    main()
