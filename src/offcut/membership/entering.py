"""What a worker does when it hears of a new generation."""

from __future__ import annotations

from enum import Enum

from offcut.membership.generation import Generation


class NextMove(Enum):
    """What a worker that is between two generations does."""

    #: Wait for a later generation: this one has only other workers, and this worker has not been a member yet.
    WAIT = "wait"
    #: Take part in the newest generation.
    ENTER = "enter"
    #: Leave the job.
    LEAVE = "leave"


def is_fenced(worker: str, newest: Generation) -> bool:
    """Return whether `worker` must not train any more, because it is not in the newest generation."""
    return worker not in newest.workers


def next_move(worker: str, newest: Generation | None, *, was_member: bool) -> NextMove:
    """Return what `worker` does between two generations.

    Args:
        worker: this worker's name.
        newest: the newest generation that it has not tried yet; None if it was told to leave before one came.
        was_member: whether it has been a member of an earlier generation.

    Returns:
        LEAVE if it was told to leave, or was a member and is fenced now; WAIT if it has not been a member yet and the
        generation is made of other workers; ENTER otherwise.
    """
    if newest is None:
        return NextMove.LEAVE
    if not is_fenced(worker, newest):
        return NextMove.ENTER
    return NextMove.LEAVE if was_member else NextMove.WAIT
