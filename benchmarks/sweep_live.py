"""The live part of benchmarks/sweep.py: a search on virtual nodes of this machine, by offcut and by Ray Tune.

Both search over the same 24 configurations of the table of learning curves, one of them the best, in the same order,
on four virtual nodes. One node after the other is reclaimed by the same schedule, and idle again after a while. Trials
train (sweep_live_job.py). offcut promotes (`asha`), with trials on one to four nodes; Ray Tune has its own ASHA, trials
of one node, a checkpoint at each report, and restarts trials for ever (`max_failures=-1`); a reclaim kills its node.

Time counts from the moment at which the first trial begins to train, so that no system's start-up is counted. The
node-hours are those of all nodes that were idle until then, used or not. The best is found when a trial reports
an accuracy within 1 % of the best of the 24 in the table.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from offcut.traces.learning_curves import LearningCurves, read_learning_curves

NODES = 4
CONFIGURATIONS = 24
SCRIPT = Path(__file__).with_name("sweep_live_job.py")
#: Seconds between two reclaims, and until the node is idle again.
RECLAIM_EVERY_S = 30.0
AWAY_S = 15.0
PATIENCE_S = 900.0


class Reclaims:
    """Wants one node after the other, by a schedule that begins with the first trial's training.

    Args:
        reports: the file to which trials report.
        want: lets the queue want a node.
        offer: lets it be idle again.
    """

    def __init__(self, reports: Path, want: Callable[[int], None], offer: Callable[[int], None]) -> None:
        self._reports, self._want, self._offer = reports, want, offer
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.count = 0
        self._thread.start()

    def _run(self) -> None:
        while not self._reports.exists() and not self._end.wait(0.05):
            pass
        began_s = time.monotonic()
        while not self._end.wait(max(0.0, began_s + (self.count + 1) * RECLAIM_EVERY_S - time.monotonic())):
            node = self.count % NODES
            self.count += 1
            self._want(node)
            if self._end.wait(AWAY_S):
                return
            self._offer(node)

    def stop(self) -> None:
        """End the schedule."""
        self._end.set()
        self._thread.join()


def configurations(table: LearningCurves) -> tuple[list[dict[str, Any]], float]:
    """Return the configurations in the order in which they are tried, and the error that counts as the best."""
    ranked = sorted(range(len(table.curves)), key=lambda i: (min(table.curves[i].values), i))
    # The best one, and every eighth: tried in the order of the table, which is random.
    chosen = sorted([ranked[0], *ranked[8 :: len(ranked) // CONFIGURATIONS][: CONFIGURATIONS - 1]])
    best = min(min(table.curves[i].values) for i in chosen)
    return [dict(table.curves[i].parameters) for i in chosen], 1.0 - 0.99 * (1.0 - best)


def node_s_to_best(reports: Path, target: float) -> tuple[float, float]:
    """Return the time (s) until the best was found and the node-seconds that were idle until then; inf: never."""
    rows = [json.loads(line) for line in reports.read_text().splitlines()]
    began_s = min(row["time_s"] for row in rows)
    hits = [row["time_s"] - began_s for row in rows if row["error"] is not None and row["error"] <= target]
    if not hits:
        return math.inf, math.inf
    took_s = min(hits)
    away_s, k = 0.0, 1
    while k * RECLAIM_EVERY_S < took_s:
        away_s += min(AWAY_S, took_s - k * RECLAIM_EVERY_S)
        k += 1
    return took_s, NODES * took_s - away_s


def run_offcut(place: Path) -> int:
    """Run the search with offcut. Return the number of failed trials, and leave the reports in the directory."""
    from offcut.client import connect

    state = place / "state"
    command = [sys.executable, "-m", "offcut", "up", "--nodes", str(NODES), "--state", str(state)]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        controller = _patiently(lambda: connect(state))
        status = _patiently(controller.status)
        names = sorted(node["name"] for node in status["nodes"])
        sweep = controller.submit_sweep(
            name="live",
            job={
                "command": [str(SCRIPT)],
                "sizes": f"1:{NODES}",
                "workdir": str(SCRIPT.parent),
                "env": {"SWEEP_LIVE_DIR": str(place)},
            },
            space={"configuration": {"choices": list(range(CONFIGURATIONS))}},
            scheduler={"name": "asha", "max_budget": 27},
            suggest="grid",
            max_trials=CONFIGURATIONS,
            parallel=NODES,
            arguments=False,
        )
        reclaims = Reclaims(
            place / "reports", lambda node: controller.want([names[node]]), lambda node: controller.offer([names[node]])
        )
        _wait_for(lambda: sweep.status()["state"] not in ("running", "paused"))
        reclaims.stop()
        trials = sweep.status()["trials"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    return int(trials.get("failed", 0))


def run_ray(place: Path) -> int:
    """Run the search with Ray Tune in this process. Return the number of trials that ended in an error."""
    import ray
    from ray import tune
    from ray.cluster_utils import Cluster
    from ray.tune.schedulers import ASHAScheduler

    sys.path.insert(0, str(SCRIPT.parent))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes: dict[int, Any] = {node: cluster.add_node(num_cpus=1) for node in range(NODES)}
    ray.init(address=cluster.address, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": str(SCRIPT.parent)}})

    def want(node: int) -> None:
        cluster.remove_node(nodes.pop(node), allow_graceful=False)

    def offer(node: int) -> None:
        nodes[node] = cluster.add_node(num_cpus=1)

    reclaims = Reclaims(place / "reports", want, offer)
    tuner = tune.Tuner(
        tune.with_resources(_ray_trial, {"cpu": 1}),
        param_space={"configuration": tune.grid_search(list(range(CONFIGURATIONS))), "place": str(place)},
        tune_config=tune.TuneConfig(
            metric="error",
            mode="min",
            time_budget_s=PATIENCE_S,
            scheduler=ASHAScheduler(time_attr="training_iteration", grace_period=1, max_t=27, reduction_factor=3),
        ),
        run_config=tune.RunConfig(
            storage_path=str(place / "ray"), failure_config=tune.FailureConfig(max_failures=-1), verbose=0
        ),
    )
    found = tuner.fit()
    reclaims.stop()
    ray.shutdown()
    cluster.shutdown()
    return len(found.errors)


def _ray_trial(config: dict[str, Any]) -> None:
    """Train one configuration as a trial of Ray Tune's."""
    import torch
    from ray import tune
    from sweep_live_job import note, train_alone

    place = Path(config["place"])
    settings = json.loads((place / "settings.json").read_text())
    number = config["configuration"]
    saved = None
    if (checkpoint := tune.get_checkpoint()) is not None:
        with checkpoint.as_directory() as directory:
            saved = torch.load(Path(directory, "state.pt"))
    else:
        note(place / "reports", number, 0, None)

    def report(budget: int, error: float, state: dict[str, Any]) -> None:
        note(place / "reports", number, budget, error)
        with tempfile.TemporaryDirectory() as directory:
            torch.save(state, Path(directory, "state.pt"))
            tune.report({"error": error}, checkpoint=tune.Checkpoint.from_directory(directory))

    train_alone(settings["configurations"][number], settings["unit_s"], saved, report)


