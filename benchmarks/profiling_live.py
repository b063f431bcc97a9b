"""Ten jobs of unknown scaling on real workers: the curve model, an oracle that knows the curves, and linear curves.

    python benchmarks/profiling_live.py [--quick] [--json] [--nodes N] [--seconds S]

The local cluster's nodes, two jobs at once, `offcut.torch` in every worker. The machine has too few cores to show
scaling, so each step sleeps as long as its job's curve says (profiling_live_job.py); all else is real. The ten jobs are
of three models that scale differently; the controller does not know which is which. The same jobs in the same order run
three times.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import setting
from profiling_live_job import curve

from offcut.service.paths import StatePaths
from offcut.wire.client import Client

SCRIPT = Path(__file__).with_name("profiling_live_job.py")
#: Three models: one that scales, one that is at its limit on two nodes, one with much serial work.
KINDS: dict[str, dict[str, float]] = {
    "scales": {"rate": 60.0, "serial": 0.02, "knee": 100.0, "width": 8},
    "limited": {"rate": 80.0, "serial": 0.0, "knee": 1.8, "width": 12},
    "serial": {"rate": 70.0, "serial": 0.25, "knee": 100.0, "width": 16},
}
ORDER = ("scales", "limited", "serial", "scales", "limited", "scales", "serial", "limited", "scales", "limited")
AT_ONCE = 2
PROFILERS = ("oracle", "gp", "linear")
PATIENCE_S = 3600.0


def rates(kind: str, nodes: int) -> list[float]:
    shape = KINDS[kind]
    return [curve(n, shape["rate"], shape["serial"], shape["knee"]) for n in range(1, nodes + 1)]


def job(number: int, kind: str, profiler: str, nodes: int, seconds: float) -> dict[str, Any]:
    arguments = [word for name, value in KINDS[kind].items() for word in (f"--{name}", f"{value:g}")]
    spec: dict[str, Any] = {
        "name": f"{kind}-{number}",
        "command": [str(SCRIPT), *arguments, "--seconds", f"{seconds:g}"],
        "workdir": str(SCRIPT.parent),
        "sizes": f"1:{nodes}",
    }
    if profiler == "oracle":
        spec["curve"] = {"nodes": list(range(1, nodes + 1)), "rate": rates(kind, nodes)}
    return spec


def run(profiler: str, order: tuple[str, ...], nodes: int, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="offcut-live-") as root:
        state = Path(root)
        config = state / "offcut.toml"
        config.write_text(f'[settings]\nprofiler = "{profiler}"\nmax_jobs = {AT_ONCE}\n')
        command = [sys.executable, "-m", "offcut", "up", "--nodes", str(nodes), "--state", root]
        with (state / "log").open("wb") as log:
            process = subprocess.Popen([*command, "--config", str(config)], stdout=log, stderr=log)
        try:
            client = Client(StatePaths(state).socket)
            _wait_for(lambda: _answers(client))
            began_s = time.time()
            for number, kind in enumerate(order, 1):
                client.post("/v1/jobs", job(number, kind, profiler, nodes, seconds))
            _wait_for(lambda: all(one["ended_s"] for one in client.get("/v1/status")["jobs"]))
            shown = client.get("/v1/status")
            curves = {one["id"]: client.get(f"/v1/jobs/{one['id']}/curve") for one in shown["jobs"]}
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    bad = [one for one in shown["jobs"] if one["state"] != "finished"]
    if bad:
        raise SystemExit(f"{profiler}: {bad[0]['id']} has {bad[0]['state']}: {bad[0]['reason']}")
    ends = sorted(one["ended_s"] - began_s for one in shown["jobs"])
    # Until fewer jobs are left than may run at once; after that the order of the ends decides.
    return {
        "profiler": profiler,
        "makespan_s": round(ends[-1], 1),
        "mean_turnaround_s": round(statistics.fmean(ends), 1),
        "work_per_s": round(len(order) * seconds / ends[-1], 3),
        "resizes": shown["resizes"]["count"],
        "resize_p50_ms": shown["resizes"]["p50_ms"],
        "probes": sum(curve["probes"] for curve in curves.values()),
        "jobs_that_probed": sum(curve["probes"] > 0 for curve in curves.values()),
        "probing_share": sum(curve["probe_node_s"] for curve in curves.values()) / (nodes * ends[-1]),
    }


def _answers(client: Client) -> bool:
    try:
        client.get("/v1/status")
    except Exception:
        return False
    return True


def _wait_for(found: Any) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not found():
        if time.monotonic() > give_up_s:
            raise SystemExit("it takes too long")
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="six shorter jobs, under 4 minutes")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--seconds", type=float, help="seconds of a job on one node (75; 40 if quick)")
    given = parser.parse_args()
    order, seconds = (ORDER[:6], 40.0) if given.quick else (ORDER, 75.0)
    seconds = given.seconds or seconds
    rows = []
    for profiler in PROFILERS:
        rows.append(run(profiler, order, given.nodes, seconds))
        print(rows[-1], file=sys.stderr, flush=True)
    by_name = {row["profiler"]: row for row in rows}
    machine = setting.made_with(
        "torch", jobs=len(order), nodes=given.nodes, seconds_on_one_node=seconds, quick=given.quick
    )
    summary = {
        "of_oracle": by_name["gp"]["work_per_s"] / by_name["oracle"]["work_per_s"],
        "gain_over_linear": by_name["gp"]["work_per_s"] / by_name["linear"]["work_per_s"] - 1,
        "turnaround_over_oracle": by_name["gp"]["mean_turnaround_s"] / by_name["oracle"]["mean_turnaround_s"],
        "probing_share": by_name["gp"]["probing_share"],
    }
    if given.json:
        json.dump({"machine": machine, "rows": rows, "summary": summary}, sys.stdout, indent=1)
        print()
        return
    for row in rows:
        print(
            f"{row['profiler']:>8}: all done after {row['makespan_s']:6.1f} s, mean {row['mean_turnaround_s']:6.1f} s, "
            f"{row['resizes']} resizes, {row['probes']} sizes tried by {row['jobs_that_probed']} jobs"
        )
    print(f"machine: {machine}\nsummary: {summary}")


if __name__ == "__main__":
    main()
