"""What it costs the controller to be watched: its metrics with 10,000 nodes and 1,000 jobs.

The real controller object with its journal, in this process; its nodes and jobs are written into its state, as many as
asked for, and nothing happens to them. Figures:

- `scrape_cpu_ms`: processor time (user and system) in which the text for Prometheus is made from the controller, once:
  the median of all repetitions. No event is answered meanwhile.
- `scrape_bytes`, `series`: how long the text is, and how many samples it has: neither depends on nodes and jobs.
- `count_cpu_ms`: processor time for counting the nodes by use, which is done before an event, at most each 0.05 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import setting

from offcut.cluster.base import Cluster
from offcut.control import JobState, NodeState, Settings
from offcut.model import Job, Sizes
from offcut.service.controller import Controller
from offcut.service.metrics.prometheus import PrometheusMetrics
from offcut.service.paths import StatePaths
from offcut.store import Journal


def cpu_ms(what: Callable[[], object], repeats: int) -> float:
    """Return the median processor time of a call, in milliseconds."""
    times = []
    for _ in range(repeats):
        began_s = time.process_time()
        what()
        times.append(time.process_time() - began_s)
    return 1000 * statistics.median(times)


async def measure(root: Path, nodes: int, jobs: int, repeats: int) -> dict[str, Any]:
    """Return one row."""
    paths = StatePaths(root)
    paths.prepare()
    journal = Journal(paths.journal)
    # Nothing is claimed or released, so that no batch system is needed.
    controller = Controller(journal.load(Settings()), journal, cast(Cluster, object()), paths)
    state = controller.state
    for i in range(nodes):
        phase = "idle" if i % 3 == 0 else "up"
        name = f"n{i:05}"
        state.nodes[name] = NodeState(name, phase, 0.0, worker="member" if i % 3 == 1 else "none")  # type: ignore[arg-type]
    for i in range(jobs):
        job = Job(id=f"j-{i}", name="j", command=("train.py",), sizes=Sizes.parse("1:8"))
        state.jobs[job.id] = JobState(job, "running", 0.0)
    metrics = PrometheusMetrics(controller, journal)
    text, _ = metrics.encoded("")
    use, now_s = controller.event_metrics.node_use, controller.clock.now() + 1000.0
    instants = iter(range(10**9))
    row = {
        "nodes": nodes,
        "jobs": jobs,
        "scrape_cpu_ms": cpu_ms(lambda: metrics.encoded(""), repeats),
        "scrape_bytes": len(text),
        "series": sum(not line.startswith(b"#") for line in text.splitlines()),
        "count_cpu_ms": cpu_ms(lambda: use.advance(state, now_s + next(instants)), repeats),
    }
    journal.close()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    machine = setting.made_with("prometheus-client")
    print(machine, file=sys.stderr)
    rows = []
    for nodes, jobs in ((0, 0), (100, 10), (10_000, 1_000)):
        with tempfile.TemporaryDirectory() as root:
            row = asyncio.run(measure(Path(root), nodes, jobs, 20 if given.quick else 200))
        rows.append(row)
        print(
            f"{nodes:6,} nodes {jobs:5,} jobs   scrape {row['scrape_cpu_ms']:5.2f} ms, {row['scrape_bytes']:,} bytes, "
            f"{row['series']} series   count {row['count_cpu_ms']:.3f} ms",
            file=sys.stderr if given.json else sys.stdout,
        )
    if given.json:
        names = ("scrape_cpu_ms", "count_cpu_ms", "series")
        summary = {f"{name}_10000": rows[-1][name] for name in names}
        print(json.dumps({"machine": machine, "rows": rows, "summary": summary}, indent=2))


if __name__ == "__main__":
    main()