def measure(table: Path, *, unit_s: float, repeats: int) -> dict[str, Any]:
    """Run the search by both systems, taking turns, each in a process of its own.

    Args:
        table: the learning curves.
        unit_s: the length of a pass over the data on one node, in seconds.
        repeats: how often each of them searches.

    Returns:
        A row for each search, the ratio of the median node-hours, and how many of offcut's trials failed.
    """
    chosen, target = configurations(read_learning_curves(table))
    rows: list[dict[str, Any]] = []
    for _ in range(repeats):
        for system in ("offcut", "ray"):
            with tempfile.TemporaryDirectory(prefix="sweep-live-") as root:
                place = Path(root)
                settings = {"configurations": chosen, "unit_s": unit_s}
                (place / "settings.json").write_text(json.dumps(settings))
                command = [sys.executable, __file__, system, root]
                failed = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])
                took_s, node_s = node_s_to_best(place / "reports", target)
                rows.append({"system": system, "time_to_best_s": took_s, "node_h": node_s / 3600, "failed": failed})
            print(rows[-1], file=sys.stderr, flush=True)
    medians = {
        name: sorted(row["node_h"] for row in rows if row["system"] == name)[repeats // 2] for name in ("offcut", "ray")
    }
    return {
        "rows": rows,
        "unit_s": unit_s,
        "node_hours_vs_ray": medians["offcut"] / medians["ray"],
        "failed": sum(row["failed"] for row in rows if row["system"] == "offcut"),
    }


def _patiently(question: Callable[[], Any]) -> Any:
    give_up_s = time.monotonic() + 300
    while True:
        try:
            return question()
        except Exception:
            if time.monotonic() > give_up_s:
                raise
        time.sleep(0.1)


def _wait_for(found: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not found():
        if time.monotonic() > give_up_s:
            raise SystemExit("it takes too long")
        time.sleep(0.2)


if __name__ == "__main__":
    print({"offcut": run_offcut, "ray": run_ray}[sys.argv[1]](Path(sys.argv[2])))
