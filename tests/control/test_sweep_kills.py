"""The controller dies at every write of its journal: no trial is lost or run twice, and no decision changes.

It is killed after the write, or the disk is full: then the event is not in the journal.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from test_sweeps import sweep
from world import Process, World

from offcut.control import State, step
from offcut.model import effects as ef
from offcut.model import events as ev
from offcut.model.events import Member

TICK_S = 0.5


class SweepWorld(World):
    """A world whose controller dies when it has journalled event number `kill_at`, before any effect is carried out.

    `disk_full`: it dies because it cannot journal that event.

    Scripts train and report to their files meanwhile; what agents tell a dead controller is lost.
    """

    def __init__(self, kill_at: int = -1, *, disk_full: bool = False) -> None:
        super().__init__()
        self.kill_at: int | None = kill_at
        self.disk_full = disk_full
        self.dead = False
        #: By job: the budget that its script has trained, and what it has written to its file.
        self.budgets: dict[str, float] = {}
        self.files: dict[str, list[ev.ObjectiveReport]] = {}
        self.booted: set[str] = set()
        self.ready: set[Member] = set()

    def send(self, event: ev.Event) -> list[ef.Effect]:
        if self.dead:
            return []
        if len(self.log) == self.kill_at:
            self.dead, self.kill_at = True, None
            if not self.disk_full:
                self.log.append((event, []))
            return []
        return super().send(event)

    def _carry_out(self, effect: ef.Effect) -> None:
        if isinstance(effect, ef.CopyJobState):
            self.budgets[effect.job] = self.budgets[effect.sources[0]]
        super()._carry_out(effect)

    def _boot(self, node: str, pilot: int) -> None:
        if self.pilots.get(node) == pilot:
            self.booted.add(node)
        super()._boot(node, pilot)

    def _ready(self, job_id: str, member: Member) -> None:
        self.ready.add(member)
        super()._ready(job_id, member)

    def revive(self) -> None:
        """Start the next controller with the journal. The agents dial it and say what runs on their nodes."""
        self.dead = False
        state = State(settings=self.state.settings)
        for event, _ in self.log:
            step(state, event)
        self.forget(state)
        self.restart()
        for node in sorted(self.booted & set(self.pilots)):
            running = tuple(self._shown(process) for process in self._on(node) if not process.leaving)
            newest = max((worker.incarnation for worker in running), default=0)
            self.send(ev.AgentReported(time_s=self.now_s, node=node, workers=running, incarnation=newest))
        for job_id, job in self.state.jobs.items():
            if job.members:  # the generation is sent again to those who dialled
                self._carry_out(
                    ef.SetGeneration(
                        cause=0,
                        index=0,
                        job=job_id,
                        generation=job.generation,
                        members=job.members,
                        previous=(),
                        abort=False,
                    )
                )

    def _shown(self, process: Process) -> ev.RunningWorker:
        ready = process.member in self.ready
        return ev.RunningWorker(process.job, process.member.incarnation, ready, process.generation)

    def tick(self) -> None:
        """Let half a second pass, let scripts train in it, and read what they report."""
        self.run(TICK_S)
        if self.dead:
            self.revive()
        for process in list(self.processes.values()):
            if process.generation and not process.leaving:
                self._train(process)
        search = self.state.sweeps["s-1"].search
        for job_id, trial_job in list(self.state.sweeps["s-1"].trial_jobs.items()):
            last = search.trials[trial_job.trial].last_report
            known = 0.0 if last is None else last.budget
            new = tuple(report for report in self.files.get(job_id, []) if report.budget > known)
            if new or trial_job.ended:
                self.send(ev.ObjectivesRead(time_s=self.now_s, job=job_id, reports=new, complete=trial_job.ended))

    def _train(self, process: Process) -> None:
        job_id = process.job
        budget = self.budgets[job_id] = self.budgets.get(job_id, 0.0) + 0.5
        if budget.is_integer() and budget <= 3.0:
            parameters = dict(self.state.jobs[job_id].job.env)["OFFCUT_PARAMETERS"]
            value = (sum(map(ord, parameters)) % 97) + 1 / budget
            self.files.setdefault(job_id, []).append(ev.ObjectiveReport(budget, float(value)))
        if budget > 3.0:
            self.trained(job_id)
            self.exit(process.member, "finished")


def searched(scheduler: str, options: dict[str, float], kill_at: int, *, disk_full: bool = False) -> SweepWorld:
    """Run a small sweep to its end, and let the controller die once."""
    world = SweepWorld(kill_at, disk_full=disk_full)
    world.offer("n1", "n2")
    definition = sweep(scheduler, "1", options={"max_budget": 3.0} | options, order="logical", parallel=2, max_trials=4)
    world.send(ev.SweepSubmitted(time_s=world.now_s, sweep=definition))
    for _ in range(600):
        if "s-1" in world.state.sweeps and world.state.sweeps["s-1"].search.phase != "running" and not world.dead:
            return world
        if world.dead:
            world.revive()
        world.tick()
    raise AssertionError(f"killed at event {kill_at}, the sweep did not end")


@cache
def undisturbed(scheduler: str) -> tuple[Any, int]:
    world = searched(scheduler, OPTIONS[scheduler], -1)
    return outcome(world), len(world.log)


def outcome(world: SweepWorld) -> Any:
    state = world.state.sweeps["s-1"]
    trials = state.search.trials.values()
    return [
        (trial.number, trial.phase, trial.parameters, trial.results, trial.copies, state.job_id(trial.number))
        for trial in trials
    ]


OPTIONS: dict[str, dict[str, float]] = {
    "asha": {"min_budget": 1.0},
    "pbt": {"population": 2, "quantile": 0.5},
}


def killed_at(scheduler: str, first: int, every: int, *, disk_full: bool) -> None:
    expected, events = undisturbed(scheduler)
    assert {phase for _, phase, *_ in expected} <= {"completed", "halted"}
    # The first two events are the offered nodes and the submission: without them there is nothing to lose.
    for kill_at in range(2 + first, events, every):
        world = searched(scheduler, OPTIONS[scheduler], kill_at, disk_full=disk_full)
        assert outcome(world) == expected, f"killed at event {kill_at}: {world.log[kill_at][0]}"


@pytest.mark.parametrize("disk_full", [False, True])
@pytest.mark.parametrize("scheduler", OPTIONS)
def test_the_controller_may_die_at_some_writes_of_its_journal(scheduler: str, disk_full: bool) -> None:
    killed_at(scheduler, first=3, every=11, disk_full=disk_full)


@pytest.mark.ci
@pytest.mark.parametrize("disk_full", [False, True])
@pytest.mark.parametrize("scheduler", OPTIONS)
def test_the_controller_may_die_at_every_write_of_its_journal(scheduler: str, disk_full: bool) -> None:
    killed_at(scheduler, first=0, every=1, disk_full=disk_full)
