"""Who saves the state when workers leave, and who may leave without saving.

Replicated state is the state of a data-parallel job: every member has all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from offcut.membership.generation import Generation

#: On a wanted node, a worker whose state others have leaves in the middle of a step if no boundary comes within this.
#: slurmd looks whether a job has ended after 0.02, 0.07, 0.17 and 0.67 s: a worker that misses the third look costs the
#: queue half a second more.
BOUNDARY_WAIT_S = 0.1
#: A worker that must be gone stops waiting for its step boundary this long before, and saves the last boundary's state.
SAVING_S = 0.6


@dataclass(frozen=True, slots=True)
class Departure:
    """A worker leaves at a boundary.

    Args:
        worker: its name.
        formed: the last generation in which it was a member; None if it has not been one.
        newest: the newest generation that it knows of.
        gone: the ranks of `formed` that are known to leave at this boundary too.
        gone_known: whether `gone` is complete; not after a generation broke.
        handed_over: whether members that stay have taken over what only the leaving ones had.
    """

    worker: str
    formed: Generation | None
    newest: Generation | None
    gone: Collection[int]
    gone_known: bool
    handed_over: bool = False


def saves_replica(departure: Departure) -> bool:
    """Return whether a leaving worker saves its replicated state, because no member may be left that has it.

    The lowest rank that does not leave earlier saves for all. Where it is not known which ranks those are, each saves:
    also if a generation lies between `formed` and `newest`, because a lower rank may have left the state to this worker
    when it was told that one.
    """
    formed, newest = departure.formed, departure.newest
    if formed is None:
        return False
    remaining = [worker for rank, worker in enumerate(formed.workers) if rank not in departure.gone]
    if newest is not None and any(worker in newest.workers for worker in remaining):
        return False
    if newest is not None and _is_one_between(formed, newest):
        return True
    return not departure.gone_known or departure.worker == (remaining or formed.workers)[0]


def _is_one_between(formed: Generation, newest: Generation) -> bool:
    return newest.generation > formed.generation + 1


def saves_layers(departure: Departure) -> bool:
    """Return whether a leaving worker saves the layers that it holds: unless other members have taken them over."""
    return departure.formed is not None and not departure.handed_over


def others_go_on(worker: str, current: Generation, newest: Generation | None) -> bool:
    """Return whether members of `current` go on without `worker` in a newer generation, with the state they have.

    Then the worker may leave in the middle of a step: the others do the step again in any case.
    """
    if newest is None or newest.generation == current.generation or worker in newest.workers:
        return False
    return bool(set(current.workers) & set(newest.workers))


def saves_replica_in_time(worker: str, current: Generation, newest: Generation | None) -> bool:
    """Return whether `worker`, which must be gone soon and comes to no boundary, saves its replicated state alone.

    It does not if another member goes on with the state, or if a member of a lower rank saves it; see `saves_replica`.
    """
    others = set(current.workers) - {worker}
    if not others:
        return True
    if newest is None or others & set(newest.workers):
        return False
    return current.workers[0] == worker or _is_one_between(current, newest)


def layers_only_here(held: Sequence[Collection[int]], rank: int, mine: Collection[int]) -> frozenset[int]:
    """Return those of the layers `mine` of member `rank` that no other member has; `held` are the layers by rank."""
    elsewhere = frozenset(layer for other, layers in enumerate(held) if other != rank for layer in layers)
    return frozenset(mine) - elsewhere
