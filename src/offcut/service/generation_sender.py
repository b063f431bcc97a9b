"""Sends generations to agents, and knows where their members meet."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace

from offcut.control import JobState, State
from offcut.control.state import ENDED
from offcut.model import effects, events
from offcut.model.events import Member
from offcut.service.agents import Agents
from offcut.service.metrics.job_metrics import Metrics
from offcut.service.rendezvous import MeetingPlace
from offcut.wire import messages
from offcut.wire.generation_changes import change_between

#: At least this many seconds per member pass between two generations of a job that has at least this many members:
#: messages to hundreds of agents must neither fill the network nor change faster than members can form a group.
_PAUSE_EACH_S = 0.00025
_LEAST_PACED = 64


def pause_s(members: int) -> float:
    """Return how long the next generation of a job of this size waits after the previous one, at most."""
    return members * _PAUSE_EACH_S if members >= _LEAST_PACED else 0.0


def superseding(newer: effects.SetGeneration, older: effects.SetGeneration) -> effects.SetGeneration:
    """Return `newer`, for an agent that has not been told `older`, which came directly before it."""
    stay = set(newer.members)
    departing = dict.fromkeys(member for member in (*older.departing, *newer.departing) if member not in stay)
    return replace(
        newer,
        previous=tuple(dict.fromkeys((*older.previous, *older.members, *newer.previous))),
        abort=older.abort or newer.abort,
        departing=tuple(departing),
    )


class GenerationSender:
    """Sends generations to the agents of their members, as soon as it is known where the members meet.

    Members of a job that resizes in process meet at the rendezvous store; those of a job of mode `restart` at the first
    rank of their launch.
    """

    def __init__(
        self, state: State, agents: Agents, metrics: Metrics, rendezvous: MeetingPlace, now: Callable[[], float]
    ) -> None:
        self._state = state
        self._agents = agents
        self._metrics = metrics
        self._rendezvous = rendezvous
        self._now = now
        #: Generations that wait until it is known where their members meet.
        self._unsent: dict[str, effects.SetGeneration] = {}
        #: By job: agents that came back while it was not known where the members of the newest generation meet.
        self._untold: dict[str, set[str]] = {}
        #: By job: the generation that was last sent to an agent that came back.
        self._resent: dict[str, tuple[tuple[int, tuple[Member, ...], str], messages.NewGeneration]] = {}
        #: By job: the generation that was sent last, and when; and a newer one that waits until it may be sent.
        self._last: dict[str, messages.NewGeneration] = {}
        self._sent_s: dict[str, float] = {}
        self._waiting: dict[str, tuple[effects.SetGeneration, asyncio.TimerHandle]] = {}
        #: By node: the address of the first rank of its newest worker, and that worker's incarnation (mode `restart`).
        self._addresses: dict[str, tuple[int, str]] = {}

    def send(self, effect: effects.SetGeneration) -> None:
        """Tell a generation to the agents of its members and of the generation before."""
        now_s = self._now()
        job = self._state.jobs.get(effect.job)
        if job is None:
            return  # it has been forgotten since
        self._metrics.generation_set(now_s, effect.job, effect.generation, len(effect.members), len(effect.previous))
        if not effect.members and job.phase in ENDED:
            self._metrics.job_stopped(now_s, effect.job)
        if effect.job in self._waiting:
            older, timer = self._waiting.pop(effect.job)
            timer.cancel()
            effect = superseding(effect, older)
        if effect.members and not self._meeting_point(job, effect.members):
            self._unsent[effect.job] = effect
            return
        self._unsent.pop(effect.job, None)
        self._pace(effect)

    def flush(self, job_id: str) -> None:
        """Send the job's generation that waits for its turn, if there is one."""
        if job_id in self._waiting:
            effect, timer = self._waiting.pop(job_id)
            timer.cancel()
            self._send_now(effect)

    def _pace(self, effect: effects.SetGeneration) -> None:
        """Send the generation, but not sooner after the previous one than the job's size allows."""
        loop = asyncio.get_running_loop()
        at_s = self._sent_s.get(effect.job, -math.inf) + pause_s(max(len(effect.members), len(effect.previous)))
        if loop.time() >= at_s:
            self._send_now(effect)
        else:
            self._waiting[effect.job] = effect, loop.call_at(at_s, self.flush, effect.job)

    def _send_now(self, effect: effects.SetGeneration) -> None:
        job = self._state.jobs.get(effect.job)
        if job is None:
            return
        self._untold.pop(effect.job, None)
        self._resent.pop(effect.job, None)
        self._sent_s[effect.job] = asyncio.get_running_loop().time()
        whole = self._message(job, effect.generation, effect.members, abort=effect.abort, departing=effect.departing)
        before = self._last.pop(effect.job, None)
        change = change_between(before, whole) if before is not None else None
        for node in dict.fromkeys(member.node for member in (*effect.previous, *effect.members)):
            self._agents.send_generation(node, whole, change)
        if effect.members:
            self._last[effect.job] = whole
        elif job.phase in ENDED:
            self._sent_s.pop(effect.job, None)

    def send_again(self, job_id: str, node: str) -> None:
        """Tell one agent the newest generation of a job, and that reduces under older generations may never end."""
        job = self._state.jobs.get(job_id)
        if job_id in self._unsent:
            self._unsent[job_id] = replace(self._unsent[job_id], abort=True)
            return
        if job_id in self._waiting:
            effect, timer = self._waiting[job_id]
            self._waiting[job_id] = replace(effect, abort=True), timer
            return
        if job is None or job.generation == 0:
            return
        if job.members and not self._meeting_point(job, job.members):
            if not job.restarts:  # in mode `restart` all are told when the agent of the first rank comes back
                self._untold.setdefault(job_id, set()).add(node)
            return
        # After a restart of the controller all members ask for the same message.
        what = (job.generation, job.members, self._meeting_point(job, job.members))
        before, message = self._resent.get(job_id, (None, None))
        if message is None or before != what:
            message = self._message(job, job.generation, job.members, abort=True)
            self._resent[job_id] = what, message
            if job.members:
                self._last[job_id] = message
        told = {node}
        if job.restarts and job.members and job.members[0].node == node:
            # The other members of the launch meet at this address: they may have waited for it.
            told |= {member.node for member in job.members}
        for other in told:
            self._agents.send_generation(other, message)

    def store_changed(self) -> list[events.Event]:
        """Send what waited for a rendezvous store. Return the events that a new store causes."""
        for effect in list(self._unsent.values()):
            job = self._state.jobs.get(effect.job)
            if job is None:
                del self._unsent[effect.job]
            elif job.generation == effect.generation:
                self.send(effect)
        untold, self._untold = self._untold, {}
        for job_id, nodes in untold.items():
            for node in sorted(nodes):
                self.send_again(job_id, node)
        # Members that look for each other through a store that has died would do so for long.
        return [
            events.GenerationBroken(
                time_s=self._now(),
                job=job.job.id,
                generation=job.generation,
                member=job.members[0],
                detail="the rendezvous store was replaced",
            )
            for job in self._state.jobs.values()
            if job.members and job.formed_generation < job.generation
        ]

    def awaits_store(self, job_id: str) -> bool:
        """Return whether the job's newest generation waits for a rendezvous store before its members are told."""
        return job_id in self._unsent and not self._state.jobs[job_id].restarts

    def forget(self, job: str) -> None:
        """Drop what is kept of a job that has left the state."""
        for kept in (self._unsent, self._untold, self._resent, self._last, self._sent_s):
            kept.pop(job, None)
        if job in self._waiting:
            self._waiting.pop(job)[1].cancel()

    def note_address(self, node: str, said: messages.Ready | messages.WorkerReport) -> None:
        """Note the address of the member's first rank, if its agent reports one."""
        if said.address:
            self._addresses[node] = said.incarnation, said.address

    def forget_address(self, member: Member) -> None:
        """Forget the address of a member that has ended."""
        if self._addresses.get(member.node, (0, ""))[0] == member.incarnation:
            del self._addresses[member.node]

    def _message(
        self,
        job: JobState,
        generation: int,
        members: tuple[Member, ...],
        *,
        abort: bool,
        departing: tuple[Member, ...] = (),
    ) -> messages.NewGeneration:
        ranks = job.job.ranks_per_node

        def named(these: tuple[Member, ...]) -> tuple[messages.GenerationMember, ...]:
            return tuple(
                messages.GenerationMember(node=member.node, incarnation=member.incarnation, ranks=ranks)
                for member in these
            )

        return messages.NewGeneration(
            job=job.job.id,
            generation=generation,
            members=named(members),
            departing=named(departing),
            store=self._meeting_point(job, members),
            secret="" if job.restarts else self._rendezvous.secret(job.job.id, generation),
            abort=abort,
        )

    def _meeting_point(self, job: JobState, members: tuple[Member, ...]) -> str:
        """Return where the members find each other; empty while that is not known."""
        if job.restarts:
            incarnation, address = self._addresses.get(members[0].node, (0, "")) if members else (0, "")
            return address if members and incarnation == members[0].incarnation else ""
        return self._rendezvous.address or ""
