"""Which events must be on the disk before their effects leave the controller."""

from __future__ import annotations

from collections.abc import Iterable

from offcut.model import effects, events

#: Effects whose numbers others remember: if a crash of the machine lost them from the journal, they would be given
#: again.
_REMEMBERED = (effects.SetGeneration, effects.StartWorkers)
#: Events whose senders are told that the request is done.
_PROMISED = (
    *(events.JobSubmitted, events.JobChanged, events.JobCancelled, events.JobPaused, events.JobResumed),
    *(events.ReleaseAsked, events.ClaimingResumed, events.NodesForgiven, events.JobsForgotten, events.SweepForgotten),
    *(events.SweepSubmitted, events.SweepPaused, events.SweepResumed, events.SweepCancelled, events.SweepExtended),
)


def gives_numbers(caused: Iterable[effects.Effect]) -> bool:
    """Return whether an effect carries a number that agents remember."""
    return any(isinstance(effect, _REMEMBERED) for effect in caused)


def is_promised(event: events.Event) -> bool:
    """Return whether the sender of the event is told that it is done."""
    return isinstance(event, _PROMISED)
