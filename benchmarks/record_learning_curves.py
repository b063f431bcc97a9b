"""Records a table of learning curves, with which `offcut replay --sweep` replays searches: a script's objective, budget
by budget, for configurations drawn at random from the space of a sweep file.

    python benchmarks/record_learning_curves.py SWEEP.toml TABLE.json.gz [--configurations N] [--seed S]

The script of the sweep file runs in this process, alone, once per configuration and one after the other, on one thread
of torch. Configuration number n is what a sweep of this seed draws at random for its trial n. `unit_s` is the median
processor time between two reports, so that a busy machine does not change it. What is done is kept in TABLE.partial: a
second start continues there.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import runpy
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import setting
import torch

import offcut.torch
from offcut.control.sweeps import trial_job
from offcut.search.schedulers.load import load
from offcut.search.suggestion import suggest_random
from offcut.traces.learning_curves import write_learning_curves
from offcut.wire.sweepspec import read_sweep_file


def record(script: Path, arguments: list[str], env: dict[str, str]) -> tuple[list[list[float]], float]:
    """Run the script. Return its reports as pairs of budget and value, and the seconds of a unit of budget."""
    reports: list[list[float]] = []
    clock: list[float] = []

    def report_objective(value: float, *, budget: float) -> None:
        reports.append([budget, value])
        clock.append(time.process_time())

    offcut.torch.report_objective = report_objective
    sys.argv = [str(script), *arguments]
    os.environ.update(env)
    with contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(script), run_name="__main__")
    gaps = [
        (later_s - before_s) / (later[0] - before[0])
        for before, later, before_s, later_s in zip(reports, reports[1:], clock, clock[1:], strict=False)
    ]
    return reports, statistics.median(gaps)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sweep", type=Path)
    parser.add_argument("table", type=Path)
    parser.add_argument("--configurations", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    sweep = read_sweep_file(given.sweep).to_sweep("record")
    script = Path(sweep.job.command[0])
    given.table = given.table.resolve()
    os.chdir(sweep.job.workdir)
    sys.path.insert(0, str(script.resolve().parent))
    partial = given.table.with_name(given.table.name + ".partial")
    rows = [json.loads(line) for line in partial.read_text().splitlines()] if partial.exists() else []
    with partial.open("a") as file:
        for number in range(len(rows), given.configurations):
            parameters = suggest_random(sweep.space, given.seed, number)
            job = trial_job(sweep, number, parameters)
            reports, unit_s = record(script, list(job.command[1:]), dict(job.env))
            rows.append({"parameters": parameters, "unit_s": float(f"{unit_s:.3g}"), "reports": reports})
            file.write(json.dumps(rows[-1]) + "\n")
            file.flush()
            print(f"{number + 1} of {given.configurations}: {reports[-1][1]:.4g}", file=sys.stderr)
    budgets = [budget for budget, _ in rows[0]["reports"]]
    write_learning_curves(
        given.table,
        direction=sweep.direction,
        budgets=budgets,
        rows=[_row(row, budgets) for row in rows],
        made_with=setting.made_with(
            "torch", sweep=sweep.name, script=script.name, seed=given.seed, max_budget=load(sweep.scheduler).max_budget
        ),
    )
    partial.unlink()


def _row(row: dict[str, Any], budgets: list[float]) -> dict[str, Any]:
    if [budget for budget, _ in row["reports"]] != budgets:
        raise SystemExit(f"{row['parameters']}: it reported at other budgets than the first configuration")
    values = [float(f"{value:.4g}") if math.isfinite(value) else None for _, value in row["reports"]]
    return {"parameters": row["parameters"], "unit_s": row["unit_s"], "values": values}


if __name__ == "__main__":
    main()
