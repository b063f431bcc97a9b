"""What the handlers of one event share: the state, the time, and the effects collected so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offcut.model.effects import Effect, SetTimer, StopWorkers, WriteLog
from offcut.model.events import Member, Timer
from offcut.plaintext import visible

if TYPE_CHECKING:
    from offcut.control.state import State


class EventContext:
    """Collects the effects of one event, and notes what `step` has to do after its handler."""

    __slots__ = (
        "cause",
        "changed_memberships",
        "effects",
        "gone",
        "now_s",
        "passed_s",
        "problem_changed",
        "state",
        "to_stop",
    )

    def __init__(self, state: State, now_s: float, passed_s: float = 0.0) -> None:
        self.state = state
        self.now_s = now_s
        #: Seconds since the previous event.
        self.passed_s = passed_s
        self.cause = state.event_id
        self.effects: list[Effect] = []
        #: Jobs whose members or ready workers changed. True: a member is gone; do not wait for a step boundary.
        self.changed_memberships: dict[str, bool] = {}
        #: The incarnations of workers that are known to be gone by this event.
        self.gone: set[int] = set()
        #: Workers to stop, by job. Emitted after the generations, so that a member knows who continues without it.
        self.to_stop: dict[str, list[Member]] = {}
        #: Whether the allocation problem changed, so that it has to be solved again.
        self.problem_changed = False

    def emit(self, effect: type[Effect], **fields: Any) -> None:
        self.effects.append(effect(cause=self.cause, index=len(self.effects), **fields))

    def log(self, subject: str, text: str) -> None:
        """Write a line to the log of a job or a node, which users read."""
        # Spelt out, as in `set_timer`: on a large machine most effects are of these two types.
        self.effects.append(WriteLog(cause=self.cause, index=len(self.effects), subject=subject, text=visible(text)))

    def set_timer(self, timer: Timer, after_s: float) -> None:
        """Let the timer fire in `after_s` seconds, and not when it was to fire before."""
        at_s = self.now_s + after_s
        self.state.timers[timer] = at_s
        self.effects.append(SetTimer(cause=self.cause, index=len(self.effects), timer=timer, at_s=at_s))

    def cancel_timer(self, timer: Timer) -> float | None:
        """Do not let the timer fire. Returns the time at which it was to fire, None if it was not set."""
        return self.state.timers.pop(timer, None)

    def change_membership(self, job: str, *, gone: bool) -> None:
        """Check the job's membership at the end of this event. `gone`: a member is gone."""
        self.changed_memberships[job] = self.changed_memberships.get(job, False) or gone

    def stop_worker(self, job: str, member: Member) -> None:
        self.to_stop.setdefault(job, []).append(member)

    def emit_stops(self) -> None:
        for job, members in self.to_stop.items():
            self.emit(StopWorkers, job=job, members=tuple(members), limit_s=self.state.stop_limit_s(job))
