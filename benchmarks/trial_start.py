"""How long until a trial of a sweep begins: as a fork of its loaded script, and where each trial starts Python.

    python benchmarks/trial_start.py [--quick] [--json]

A real controller with two virtual nodes of this machine runs the same sweep twice, with trials of four steps whose
script imports torch and scikit-learn:

- `warm`: the script defines `trial(params)`; it is loaded once on each node, and trials are forks of it. The first
  trial of each node waits until the script is loaded, and is counted apart (`load`).
- `cold`: the job has `setup` lines, so each trial starts Python and loads the script.

A start lasts from the controller's decision to the first line of `trial()`. The decision is the instant at which the
controller has submitted the trial's job, or at which the job before it on the node has ended, whichever is later; both
are in the controller's log. So it contains the allocation, the message to the agent, and the process.

`summary`: `trial_start_p95_ms` (warm) and `cold_start_p95_ms`; of fewer than twenty starts the p95 is the longest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import setting

import offcut.client
from offcut.errors import OffcutError

SCRIPT = Path(__file__).with_name("trial_start_script.py")
NODES = 2
#: Trials of each kind.
TRIALS, QUICK_TRIALS = {"warm": 200, "cold": 20}, {"warm": 30, "cold": 8}
LIMIT_S = 1800.0


@dataclass(frozen=True, slots=True)
class Row:
    """The starts of one kind."""

    kind: str
    starts: int
    p50_ms: float
    p95_ms: float
    longest_ms: float


def row(kind: str, starts_s: list[float]) -> Row:
    ordered = sorted(1000 * start for start in starts_s)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered) + 0.5) - 1)]
    return Row(kind, len(ordered), round(statistics.median(ordered), 1), round(p95, 1), round(ordered[-1], 1))


def run_sweep(controller: offcut.client.Controller, kind: str, trials: int, directory: Path) -> dict[str, list[float]]:
    """Run a sweep. Return how long the first start on each node and the others lasted, in seconds."""
    written = directory / f"{kind}.jsonl"
    sweep = controller.submit_sweep(
        name=kind,
        job={
            "command": [str(SCRIPT)],
            "sizes": "1",
            "env": {"TRIAL_STARTS": str(written)},
            **({"setup": "true"} if kind == "cold" else {}),
        },
        space={"lr": {"type": "float", "low": 0.01, "high": 0.1}},
        scheduler={"name": "none", "max_budget": 1},
        max_trials=trials,
        parallel=NODES,
    )
    ended = sweep.wait(timeout_s=LIMIT_S)
    if ended["state"] != "finished" or ended["trials"].get("failed"):
        raise SystemExit(f"the sweep has not finished well: {ended['state']}, {ended['trials']}, {ended['reason']}")
    by_node = defaultdict(list)
    for line in written.read_text().splitlines():
        start = json.loads(line)
        by_node[start["worker"].partition("#")[0]].append(start)
    found: dict[str, list[float]] = {"first": [], "later": []}
    for starts in by_node.values():
        free_s = 0.0
        for i, start in enumerate(sorted(starts, key=lambda start: start["time_s"])):
            story = controller.connection.get(f"/v1/story/{start['job']}")
            submitted_s = next(entry["time_s"] for entry in story if entry["text"].startswith("submitted"))
            found["later" if i else "first"].append(start["time_s"] - max(submitted_s, free_s))
            free_s = story[-1]["time_s"]
    return found


def measure(trials: dict[str, int]) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="trials-") as name:
        state = Path(name) / "state"
        with (Path(name) / "log").open("wb") as log:
            command = [sys.executable, "-m", "offcut", "up", "--nodes", str(NODES), "--state", str(state)]
            up = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            controller = offcut.client.connect(state)
            give_up_s = time.monotonic() + 120.0
            while True:
                try:
                    controller.status()
                    break
                except OffcutError:
                    if time.monotonic() > give_up_s or up.poll() is not None:
                        raise
                    time.sleep(0.1)
            warm = run_sweep(controller, "warm", trials["warm"], Path(name))
            cold = run_sweep(controller, "cold", trials["cold"], Path(name))
        finally:
            up.terminate()
            up.wait()
    return [row("warm", warm["later"]), row("load", warm["first"]), row("cold", cold["first"] + cold["later"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer trials")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    arguments = parser.parse_args()
    made_with = setting.made_with("torch", "scikit-learn", nodes=NODES)
    rows = measure(QUICK_TRIALS if arguments.quick else TRIALS)
    p95 = {each.kind: each.p95_ms for each in rows}
    summary = {"trial_start_p95_ms": p95["warm"], "cold_start_p95_ms": p95["cold"]}
    if arguments.json:
        print(json.dumps({"setting": made_with, "rows": [asdict(each) for each in rows], "summary": summary}, indent=2))
        return
    print(f"{'kind':6} {'starts':>6} {'p50 ms':>8} {'p95 ms':>8} {'longest':>8}")
    for each in rows:
        print(f"{each.kind:6} {each.starts:6} {each.p50_ms:8.1f} {each.p95_ms:8.1f} {each.longest_ms:8.1f}")
    print(f"{made_with['machine']}, {made_with['cores']} cores, load {made_with['load']} at the start")


if __name__ == "__main__":
    main()
