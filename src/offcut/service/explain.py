"""Why a job has the nodes that it has."""

from __future__ import annotations

import time
from typing import Any

from offcut.service import views
from offcut.service.controller import Controller


def why(controller: Controller, job_id: str, story: list[tuple[float, str]]) -> dict[str, Any]:
    """The job, what the allocator was asked and answered, and what happened to the job last."""
    state = controller.state
    item = state.jobs[job_id]
    decision = state.decision
    now_s = time.time()
    explained: dict[str, Any] = {
        "job": views.job(controller, item, now_s),
        "since_s": now_s - item.size_since_s,
        "story": [{"time_s": time_s, "text": text} for time_s, text in story],
        "decision": None,
    }
    if decision is not None:
        explained["decision"] = {
            "age_s": now_s - decision.time_s,
            "nodes": decision.problem.nodes,
            "allocation": decision.allocation.nodes,
            "proven": decision.allocation.proven,
            "solve_ms": decision.allocation.solve_ms,
        }
    return explained
