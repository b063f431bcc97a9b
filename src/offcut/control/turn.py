"""One event being answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offcut.model.effects import Effect, SetTimer, StopWorkers, Tell
from offcut.model.events import Member
from offcut.plaintext import visible

if TYPE_CHECKING:
    from offcut.control.state import State


class Turn:
    """Collects the effects of one event; `resized` names the jobs whose membership may have to change at its end."""

    __slots__ = ("cause", "dirty", "effects", "now_s", "passed_s", "resized", "state", "stopped")

    def __init__(self, state: State, now_s: float, passed_s: float = 0.0) -> None:
        self.state = state
        self.now_s = now_s
        #: Since the event before this one.
        self.passed_s = passed_s
        self.cause = state.event_id
        self.effects: list[Effect] = []
        #: Jobs whose members or ready workers changed; True: a member is gone, do not wait.
        self.resized: dict[str, bool] = {}
        #: Workers to be stopped, by job: emitted after the generations, so that a member knows who goes on without it.
        self.stopped: dict[str, list[Member]] = {}
        #: The allocation problem changed.
        self.dirty = False

    def emit(self, effect: type[Effect], **fields: Any) -> None:
        self.effects.append(effect(cause=self.cause, index=len(self.effects), **fields))

    def tell(self, subject: str, text: str) -> None:
        # Spelt out, as in `timer`: on a large machine these two are most of all effects.
        self.effects.append(Tell(cause=self.cause, index=len(self.effects), subject=subject, text=visible(text)))

    def timer(self, key: str, after_s: float) -> None:
        at_s = self.now_s + after_s
        self.state.timers[key] = at_s
        self.effects.append(SetTimer(cause=self.cause, index=len(self.effects), key=key, at_s=at_s))

    def resize(self, job: str, *, gone: bool) -> None:
        self.resized[job] = self.resized.get(job, False) or gone

    def stop(self, job: str, member: Member) -> None:
        self.stopped.setdefault(job, []).append(member)

    def emit_stops(self) -> None:
        for job, members in self.stopped.items():
            self.emit(StopWorkers, job=job, members=tuple(members), limit_s=self.state.stop_limit_s(job))
