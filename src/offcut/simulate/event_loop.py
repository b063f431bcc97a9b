"""The event loop of a replay: tells the controller each event under a virtual clock, and carries its effects out.

All that happens at one instant from outside (jobs that end, nodes that come and go, submissions, timers) is told first;
then come the consequences within that instant, until there are none: the allocation problem is solved at once, nodes
whose boot takes no time answer, workers become ready. A problem that a later event of the same instant has made stale
is not solved, as in the live system, whose solver is slower than that.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from typing import Any

from offcut.advisor import load
from offcut.control import State, nears_end, step
from offcut.control.state import ENDED
from offcut.errors import AllocationError
from offcut.model import Allocation, AllocationProblem
from offcut.model import effects as ef
from offcut.model import events as ev
from offcut.model.events import Member, Timer
from offcut.model.sweep import Sweep
from offcut.simulate.job_arrivals import JobArrivals
from offcut.simulate.noisy_meter import NoisyMeter
from offcut.simulate.options import ReplayOptions
from offcut.simulate.replay_settings import job_of, settings_of
from offcut.simulate.scheduled_events import ORDER, Booted, Due, Ended, Formed, Measured, NearsEnd, Ready, TimerDue
from offcut.simulate.sweep_trials import SweepTrials
from offcut.simulate.time_integrals import TimeIntegrals
from offcut.simulate.training import Cause, Training

Solver = Callable[[AllocationProblem], Allocation]

#: With a queue that is never empty: this many jobs are always waiting.
_AHEAD = 16


class EventLoop:
    """`state` is the controller's; `trainings` are all jobs submitted so far.

    Args:
        trials: the trials of a sweep, which the controller submits itself.
        observe: called after each event with the controller's state and the event.
    """

    def __init__(
        self,
        supply: JobArrivals,
        solver: Solver,
        options: ReplayOptions,
        start_s: float,
        *,
        trials: SweepTrials | None = None,
        observe: Callable[[State, ev.Event], None] | None = None,
    ) -> None:
        self.options = options
        self.state = State(settings=settings_of(options))
        self.now_s = start_s
        self.trainings: dict[str, Training] = {}
        self.accounts = TimeIntegrals(start_s)
        self.events = 0
        learns = options.profiler != "oracle" and load(options.profiler).learns
        self._noisy_meter = NoisyMeter(options.noise, options.seed) if learns else None
        self._arrivals = supply
        self._solver = solver
        self._trials = trials
        self._observe = observe
        self._live: dict[str, Training] = {}
        #: Idle in the trace; the known end of each window.
        self._idle: dict[str, float | None] = {}
        #: Time, order among things due at the same time, number, and what is due.
        self._due: list[tuple[float, int, int, Due]] = []
        self._number = 0
        #: Events of this instant that the controller has not been told yet.
        self._solve: ef.Solve | None = None
        self._booted: list[str] = []
        self._ready: dict[str, list[Member]] = {}
        self._timers: dict[Timer, float] = {}
        self._left: list[tuple[str, Member]] = []
        self._reoffered: list[str] = []
        #: The members that have the state of each job's training.
        self._holders: dict[str, frozenset[Member]] = {}
        #: The number of each node's claim: a node may be taken back and claimed again while it boots.
        self._claims: dict[str, int] = {}
        self._resized: dict[str, None] = {}
        #: Nodes may have changed hands at this instant.
        self._moved = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            ef.Claim: self._claim,
            ef.Release: self._release,
            ef.StartWorkers: self._start_workers,
            ef.StopWorkers: self._stop_workers,
            ef.SetGeneration: self._set_generation,
            ef.Solve: self._keep_problem,
            ef.SetTimer: self._set_timer,
        }
        if trials is not None:
            self._handlers[ef.WriteLog] = lambda effect: trials.note_log(effect, self.now_s, self.accounts.used_s)

    # -- time ------------------------------------------------------------------------------------------------

    def next_s(self) -> float:
        """Return the time of the next thing that is due, besides what the trace brings."""
        return min(self._due[0][0] if self._due else math.inf, self._arrivals.next_s())

    @property
    def busy(self) -> bool:
        """Whether a submitted job has not ended."""
        return bool(self._live)

    def submit(self, sweep: Sweep) -> None:
        """Submit a sweep now, before the first instant."""
        self._tell(ev.SweepSubmitted(time_s=self.now_s, sweep=sweep))

    def run_until(self, end_s: float) -> None:
        """Let everything happen that is due before `end_s`, or before a sweep's search has ended."""
        while (at_s := self.next_s()) < end_s and not (self._trials is not None and self._trials.ended):
            self.instant(at_s)

    def instant(
        self, now_s: float, offered: Iterable[tuple[str, float | None]] = (), wanted: tuple[str, ...] = ()
    ) -> None:
        """Apply all changes of the queue at one instant.

        Args:
            now_s: the time, in seconds from the start of the trace.
            offered: nodes that become idle, each with the known end of its window in seconds; None if it is not known.
            wanted: idle or held nodes that the queue wants.
        """
        self.now_s = now_s
        self.accounts.advance(now_s)
        self._tell_due()
        offers = tuple(ev.Offer(name, until_s) for name, until_s in offered)
        if offers or wanted:
            for name in wanted:
                del self._idle[name]
                self._claims.pop(name, None)
            for offer in offers:
                self._idle[offer.node] = offer.until_s
            # Both words at once: the queue wants the nodes, and they are gone with what ran on them.
            self._tell(ev.NodesChanged(time_s=now_s, offered=offers, wanted=wanted, lost=wanted))
        self._submit()
        self._tell_consequences()
        if self._moved:
            self._settle()
        self.accounts.set_idle(len(self._idle))

    def finish(self, end_s: float) -> None:
        """Close the accounts at `end_s`."""
        self.now_s = end_s
        self.accounts.advance(end_s)
        for training in self._live.values():
            training.advance(end_s)

    def _tell_due(self) -> None:
        due = self._due
        booted: list[str] = []
        while due and due[0][0] <= self.now_s:
            *_, what = heapq.heappop(due)
            if isinstance(what, Booted):
                booted += [name for name in what.nodes if self._claims.get(name) == what.claim]
            else:
                self._tell_one(what)
        if booted:
            self._tell(ev.NodesBooted(time_s=self.now_s, nodes=tuple(booted)))

    def _tell_one(self, what: Formed | Measured | Ended | NearsEnd | Ready | TimerDue) -> None:
        """Tell the controller of one thing that is due, unless what it depends on has changed since."""
        match what:
            case Formed(training, changes, generation, set_s):
                if changes == training.changes and training.id in self._live:
                    self._form(training, generation, set_s)
            case Measured(training, changes, event):
                if changes == training.changes:
                    self._tell(event)
            case Ended(training, changes, goals):
                if changes == training.changes and goals == training.goals:
                    self._reach_goal(training)
            case NearsEnd(training, changes, left_s):
                if changes == training.changes and nears_end(self.state, training.id, left_s):
                    self._tell(ev.JobNearsEnd(time_s=self.now_s, job=training.id, left_s=left_s))
            case Ready(job, members):
                self._tell(ev.WorkersReady(time_s=self.now_s, job=job, members=members))
            case TimerDue(timer):
                if self.state.timers.get(timer, math.inf) <= self.now_s:
                    self._tell(ev.TimerFired(time_s=self.now_s, timer=timer))

    def _form(self, training: Training, generation: int, set_s: float) -> None:
        """Let the members of a generation do their first step in it."""
        self._holders[training.id] = frozenset(self.state.jobs[training.id].members)
        took_s = max(0.0, self.now_s - set_s)
        event = ev.GenerationFormed(
            time_s=self.now_s, job=training.id, generation=generation, took_s=took_s, step=generation
        )
        self._tell(event)
        if self._noisy_meter is not None:
            rate = training.job.curve.rate_at(training.size)
            measured = self._noisy_meter.measure(training.id, generation, training.size, rate, self.now_s)
            self._later(measured.time_s, Measured(training, training.changes, measured))

    def _tell_consequences(self) -> None:
        """Tell the controller what follows from what it was told at this instant, until nothing more follows."""
        now_s = self.now_s
        while True:
            if self._left:
                job, member = self._left.pop()
                self._tell(ev.WorkerExited(time_s=now_s, job=job, member=member, outcome="left"))
            elif self._reoffered:
                names, self._reoffered = self._reoffered, []
                offers = tuple(ev.Offer(name, self._idle[name]) for name in names if name in self._idle)
                self._tell(ev.NodesChanged(time_s=now_s, offered=offers))
            elif self._solve is not None:
                asked, self._solve = self._solve, None
                self._answer(asked)
            elif self._booted:
                booted, self._booted = self._booted, []
                self._tell(ev.NodesBooted(time_s=now_s, nodes=tuple(booted)))
            elif self._ready:
                job, members = next(iter(self._ready.items()))
                del self._ready[job]
                self._tell(ev.WorkersReady(time_s=now_s, job=job, members=tuple(members)))
            elif self._trials is not None and (event := self._trials.next_event(self.state, now_s)) is not None:
                self._tell(event)
            else:
                break
        for timer, at_s in self._timers.items():
            if self.state.timers.get(timer) == at_s:  # most have been answered within the instant
                self._later(at_s, TimerDue(timer))
        self._timers.clear()

    def _answer(self, asked: ef.Solve) -> None:
        if asked.version != self.state.version:
            return
        event: ev.Event
        try:
            allocation = self._solver(asked.problem)
            event = ev.Solved(time_s=self.now_s, version=asked.version, allocation=allocation)
        except AllocationError as error:
            event = ev.SolveFailed(time_s=self.now_s, version=asked.version, reason=str(error))
        self.accounts.set_jobs([request.id for request in asked.problem.jobs], self._live)
        self._tell(event)

    def _settle(self) -> None:
        """End the instant: note what the controller has given to each job, and when each job will be done."""
        self._moved = False
        jobs = self.state.jobs
        used = 0
        for training in self._live.values():
            assigned = len(jobs[training.id].nodes)
            used += assigned
            if assigned != training.assigned:
                training.advance(self.now_s)
                training.assigned = assigned
        self.accounts.set_used(used)
        if not self._live:
            self.accounts.set_jobs([], self._live)
        for job_id in self._resized:
            if job_id in self._live:
                training = self._live[job_id]
                training.resizes += 1
                self._predict(training)
        self._resized.clear()

    def _later(self, at_s: float, what: Due) -> None:
        """Let this happen at `at_s`."""
        self._number += 1
        heapq.heappush(self._due, (at_s, ORDER[type(what)], self._number, what))

    # -- to the controller -----------------------------------------------------------------------------------

    def _tell(self, event: ev.Event) -> None:
        self.events += 1
        if type(event) is not ev.GenerationFormed:
            self._moved = True
        handlers = self._handlers
        effects = step(self.state, event)
        if self._observe is not None:
            self._observe(self.state, event)
        if self._trials is not None:
            for ended in self._trials.follow(self.state, event, self.trainings, self._live):
                self._close(ended)
        for effect in effects:
            handler = handlers.get(type(effect))
            if handler is not None:
                handler(effect)

    def _submit(self) -> None:
        limit = self.options.concurrency
        started, waiting = len(self.state.started), len(self.state.queue)
        wanted = max(_AHEAD, len(self._idle) - started) if limit is None else max(1, limit - started)
        for job_id, listed in self._arrivals.submitted_by(self.now_s, waiting, wanted):
            training = Training.of(job_id, listed, self.now_s, self.options.accounting, self.options.commit_s)
            self.trainings[job_id] = self._live[job_id] = training
            self._tell(ev.JobSubmitted(time_s=self.now_s, job=job_of(job_id, listed, self.options)))

    def _reach_goal(self, training: Training) -> None:
        """Let a trial report its objective; end the script of a job that has done its work."""
        training.advance(self.now_s)
        if training.goal - training.work > 1e-6 * training.goal:
            self._predict(training)
            return
        member = self.state.jobs[training.id].members[0]
        if self._trials is not None:
            report, ends = self._trials.report(training, self.now_s, self.accounts.used_s)
            self._tell(report)
            if not ends and training.id in self._live and training.id not in self._resized:
                self._predict(training)
            if not ends or training.id not in self._live:
                return
        self._close(training)
        self._tell(ev.WorkerExited(time_s=self.now_s, job=training.id, member=member, outcome="finished"))
        assert self.state.jobs[training.id].phase in ENDED

    def _close(self, training: Training) -> None:
        """Note that the job has ended: it makes no progress any more."""
        training.advance(self.now_s)
        training.ended_s = self.now_s
        training.size = training.assigned = 0
        training.changes += 1
        del self._live[training.id]
        self._holders.pop(training.id, None)

    def _predict(self, training: Training) -> None:
        end_s = training.end_s()
        if end_s < math.inf:
            now_s, changes = self.now_s, training.changes
            self._later(max(end_s, now_s), Ended(training, changes, training.goals))
            lead_s = self.state.settings.successor_lead_s
            if lead_s and self.options.concurrency is not None:
                left_s = min(lead_s, max(0.0, end_s - now_s))
                self._later(max(end_s - lead_s, now_s), NearsEnd(training, changes, left_s))

    # -- the controller's effects ----------------------------------------------------------------------------

    def _claim(self, effect: ef.Claim) -> None:
        if not self.options.cost.boot_s:
            self._booted += effect.nodes
            return
        self._number += 1
        self._claims.update(dict.fromkeys(effect.nodes, self._number))
        self._later(self.now_s + self.options.cost.boot_s, Booted(self._number, effect.nodes))

    def _release(self, effect: ef.Release) -> None:
        """Make nodes idle again that the queue does not want."""
        for name in effect.nodes:
            self._claims.pop(name, None)
            if name in self._idle:
                self._reoffered.append(name)

    def _start_workers(self, effect: ef.StartWorkers) -> None:
        start_s = self.options.cost.start_s
        if start_s:
            self._later(self.now_s + start_s, Ready(effect.job, effect.members))
        else:
            self._ready.setdefault(effect.job, []).extend(effect.members)

    def _stop_workers(self, effect: ef.StopWorkers) -> None:
        """Let workers leave at once. Only the exits of those that may have the training's state matter."""
        job = self.state.jobs.get(effect.job)
        if job is not None and job.state_holders:
            holders = set(job.state_holders)
            self._left += [(effect.job, member) for member in effect.members if member in holders]

    def _set_generation(self, effect: ef.SetGeneration) -> None:
        training = self._live.get(effect.job)
        if training is None:
            return
        now_s, cost, members = self.now_s, self.options.cost, effect.members
        holders = self._holders.get(effect.job)
        before = {member.incarnation for member in effect.previous}
        cause: Cause
        if any(member.incarnation not in before for member in members):
            cause, cost_s = "grow", training.job.grow_cost_s if cost.grow_s is None else cost.grow_s
        else:
            cause, cost_s = "shrink", training.job.shrink_cost_s if cost.shrink_s is None else cost.shrink_s
            if effect.abort:
                cause = "reclaim"
        if effect.abort:
            training.reclaims += 1
            training.wipes += not members
        if members:
            has_state = holders is None or any(member in holders for member in members)
        else:
            has_state = not effect.abort
            self._holders.pop(effect.job, None)
        training.resize(now_s, len(members), cause, cost_s, has_state=has_state)
        self._resized[effect.job] = None
        if members:
            # With the published accounting the job trains on: its members are in the generation from the start.
            forms_s = now_s if self.options.accounting == "published" else now_s + cost_s
            self._later(forms_s, Formed(training, training.changes, effect.generation, now_s))

    def _keep_problem(self, effect: ef.Solve) -> None:
        self._solve = effect

    def _set_timer(self, effect: ef.SetTimer) -> None:
        self._timers[effect.timer] = effect.at_s
