"""Why a job has the nodes that it has: the last decision about it, in numbers and in words."""

from __future__ import annotations

from typing import Any

from offcut.control import JobState
from offcut.control.state import ENDED, LIVE
from offcut.model.ended_job import EndedJob
from offcut.service import curve_report, views
from offcut.service.controller import Controller
from offcut.service.explain_trial import trial_words


async def why(controller: Controller, job_id: str, story: list[tuple[float, str]]) -> dict[str, Any]:
    """Return the job, the last decision about it, and what happened to it last.

    `words` are sentences for people; `decision` the same as figures: size, what one node more would gain and one fewer
    lose, what a node is worth elsewhere, what kept the job from growing, and who got the nodes instead.
    """
    item = controller.state.jobs[job_id]
    now_s = controller.clock.now()
    decision = await _decision(controller, job_id, now_s)
    return {
        "job": views.job(controller, item, now_s),
        "since_s": now_s - item.size_since_s,
        "words": _words(controller, item, decision),
        "decision": decision,
        "story": [{"time_s": time_s, "text": text} for time_s, text in story],
    }


def why_ended(item: EndedJob, story: list[tuple[float, str]], now_s: float) -> dict[str, Any]:
    """Return the same for a job of the history: how it ended."""
    return {
        "job": views.ended_job(item),
        "since_s": now_s - item.ended_s,
        "words": [f"It has {item.outcome}: {item.reason}."],
        "decision": None,
        "story": [{"time_s": time_s, "text": text} for time_s, text in story],
    }


async def _decision(controller: Controller, job_id: str, now_s: float) -> dict[str, Any] | None:
    decision = controller.state.decision
    if decision is None or all(request.id != job_id for request in decision.problem.jobs):
        return None
    explained = await controller.solver.explain(decision.problem, job_id, decision.allocation)
    return {
        **explained,
        "age_s": now_s - decision.time_s,
        "horizon_s": decision.problem.horizon_s,
        "nodes_in_all": decision.problem.nodes,
        "allocation": decision.allocation.nodes,
        "proven": decision.allocation.proven,
        "standin": decision.allocation.standin,
        "solve_ms": decision.allocation.solve_ms,
    }


def _cluster_words(cluster: dict[str, Any]) -> list[str]:
    """Return what keeps the cluster from giving more nodes, and what its setup costs."""
    words = []
    if trouble := cluster.get("trouble"):
        words.append(f"The batch system does not answer: {trouble}")
    if paused := cluster.get("paused"):
        words.append(f"Claiming pauses: {paused}.")
    if against := cluster.get("against"):
        words.append(f"No node is held: {against}.")
    share = cluster.get("share")
    if share is not None and share < cluster["shared"]:
        words.append(
            f"This controller may hold {share} of {cluster['shared']} nodes; {cluster['controllers']} controllers "
            "share them as the site's rules say."
        )
    words += [
        f"{one['node']} is left alone for another {one['left_s']:.0f} s: {one['reason'].rstrip('.')}."
        for one in cluster.get("set_aside", ())
    ]
    words += [f"{_nodes(n)} idle and not claimed: {why}." for why, n in cluster.get("not_claimed", {}).items()]
    return words + [f"Note: {warning}" for warning in cluster.get("warnings", ())]


def _nodes(count: int) -> str:
    return "1 node is" if count == 1 else f"{count} nodes are"


def _words(controller: Controller, item: JobState, decision: dict[str, Any] | None) -> list[str]:
    if item.phase in ENDED:
        return [f"It has {item.phase}: {item.reason}."]
    words = trial_words(controller.state, item)
    if item.phase == "paused":
        return words or ["It was paused by hand; resume it with: offcut resume"]
    if item.phase == "finishing":
        limit = f"{item.finish_limit_s:g} s"
        return [
            *words,
            f"It has done its last step; its script runs to its end, and is ended if that takes longer than {limit}.",
        ]
    if controller.state.lease_uncertain:
        words.append("No node is claimed: the shared directory does not answer, and another controller may have it.")
    if not controller.state.claiming:
        words.append("No node is claimed since all were released by hand; undo that with: offcut release --undo")
    nodes = len(controller.state.nodes)
    if item.job.sizes.smallest > nodes:
        words.append(f"It needs at least {item.job.sizes.smallest} nodes; {nodes} are idle or held. Others go first.")
    elif decision is None:
        words.append("No allocation has been decided since it was submitted.")
    else:
        words += decision["words"]
        if decision["standin"]:
            words.append(f"{decision['standin']} This is a greedy answer, not proven optimal.")
        elif controller.solver.policy is not None:
            words.append(f"The policy {controller.solver.policy} decided: its answers are not proven optimal.")
        elif not decision["proven"]:
            words.append("The solver ran out of time: this is the best answer that it found, not proven optimal.")
    words += _cluster_words(controller.cluster.describe())
    now_s = controller.clock.now()
    words += [
        f"{node['name']} is set aside for another {max(0.0, node['until_s'] - now_s):.0f} s: {node['reason']}."
        for node in views.aside(controller.state)
    ]
    booting = len(item.nodes) - item.size
    if item.phase in LIVE and booting > 0:
        words.append(f"{booting} of its {len(item.nodes)} nodes are still on their way into the training.")
    if controller.generations.awaits_store(item.job.id):
        words.append("Its members cannot meet: the rendezvous store is not there yet. See: offcut status")
    if item.disk.reason and item.phase in LIVE:
        words.append(
            f"Its workers could not write their files: {item.disk.reason}. They are started again until they can."
        )
    if item.failures:
        words.append(f"It has failed {item.failures} times in a row (forgiven: {item.job.max_failures}).")
    words += curve_report.words(controller.state, item)
    if item.restarts:
        costs_s = item.resize_costs_s(controller.state.settings)
        words.append(
            f"A resize ends its ranks and launches its script again: that is counted as {costs_s[0]:g} s of progress "
            f"lost to grow, {costs_s[1]:g} s to shrink. Its throughput is not measured: its script reports nothing."
        )
    return words
