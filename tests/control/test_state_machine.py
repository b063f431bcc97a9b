"""Random sequences of events, plausible and garbage: no exception, and the state agrees with itself after each."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from world import World, job

from offcut.control import Settings, State, step
from offcut.control.state import ENDED
from offcut.model import Allocation, JobMode, ScalingCurve, Sizes
from offcut.model import effects as ef
from offcut.model import events as ev
from offcut.model.events import Member, Purpose, Timer
from offcut.model.search_space import FloatParameter, SearchSpace
from offcut.model.sweep import ResultOrder, SchedulerChoice, Suggester, Sweep
from offcut.store import Journal

NODES = [f"n{i}" for i in range(7)]
JOBS = ["a", "b", "c"]
CURVE = ScalingCurve((1, 8), (1.0, 6.0))
SIZES = ["1:8", "1,2,4", "2,3", "4", "1:2"]

modes = st.sampled_from(["session", "session", "restart"])
nodes = st.lists(st.sampled_from(NODES), min_size=1, max_size=4, unique=True).map(tuple)
any_node = st.sampled_from([*NODES, "unknown"])
any_job = st.sampled_from([*JOBS, "unknown"])
any_member = st.builds(Member, any_node, st.integers(0, 12))
number = st.integers(-1, 12)
#: What the controller's own clock would never say, and what it would.
any_timer = st.builds(Timer, st.sampled_from(get_args(Purpose)), any_node | any_job, number)
garbage = st.one_of(
    st.builds(
        ev.NodesChanged,
        time_s=st.floats(-10, 1000),
        offered=st.lists(st.builds(ev.Offer, any_node, st.none() | st.floats(0, 1e6)), max_size=3).map(tuple),
        wanted=st.lists(any_node, max_size=3).map(tuple),
        lost=st.lists(any_node, max_size=3).map(tuple),
    ),
    st.builds(ev.NodesHeld, time_s=st.just(0.0), nodes=st.lists(any_node, max_size=4).map(tuple)),
    st.builds(ev.ClaimRefused, time_s=st.just(0.0), nodes=st.tuples(any_node, any_node), reason=st.just("taken")),
    st.builds(ev.NodesBooted, time_s=st.just(0.0), nodes=st.tuples(any_node, any_node)),
    st.builds(
        ev.AgentReported,
        time_s=st.just(0.0),
        node=any_node,
        workers=st.lists(
            st.builds(ev.RunningWorker, any_job, st.integers(0, 12), st.booleans(), number), max_size=2
        ).map(tuple),
        incarnation=number,
    ),
    st.builds(
        ev.ControllerStarted,
        time_s=st.floats(-10, 1000),
        incarnation=number,
        generations=st.lists(st.builds(ev.JobGeneration, any_job, number), max_size=2).map(tuple),
    ),
    st.builds(ev.WorkersReady, time_s=st.just(0.0), job=any_job, members=st.tuples(any_member)),
    st.builds(
        ev.WorkerExited,
        time_s=st.just(0.0),
        job=any_job,
        member=any_member,
        outcome=st.sampled_from(["left", "finished", "failed", "lost"]),
        generation=number,
        stable_step=number,
    ),
    st.builds(
        ev.GenerationFormed, time_s=st.just(0.0), job=any_job, generation=number, took_s=st.just(0.1), step=number
    ),
    st.builds(
        ev.GenerationBroken,
        time_s=st.just(0.0),
        job=any_job,
        generation=number,
        member=any_member,
        unreachable=st.sampled_from([(), ("n1",), ("n2", "n3"), ("unknown",)]),
    ),
    st.builds(ev.JobNearsEnd, time_s=st.just(0.0), job=any_job, left_s=st.sampled_from([0.0, 10.0, 11.0])),
    st.builds(ev.JobTrained, time_s=st.just(0.0), job=any_job, generation=number),
    st.builds(ev.JobCancelled, time_s=st.just(0.0), job=st.just("unknown")),
    st.builds(ev.JobPaused, time_s=st.just(0.0), job=st.just("unknown")),
    st.builds(ev.JobResumed, time_s=st.just(0.0), job=any_job),
    st.builds(ev.JobChanged, time_s=st.just(0.0), job=st.just("unknown"), weight=st.just(2.0)),
    st.builds(
        ev.JobMeasured,
        time_s=st.just(0.0),
        job=any_job,
        generation=number,
        size=st.integers(-1, 12),
        rate=st.floats(),
        settled=st.booleans(),
        changed=st.booleans(),
    ),
    st.builds(ev.JobNoted, time_s=st.just(0.0), job=any_job, text=st.just("a note")),
    st.builds(
        ev.JobProgressed,
        time_s=st.just(0.0),
        job=any_job,
        generation=number,
        step=number,
        samples=number,
        loss=st.floats(),
    ),
    st.builds(
        ev.Solved,
        time_s=st.just(0.0),
        version=st.integers(-1, 40),
        allocation=st.builds(Allocation, nodes=st.dictionaries(any_job, st.integers(-2, 12))),
    ),
    st.builds(ev.SolveFailed, time_s=st.just(0.0), version=st.integers(-1, 40), reason=st.just("out of memory")),
    st.builds(ev.TimerFired, time_s=st.floats(0, 1000), timer=any_timer),
)

garbage_of_sweeps = st.one_of(
    st.builds(
        ev.ObjectivesRead,
        time_s=st.just(0.0),
        job=any_job | st.sampled_from(["s.0", "s.99", "s", "."]),
        reports=st.lists(st.builds(ev.ObjectiveReport, st.floats(), st.floats(allow_nan=False)), max_size=3).map(tuple),
        complete=st.booleans(),
    ),
    st.builds(
        ev.TrialSuggested,
        time_s=st.just(0.0),
        sweep=st.sampled_from(["s", "unknown"]),
        trial=number,
        parameters=st.dictionaries(st.sampled_from(["lr", "x"]), st.floats() | st.integers() | st.text(max_size=2)),
    ),
    st.builds(ev.SweepCancelled, time_s=st.just(0.0), sweep=st.just("unknown")),
    st.builds(ev.JobStateCopied, time_s=st.just(0.0), job=any_job | st.sampled_from(["s.0", "s.0-1"])),
)
#: So that three trials at once copy from each other.
_OPTIONS = {"pbt": (("population", 3), ("quantile", 0.5))}

#: The same, and some that are answered together.
garbage_together = st.builds(
    ev.EventsGathered,
    time_s=st.just(0.0),
    events=st.lists(garbage, max_size=12).map(
        lambda events: tuple(event for event in events if isinstance(event, ev.GatheredEvent))
    ),
)


#: How many of the things that are due happen before the next rule: mostly few, so that rules meet half-done resizes.
moments = st.sampled_from([0, 0, 1, 2, 4, 12, 40])


def then_time_passes(**strategies: st.SearchStrategy) -> Callable:
    """Make a rule after which some things that are due happen."""

    def decorate(function: Callable) -> Callable:
        @rule(after=moments, **strategies)
        @functools.wraps(function)
        def happen(self, after, **given):
            function(self, **given)
            for _ in range(after):
                self.world.next()

        return happen

    return decorate


class Cluster(RuleBasedStateMachine):
    """What happens around the controller; `World` checks the invariants after every event."""

    @initialize(
        sane=st.booleans(),
        solver_waits=st.booleans(),
        hold_s=st.sampled_from([0.5, 10.0]),
        sizes=st.sampled_from(SIZES),
        mode=modes,
    )
    def begin(self, sane: bool, solver_waits: bool, hold_s: float, sizes: str, mode: JobMode) -> None:
        """Let two jobs train."""
        self.world = World(Settings(hold_s=hold_s, boot_limit_s=3.0, ready_limit_s=4.0, recent_jobs=1))
        self.world.offer(*NODES[:6])
        self.world.submit("a", "1:8", finish_limit_s=20.0)
        self.world.submit("b", sizes, curve=CURVE, mode=mode, hang_limit_s=20.0)
        self.world.run(6)
        self.world.solver_waits = solver_waits
        #: Without nonsense the controller never believes what is not so.
        self.sane = sane
        self.world.misled = not sane

    # -- the queue --------------------------------------------------------------------------------------------------

    @then_time_passes(names=nodes, until_s=st.none() | st.floats(0, 100))
    def offer(self, names: tuple[str, ...], until_s: float | None) -> None:
        free = [name for name in names if name not in self.world.pilots]
        if free:
            self.world.offer(*free, until_s=until_s)

    @then_time_passes(names=nodes, lost=st.booleans())
    def take(self, names: tuple[str, ...], lost: bool) -> None:
        (self.world.lose if lost else self.world.want)(*names)

    @then_time_passes(name=st.sampled_from(NODES), how=st.sampled_from(["refused", "never_boots", "never_ready"]))
    def spoil(self, name: str, how: str) -> None:
        """Let a node misbehave, or end that."""
        getattr(self.world, how).symmetric_difference_update({name})

    # -- users ------------------------------------------------------------------------------------------------------

    @then_time_passes(
        job_id=st.sampled_from(JOBS),
        sizes=st.sampled_from(SIZES),
        priority=st.integers(0, 1),
        max_failures=st.integers(0, 3),
        curve=st.sampled_from([None, CURVE]),
        mode=modes,
    )
    def submit(
        self, job_id: str, sizes: str, priority: int, max_failures: int, curve: ScalingCurve | None, mode: JobMode
    ) -> None:
        """Submit a job, or a successor of one that has ended."""
        jobs = self.world.state.jobs
        while job_id in self.world.history or (job_id in jobs and jobs[job_id].phase in ENDED):
            job_id += "+"
        self.world.submit(
            job_id, sizes, priority=priority, max_failures=max_failures, curve=curve, mode=mode, hang_limit_s=20.0
        )

    def known(self, data: st.DataObject, *phases: str) -> str:
        """Return a job, if possible one in these phases."""
        jobs = self.world.state.jobs
        return data.draw(st.sampled_from([j for j in jobs if jobs[j].phase in phases] or list(jobs)))

    @then_time_passes(data=st.data(), kind=st.sampled_from([ev.JobPaused, ev.JobResumed, ev.JobResumed]))
    def pause_or_resume(self, data: st.DataObject, kind: type) -> None:
        job_id = self.known(data, "paused" if kind is ev.JobResumed else "running")
        self.world.send(kind(time_s=self.world.now_s, job=job_id))

    @then_time_passes(data=st.data(), really=st.integers(0, 3))
    def cancel(self, data: st.DataObject, really: int) -> None:
        if not really:
            self.world.send(ev.JobCancelled(time_s=self.world.now_s, job=self.known(data, "running", "finishing")))

    @then_time_passes(
        data=st.data(),
        sizes=st.sampled_from([None, *map(Sizes.parse, [*SIZES, "9:12"])]),
        weight=st.none() | st.floats(0.1, 10),
    )
    def change(self, data: st.DataObject, sizes: Sizes | None, weight: float | None) -> None:
        job_id = self.known(data, "running", "waiting")
        self.world.send(ev.JobChanged(time_s=self.world.now_s, job=job_id, sizes=sizes, weight=weight))

    @then_time_passes(names=nodes, every=st.integers(0, 3), kind=st.sampled_from([ev.ReleaseAsked, ev.NodesForgiven]))
    def release_or_forgive(self, names: tuple[str, ...], every: int, kind: type) -> None:
        names = names if every else ()
        self.world.send(kind(time_s=self.world.now_s, nodes=names))

    @then_time_passes(certain=st.booleans())
    def check_lease(self, certain: bool) -> None:
        self.world.send(ev.LeaseChecked(time_s=self.world.now_s, certain=certain))

    @precondition(lambda self: not self.world.state.claiming)
    @then_time_passes()
    def resume_claiming(self) -> None:
        self.world.send(ev.ClaimingResumed(time_s=self.world.now_s))
        self.world.offer(*(set(NODES) - set(self.world.pilots)))

    # -- workers ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.processes)
    @then_time_passes(data=st.data(), outcome=st.sampled_from(["finished", "failed", "lost", "left"]))
    def exit(self, data: st.DataObject, outcome: ev.Outcome) -> None:
        self.world.exit(data.draw(st.sampled_from(sorted(self.world.processes))), outcome, "it broke")

    @precondition(lambda self: any(t.members and t.step for t in self.world.trainings.values()))
    @then_time_passes(data=st.data(), end=st.booleans())
    def train(self, data: st.DataObject, end: bool) -> None:
        going = sorted(job_id for job_id, t in self.world.trainings.items() if t.members and t.step)
        job_id = data.draw(st.sampled_from(going))
        self.world.train(job_id, 10)
        if end and self.world.trainings[job_id].members[0] in self.world.processes:
            self.world.trained(job_id)

    @precondition(lambda self: any(j.members for j in self.world.state.jobs.values()))
    @then_time_passes(data=st.data())
    def break_generation(self, data: st.DataObject) -> None:
        running = [job for job in self.world.state.jobs.values() if job.members]
        job_state = data.draw(st.sampled_from(running))
        self.world.send(
            ev.GenerationBroken(
                time_s=self.world.now_s,
                job=job_state.job.id,
                generation=job_state.generation,
                member=job_state.members[-1],
                unreachable=tuple(
                    data.draw(st.lists(st.sampled_from([member.node for member in job_state.members]), max_size=2))
                ),
            )
        )

    @precondition(lambda self: self.world.pilots)
    @then_time_passes(data=st.data(), forgetful=st.booleans())
    def reconnect(self, data: st.DataObject, forgetful: bool) -> None:
        """Let an agent reconnect after its connection was cut; perhaps its worker died meanwhile unreported."""
        world = self.world
        node = data.draw(st.sampled_from(sorted(world.pilots)))
        mine = [process for process in world.processes.values() if process.member.node == node]
        if forgetful:
            for process in mine:
                del world.processes[process.member]
        workers = tuple(
            ev.RunningWorker(process.job, process.member.incarnation, data.draw(st.booleans())) for process in mine
        )
        world.send(ev.AgentReported(time_s=world.now_s, node=node, workers=() if forgetful else workers))

    @then_time_passes()
    def restart_controller(self) -> None:
        """End the controller and start another with its journal."""
        self.world.restart()

    # -- the solver, the clock, and nonsense ------------------------------------------------------------------------

    @precondition(lambda self: self.world.questions)
    @then_time_passes(data=st.data(), how=st.sampled_from(["answers", "answers", "fails", "makes things up"]))
    def solver(self, data: st.DataObject, how: str) -> None:
        """Answer the newest problem, or an old one, or one again."""
        world = self.world
        question = data.draw(st.sampled_from(world.questions[-2:]))
        if how == "answers":
            world.answer(question)
        elif how == "fails":
            world.send(ev.SolveFailed(time_s=world.now_s, version=question.version, reason="no memory"))
        else:
            world.give(**data.draw(st.dictionaries(st.sampled_from(sorted(world.state.jobs)), st.integers(-1, 7))))

    @rule(for_s=st.sampled_from([0.4, 2.5, 5.0, 15.0]))
    def wait(self, for_s: float) -> None:
        self.world.run(for_s)

    @precondition(lambda self: not self.sane)
    @then_time_passes(event=garbage | garbage_together)
    def nonsense(self, event: ev.Event) -> None:
        self.world.send(event)

    # -- at the end -------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if hasattr(self, "world"):
            if self.sane:
                check_rest(self.world)
            check_fold(self.world)


class ClusterWithSweeps(Cluster):
    """The same with a sweep, whose trials are jobs among the others."""

    @precondition(lambda self: not self.world.state.sweeps)
    @then_time_passes(
        scheduler=st.sampled_from(
            ["asha", "asha-stopping", "hyperband", "median-stopping", "pbt", "regularized-evolution"]
        ),
        order=st.sampled_from(["arrival", "logical"]),
        suggester=st.sampled_from(["random", "optuna"]),
        sizes=st.sampled_from(["1", "1:8", "2,3"]),
    )
    def submit_sweep(self, scheduler: str, order: ResultOrder, suggester: Suggester, sizes: str) -> None:
        sweep = Sweep(
            id="s",
            name="s",
            job=job("s", sizes, hang_limit_s=20.0, finish_limit_s=20.0),
            space=SearchSpace((FloatParameter(name="lr", low=0.1, high=1.0),)),
            scheduler=SchedulerChoice(scheduler, (("max_budget", 4.0), *_OPTIONS.get(scheduler, ()))),
            order=order,
            suggester=suggester,
            max_trials=6,
            parallel=3,
        )
        self.world.send(ev.SweepSubmitted(time_s=self.world.now_s, sweep=sweep))

    @precondition(lambda self: self.world.state.sweeps)
    @then_time_passes(data=st.data(), value=st.floats(allow_nan=False))  # two states with a NaN are never equal
    def report_objective(self, data: st.DataObject, value: float) -> None:
        """Read what a trial has reported, and whether it has ended."""
        sweep = self.world.state.sweeps["s"]
        if sweep.trial_jobs:
            job_id = data.draw(st.sampled_from(list(sweep.trial_jobs)))
            trial = sweep.search.trials[sweep.trial_jobs[job_id].trial]
            budget = (trial.last_report.budget if trial.last_report else 0.0) + data.draw(st.sampled_from([0, 1, 1, 3]))
            reports = (ev.ObjectiveReport(budget, value),)
            ended = sweep.trial_jobs[job_id].ended
            self.world.send(ev.ObjectivesRead(time_s=self.world.now_s, job=job_id, reports=reports, complete=ended))

    @precondition(lambda self: self.world.state.sweeps)
    @then_time_passes(lr=st.floats(0.0, 1.0), failure=st.sampled_from(["", "", "its process died"]))
    def suggest(self, lr: float, failure: str) -> None:
        for number, trial in list(self.world.state.sweeps["s"].search.trials.items()):
            if trial.phase == "asked":
                self.world.send(
                    ev.TrialSuggested(
                        time_s=self.world.now_s, sweep="s", trial=number, parameters={"lr": lr}, failure=failure
                    )
                )

    @precondition(lambda self: self.world.state.sweeps)
    @then_time_passes(kind=st.sampled_from([ev.SweepPaused, ev.SweepResumed, ev.SweepResumed, ev.SweepExtended]))
    def ask_sweep(self, kind: type) -> None:
        self.world.send(kind(time_s=self.world.now_s, sweep="s"))

    @precondition(lambda self: not self.sane)
    @then_time_passes(event=garbage_of_sweeps)
    def nonsense_of_sweeps(self, event: ev.Event) -> None:
        self.world.send(event)


def check_rest(world: World) -> None:
    """Check that nothing is stuck: left alone, every job trains on all nodes that it has, or has none."""
    for spoilt in (world.refused, world.never_boots, world.never_ready):
        spoilt.clear()
    world.solver_waits = False
    world.send(ev.ControllerStarted(time_s=world.now_s))
    world.send(ev.LeaseChecked(time_s=world.now_s, certain=True))
    world.send(ev.ClaimingResumed(time_s=world.now_s))
    world.run(400)
    state = world.state
    assert state.open_problem is None
    assert not state.timers.keys() - {key for key in state.timers if state.timers[key] > world.now_s}
    assert not any(node.phase == "claimed" for node in state.nodes.values())
    assert {name for name, node in state.nodes.items() if node.phase == "up"} == set(world.pilots)
    for job_state in state.jobs.values():
        assert job_state.phase != "finishing"
        assert set(job_state.nodes) == {member.node for member in job_state.members}
        assert job_state.state_holders == job_state.members
        if job_state.phase == "waiting":
            free = len(state.free)
            assert job_state.job.sizes.largest_within(free) == 0, f"{job_state.job.id} waits beside {free} free nodes"
    for member, process in world.processes.items():
        assert not process.leaving
        assert member in state.jobs[process.job].members, "only members run"


def check_fold(world: World) -> None:
    """Check that the journal leads to the controller's state: from the start, and from a snapshot in the middle."""
    events = [event for event, _ in world.log if not isinstance(event, ev.JobProgressed)]
    with tempfile.TemporaryDirectory() as place:
        whole, halved = Journal(Path(place) / "whole"), Journal(Path(place) / "halved")
        settings = world.state.settings
        state, middle = whole.load(settings), halved.load(settings)
        assert state == middle == State(settings=settings)
        for number, event in enumerate(events, 1):
            whole.append(number, event)
            halved.append(number, event)
            if number <= len(events) // 2:
                step(middle, event)
            if number == len(events) // 2:
                halved.snapshot(middle)
        assert whole.load(settings) == world.state
        assert halved.load(settings) == world.state
        for journal in (whole, halved):
            journal.close()


