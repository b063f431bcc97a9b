"""The start of a controller that may have run before: what its journal says is compared with what there is.

`store.Journal.load` folds the journal's events into the state; this is what follows.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from offcut.cluster.base import Cluster
from offcut.control import State
from offcut.model import events
from offcut.service.agents import Agents
from offcut.store.highest_numbers import Given

_log = structlog.get_logger()

#: How long agents have to dial in after a restart of the controller, and how much longer for each of them.
RETURN_S, _RETURN_EACH_S = 10.0, 0.02


def first_event(state: State, given: Given, now_s: float) -> events.ControllerStarted:
    """Return the event that the controller begins with: it sets the timers and asks for an allocation.

    Args:
        state: What the journal says.
        given: The highest numbers that were given out, as noted beside the journal, which may be an older copy.
        now_s: The controller's time.
    """
    if given.event > state.event_id:
        _log.warning("journal_is_older", ends_with=state.event_id, there_was=given.event)
    return events.ControllerStarted(
        time_s=now_s,
        incarnation=given.incarnation if given.incarnation > state.incarnations else 0,
        generations=tuple(
            events.JobGeneration(job_id, generation)
            for job_id, generation in given.generations.items()
            if job_id in state.jobs and state.jobs[job_id].generation < generation
        ),
    )


async def reconcile(
    state: State, cluster: Cluster, agents: Agents, now: Callable[[], float], handle: Callable[[events.Event], object]
) -> None:
    """Report the differences between the journal and the nodes that the cluster holds, after a restart.

    Nodes that are held no longer are lost. Nodes that the journal does not know are released. Agents of the others
    have a while to dial in. What is idle is not taken from the journal: the cluster's first look says it.
    """
    held = await cluster.claimed()
    known = {node.name for node in state.nodes.values() if node.phase != "idle"}
    if lost := tuple(sorted(known - held)):
        handle(events.NodesChanged(time_s=now(), lost=lost))
    if unknown := sorted(held - known):
        await cluster.release(unknown)
    if idle := tuple(node.name for node in state.nodes.values() if node.phase == "idle"):
        handle(events.NodesChanged(time_s=now(), lost=idle))
    up = [name for name in sorted(known & held) if state.nodes[name].phase == "up"]
    for name in up:  # those that boot have a limit of their own
        agents.expect(name, cluster.pilot(name) or "", RETURN_S + _RETURN_EACH_S * len(up))
