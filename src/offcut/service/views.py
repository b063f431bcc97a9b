"""Shows the controller to people and programs, as plain data for JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from offcut.control import JobState, NodeState, State
from offcut.control.state import ENDED
from offcut.model.ended_job import CANCELLED_CODE, EndedJob
from offcut.model.events import Timer
from offcut.service.controller import Controller
from offcut.service.metrics.job_metrics import percentile


def status(controller: Controller, ended: int | None = None) -> dict[str, Any]:
    """Return an overview: nodes, jobs, resizes, node-seconds.

    `ended` limits how many of the jobs that have ended are shown, the last ones; `left_out` counts the others.
    """
    now_s = controller.clock.now()
    state, metrics = controller.state, controller.metrics
    shown = _shown(state, ended)
    older = _older(controller, None if ended is None else ended - len(state.ended))
    took_ms = [resize.took_ms for resize in metrics.resizes]
    return {
        "time_s": now_s,
        "claiming": state.claiming,
        "lease_uncertain": state.lease_uncertain,
        "cluster": controller.cluster.describe(),
        "events": state.event_id,
        "skipped": [asdict(event) for event in state.skipped],
        "journal": list(controller.journal_remarks),
        "nodes": [_node(node) for _, node in sorted(state.nodes.items())],
        "aside": aside(state),
        "jobs": [ended_job(item) for item in older] + [job(controller, item, now_s) for item in shown],
        "left_out": len(state.jobs) - len(shown) + controller.history.count() - len(older),
        "resizes": {
            "count": metrics.resized,
            "p50_ms": percentile(took_ms, 0.5),
            "p95_ms": percentile(took_ms, 0.95),
            "recent": [
                {"job": r.job, "what": r.what, "size": r.size, "took_ms": round(r.took_ms, 1)}
                for r in metrics.resizes[-8:]
            ],
        },
        "used_node_s": metrics.used_by(now_s),
        "first_step_s": metrics.first_step_s,
        "tasks": controller.tasks.shown(),
    }


def _shown(state: State, ended: int | None) -> list[JobState]:
    """Return every live job and the last `ended` of the others, in order of submission."""
    if ended is None:
        return list(state.jobs.values())
    over = sorted((item.ended_s or 0.0, job_id) for job_id, item in state.jobs.items() if item.phase in ENDED)
    kept = {job_id for _, job_id in over[len(over) - min(ended, len(over)) :]}
    return [item for job_id, item in state.jobs.items() if item.phase not in ENDED or job_id in kept]


def _older(controller: Controller, limit: int | None) -> list[EndedJob]:
    """Return jobs of the history, the last to end last; all of them without a limit."""
    return [] if limit is not None and limit <= 0 else controller.history.newest(limit)


def aside(state: State) -> list[dict[str, Any]]:
    """Return the nodes, idle or not, that are not claimed for a while because starts on them failed."""
    return [
        {"name": name, "reason": reason, "until_s": state.timers.get(Timer("set_aside", name), state.now_s)}
        for name, reason in sorted(state.set_aside.items())
    ]


def _node(node: NodeState) -> dict[str, Any]:
    return {
        "name": node.name,
        "phase": node.phase,
        "job": node.job,
        "worker": node.worker,
        "idle_since_s": node.idle_since_s,
        "until_s": node.until_s,
    }


def job(controller: Controller, item: JobState, now_s: float | None = None) -> dict[str, Any]:
    """Return one job as `offcut status` shows it."""
    now_s = controller.clock.now() if now_s is None else now_s
    loss = item.progress.loss
    rate = controller.metrics.rate(now_s, item.job.id) if item.phase == "running" else 0.0
    return {
        "id": item.job.id,
        "name": item.job.name,
        "state": item.phase,
        "reason": item.reason,
        "sizes": str(item.job.sizes),
        "size": item.size,
        "nodes": [member.node for member in item.members],
        "assigned": list(item.nodes),
        "generation": item.generation,
        "epoch": item.generation,  # its name in versions before 0.3, for one version
        "steps": item.progress.step,
        "total_steps": item.progress.total_steps,
        "time_left_s": _time_left_s(controller.state, item, rate),
        "samples": item.progress.samples,
        "loss": loss if math.isfinite(loss) else None,
        "rate": rate,
        "steps_redone": item.redone_steps,
        "resizes": item.resizes,
        "mode": item.job.mode,
        "failures": item.failures,
        "exit_code": _exit_code(item.phase, item.exit_code),
        "weight": item.job.weight,
        "priority": item.job.priority,
        "submitted_s": item.submitted_s,
        "ended_s": item.ended_s,
    }


def _time_left_s(state: State, item: JobState, rate: float) -> float | None:
    """Return how long the job still trains if it keeps its size; None: it does not train, or that is not known.

    Args:
        state: the controller's.
        item: the job.
        rate: its throughput over the last seconds, in samples/s: used until its throughput at this size was measured.
    """
    total = item.progress.total_samples
    if item.phase != "running" or total is None:
        return None
    history = state.histories.jobs.get(item.job.id)
    measured = [seen for seen in history.observations if seen.size == item.size] if history is not None else []
    if measured:
        rate = item.size * math.exp(measured[-1].log_efficiency)
    return max(0, total - item.progress.samples) / rate if rate > 0 else None


def _exit_code(phase: str, noted: int | None) -> int | None:
    """Return the job's exit code; None if it has not ended. Older versions did not note it."""
    if noted is not None:
        return noted
    return {"finished": 0, "failed": 1, "cancelled": CANCELLED_CODE}.get(phase)


def ended_job(item: EndedJob) -> dict[str, Any]:
    """Return one job of the history, with the same keys as `job`."""
    its = item.job
    return {
        "id": its.id,
        "name": its.name,
        "state": item.outcome,
        "reason": item.reason,
        "sizes": str(its.sizes),
        "size": 0,
        "nodes": [],
        "assigned": [],
        "generation": item.generation,
        "epoch": item.generation,
        "steps": item.steps,
        "total_steps": None,
        "time_left_s": None,
        "samples": item.samples,
        "loss": item.loss if math.isfinite(item.loss) else None,
        "rate": 0.0,
        "steps_redone": item.redone_steps,
        "resizes": item.resizes,
        "mode": its.mode,
        "failures": item.failures,
        "exit_code": _exit_code(item.outcome, item.exit_code),
        "weight": its.weight,
        "priority": its.priority,
        "submitted_s": item.submitted_s,
        "ended_s": item.ended_s,
    }
