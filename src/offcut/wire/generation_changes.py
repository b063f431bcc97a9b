"""Writes a new generation as its difference from the previous one, and reads it back."""

from __future__ import annotations

from offcut.errors import ProtocolError
from offcut.wire.messages import GenerationChange, GenerationMember, NewGeneration

#: A change that touches more than this share of the members is not shorter than the whole.
_LARGEST_SHARE = 0.5


def change_between(base: NewGeneration, new: NewGeneration) -> GenerationChange | None:
    """Return the change from `base` to `new`; None if it is not shorter than `new` or cannot be expressed."""
    known = {member.incarnation: member for member in base.members}
    stay = [member for member in new.members if known.get(member.incarnation) == member]
    joined = new.members[len(stay) :]
    left = known.keys() - {member.incarnation for member in stay}
    if (
        len(left) + len(joined) > _LARGEST_SHARE * len(new.members)
        or any(known.get(member.incarnation) != member for member in new.departing)
        or _members(base, left, joined) != new.members
    ):
        return None
    return GenerationChange(
        job=new.job,
        generation=new.generation,
        base=base.generation,
        left=tuple(sorted(left)),
        joined=joined,
        departing=tuple(member.incarnation for member in new.departing),
        store=new.store,
        secret=new.secret,
        abort=new.abort,
    )


class GenerationReader:
    """Restores whole generations from one connection's messages. A change's `base` is the previous message."""

    def __init__(self) -> None:
        self._last: dict[str, NewGeneration] = {}

    def read(self, message: NewGeneration | GenerationChange) -> NewGeneration:
        """Return the whole generation. Raises ProtocolError if the generation that it is based on is not known."""
        whole = message if isinstance(message, NewGeneration) else self._changed(message)
        if whole.members:
            self._last[whole.job] = whole
        else:
            self._last.pop(whole.job, None)
        return whole

    def _changed(self, change: GenerationChange) -> NewGeneration:
        base = self._last.get(change.job)
        if base is None or base.generation != change.base:
            raise ProtocolError(f"Generation {change.generation} of {change.job} changes one that was not told.")
        departing = {member.incarnation: member for member in base.members}
        return NewGeneration(
            job=change.job,
            generation=change.generation,
            members=_members(base, set(change.left), change.joined),
            departing=tuple(departing[number] for number in change.departing if number in departing),
            store=change.store,
            secret=change.secret,
            abort=change.abort,
        )


def _members(base: NewGeneration, left: set[int], joined: tuple[GenerationMember, ...]) -> tuple[GenerationMember, ...]:
    return (*(member for member in base.members if member.incarnation not in left), *joined)
