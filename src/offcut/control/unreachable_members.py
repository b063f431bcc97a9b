"""Drops members to which other members of their generation cannot connect.

A member that cannot connect to another one says so when its generation breaks. Either of the two may be the one that is
cut off, so what all have said is looked at together, and the members with the most failed connections are dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from offcut.control import membership, node_health, nodes
from offcut.control.event_context import EventContext
from offcut.control.state import JobState
from offcut.model import events as ev
from offcut.model.events import Member, Timer


def note(job: JobState, event: ev.GenerationBroken) -> None:
    """Note the nodes to which the event's member cannot connect in the job's newest generation."""
    reporter = event.member.node
    known = {member.node for member in job.members} - {reporter}
    pairs = {(min(reporter, node), max(reporter, node)) for node in event.unreachable if node in known}
    job.unreachable = tuple(sorted({*job.unreachable, *pairs}))


def nodes_to_drop(
    members: Sequence[str], pairs: Collection[tuple[str, str]], state_holders: Collection[str]
) -> list[str]:
    """Return which nodes to drop so that no pair without a connection is left.

    The node with the most failed connections goes first, of equal ones the one that came last. One that has the
    training's state stays while no other that stays has it.

    Args:
        members: the nodes of the generation, in order of rank.
        pairs: nodes that cannot connect to each other.
        state_holders: the nodes that have the training's state.
    """
    dropped: list[str] = []
    left = set(pairs)
    while left:
        failed = Counter(node for pair in left for node in pair)
        holders = [node for node in members if node in state_holders and node not in dropped]
        may_go = [node for node in members if node in failed and holders != [node]]
        worst = max(may_go, key=lambda node: (failed[node], members.index(node)))
        dropped.append(worst)
        left = {pair for pair in left if worst not in pair}
    return dropped


def drop(context: EventContext, job: JobState) -> bool:
    """Drop members that the others cannot connect to; return False if there are none.

    Their nodes are tried again after a while, and set aside after several times in a row.
    """
    state, job_id = context.state, job.job.id
    pairs, job.unreachable = job.unreachable, ()
    stay = [member.node for member in membership.remaining_members(state, job)]
    pairs = tuple(pair for pair in pairs if pair[0] in stay and pair[1] in stay)
    for name in nodes_to_drop(stay, pairs, {member.node for member in job.state_holders}):
        others = ", ".join(sorted({node for pair in pairs if name in pair for node in pair} - {name}))
        context.log(job_id, f"goes on without {name}: no connection between it and {others}")
        node = state.nodes[name]
        context.stop_worker(job_id, Member(name, node.incarnation))
        node.worker = "stopped"
        context.change_membership(job_id, gone=True)
        node_health.note(context, name, job_id, f"no connection between it and {others}")
        if node_health.is_bad(state, name, its_fault=True):
            nodes.set_aside(context, node)
        else:
            context.set_timer(Timer("retry", name, node.incarnation), node_health.wait_s(state, name))
    return bool(pairs)