def run(examples: int, steps: int, *phases: Phase, machine: type[Cluster] = Cluster) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate, *phases],
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_any_sequence_of_events_is_answered_and_leaves_a_sound_state():
    run(100, 50)  # to shrink what it finds takes minutes: the long run does


def test_any_sequence_with_a_sweep_is_answered_and_leaves_a_sound_state():
    run(10, 50, machine=ClusterWithSweeps)


@pytest.mark.ci
@pytest.mark.timeout(900)
def test_long_sequences():
    run(300, 100, Phase.shrink)


@pytest.mark.ci
@pytest.mark.timeout(900)
def test_long_sequences_with_a_sweep():
    run(40, 100, machine=ClusterWithSweeps)


def test_the_same_events_cause_the_same_effects():
    """No clock, no randomness, no order of sets: a second controller does exactly the same."""
    world = World()
    world.submit("a", "1:8")
    world.submit("b", "1,2,4")
    world.offer(*NODES)
    world.run(5)
    world.want("n1", "n2", "n5")
    world.run(5)
    again = State(settings=world.state.settings)
    for event, effects in world.log:
        assert step(again, event) == effects
    assert again == world.state
    assert any(isinstance(effect, ef.SetGeneration) for _, effects in world.log for effect in effects)
    assert again.jobs["a"].job == job("a")
