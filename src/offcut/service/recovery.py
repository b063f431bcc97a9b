"""The start of a controller that may have run before: compares the journal with the nodes that are held.

`store.Journal.load` folds the journal's events into the state; this is what follows.
"""

from __future__ import annotations

from collections.abc import Callable

from offcut.cluster.base import Cluster
from offcut.control import State
from offcut.model import events
from offcut.service.agents import Agents
from offcut.store.highest_numbers import Given

#: How long agents have to dial in after a restart of the controller, and how much longer for each of them.
RETURN_S, _RETURN_EACH_S = 10.0, 0.02


def first_event(state: State, given: Given, now_s: float) -> events.ControllerStarted:
    """Return the event that the controller begins with: it sets the timers and asks for an allocation.

    Args:
        state: What the journal says.
        given: The highest numbers that were given out, as noted beside the journal, which may be an older copy.
        now_s: The controller's time.
    """
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
    """Report the nodes that the cluster holds, and wait for their agents.

    The controller answers with what differs from the journal: some nodes are lost, others are released. Agents of nodes
    that are up in both have a while to connect.
    """
    held = await cluster.claimed()
    handle(events.NodesHeld(time_s=now(), nodes=tuple(sorted(held))))
    up = [name for name in sorted(held) if name in state.nodes and state.nodes[name].phase == "up"]
    for name in up:  # those that boot have a limit of their own
        agents.expect(name, cluster.pilot(name) or "", RETURN_S + _RETURN_EACH_S * len(up))
