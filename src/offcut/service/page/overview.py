"""What the first view shows, as plain data for its templates."""

from __future__ import annotations

from typing import Any

from offcut.control.state import ENDED, LIVE
from offcut.service import sweep_lookup, views
from offcut.service.controller import Controller
from offcut.service.metrics.job_metrics import percentile
from offcut.service.page.node_use import count_nodes

#: At most this many jobs, sweeps and reclaims are in a table.
MOST_JOBS = 100
MOST_SWEEPS = 20
MOST_RECLAIMS = 12


def summary(controller: Controller) -> dict[str, Any]:
    """Return the figures at the top: nodes by use, jobs by phase, resizes, and what is wrong."""
    now_s, state, metrics = controller.clock.now(), controller.state, controller.metrics
    counts = count_nodes(now_s, state)
    phases = [job.phase for job in state.jobs.values()]
    took_ms = [resize.took_ms for resize in metrics.resizes[-200:]]
    return {
        "nodes": len(state.nodes),
        "idle": counts.idle,
        "held": counts.held,
        "booting": counts.booting,
        "training": sum(counts.jobs.values()) + counts.other_jobs,
        "running": phases.count("running"),
        "waiting": phases.count("waiting"),
        "resizes": metrics.resized,
        "resize_p50_ms": percentile(took_ms, 0.5),
        "used_node_s": metrics.used_by(now_s),
        "warnings": _warnings(controller),
    }


def _warnings(controller: Controller) -> list[str]:
    found = []
    if not controller.state.claiming:
        found.append("No node is claimed since all were released by hand; undo that with: offcut release --undo")
    if controller.state.lease_uncertain:
        found.append("No node is claimed: the shared directory does not answer.")
    cluster = controller.cluster.describe()
    if trouble := cluster.get("trouble"):
        found.append(f"The batch system does not answer: {trouble}")
    if paused := cluster.get("paused"):
        found.append(f"Claiming pauses: {paused}.")
    found += [
        f"The task '{task['name']}' failed {task['failures']} times: {task['last_error']}"
        for task in controller.tasks.shown()
        if not task["well"]
    ]
    return found


def jobs(controller: Controller) -> dict[str, Any]:
    """Return the rows of the table of jobs: those that train, those that wait, and the last ones that ended."""
    now_s, everything = controller.clock.now(), controller.state.jobs.values()
    training = sorted((item for item in everything if item.phase in LIVE), key=lambda item: (-item.size, item.job.id))
    resting = [item for item in everything if item.phase not in LIVE and item.phase not in ENDED]
    over = sorted((item for item in everything if item.phase in ENDED), key=lambda item: -(item.ended_s or 0.0))
    shown = [*training, *resting, *over]
    return {
        "rows": [views.job(controller, item, now_s) for item in shown[:MOST_JOBS]],
        "more": max(0, len(shown) - MOST_JOBS),
    }


def sweeps(controller: Controller) -> list[dict[str, Any]]:
    """Return the newest sweeps."""
    state, now_s = controller.state, controller.clock.now()
    newest = sorted(state.sweeps.values(), key=lambda sweep: -sweep.submitted_s)[:MOST_SWEEPS]
    return [sweep_lookup.shown(state, sweep, now_s) for sweep in newest]


async def reclaims(controller: Controller) -> dict[str, Any]:
    """Return the last nodes that the queue wanted back, and how long each release took."""
    hand_backs = (await controller.cluster.statistics()).get("hand_backs", [])
    took_s = [item["took_s"] for item in hand_backs]
    return {
        "count": len(hand_backs),
        "slowest_s": max(took_s, default=None),
        "killed": sum(bool(item["killed"]) for item in hand_backs),
        "rows": hand_backs[::-1][:MOST_RECLAIMS],
    }
