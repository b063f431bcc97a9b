"""An agent is believed about the workers that it was told to run, and about generations that they are in."""

from __future__ import annotations

import pytest

from offcut.control import State, step
from offcut.model import Allocation, Job, Sizes
from offcut.model import events as ev
from offcut.model.events import Member
from offcut.service.started_workers import StartedWorkers
from offcut.wire import messages

#: What a node says of job `a`, given the incarnation that it runs.
REPORTS = {
    "ready": lambda n: messages.Ready(job="a", incarnation=n),
    "exited": lambda n: messages.Exited(job="a", incarnation=n, outcome="lost"),
    "broken": lambda n: messages.Broken(job="a", incarnation=n, generation=1),
    "pace": lambda n: messages.Pace(job="a", incarnation=n, generation=1, own_step_s=0.1),
    "formed": lambda n: messages.Formed(job="a", generation=1, step=1),
    "progress": lambda n: messages.Progress(job="a", generation=1, step=10, samples=100),
    "trained": lambda n: messages.Trained(job="a", generation=1, step=10),
    "note": lambda n: messages.Note(job="a", text="no space left"),
}


def hello(node: str, *workers: tuple[str, int], pilot: str = "p") -> messages.Hello:
    reports = tuple(messages.WorkerReport(job=job, incarnation=n, ready=True) for job, n in workers)
    return messages.Hello(node=node, pilot=pilot, workers=reports)


def training() -> State:
    """Let job `a` train on n1 and n2, job `b` on n3, each in generation 1."""
    state = State()
    nodes = {"n1": "a", "n2": "a", "n3": "b"}
    step(state, ev.NodesChanged(time_s=0.0, offered=tuple(ev.Offer(name) for name in nodes)))
    for job, sizes in (("a", "2"), ("b", "1")):
        spec = Job(id=job, name=job, command=("train.py",), sizes=Sizes.parse(sizes))
        step(state, ev.JobSubmitted(time_s=0.0, job=spec))
    step(state, ev.Solved(time_s=0.0, version=state.version, allocation=Allocation(nodes={"a": 2, "b": 1})))
    step(state, ev.NodesBooted(time_s=1.0, nodes=tuple(nodes)))
    for job in ("a", "b"):
        members = tuple(node.member for node in state.nodes.values() if node.job == job)
        step(state, ev.WorkersReady(time_s=2.0, job=job, members=members))
        step(state, ev.GenerationFormed(time_s=2.0, job=job, generation=1, took_s=0.1, step=1))
    assert {name: node.job for name, node in state.nodes.items()} == nodes
    return state


def started(state: State) -> StartedWorkers:
    """Tell every agent to start what it runs."""
    started_workers = StartedWorkers(state)
    for node in state.nodes.values():
        started_workers.accept_hello(hello(node.name))
        assert node.job is not None
        started_workers.note_started(node.job, node.member)
    return started_workers


@pytest.mark.parametrize("kind", REPORTS)
def test_an_agent_may_report_workers_that_it_runs(kind: str) -> None:
    state = training()
    incarnation = state.nodes["n1"].incarnation
    assert started(state).is_credible("n1", REPORTS[kind](incarnation))


@pytest.mark.parametrize("kind", REPORTS)
def test_other_nodes_may_not_report_a_worker(kind: str) -> None:
    state = training()
    started_workers = started(state)
    started_workers.accept_hello(hello("stranger", ("a", 1)))
    for node in ("n3", "stranger", "unheard of"):
        for incarnation in (1, 2, 3, 99):
            assert not started_workers.is_credible(node, REPORTS[kind](incarnation))


@pytest.mark.parametrize("kind", ["formed", "progress", "trained", "pace", "broken"])
def test_a_future_generation_cannot_be_reported(kind: str) -> None:
    state = training()
    started_workers = started(state)
    report = REPORTS[kind](state.nodes["n1"].incarnation)
    for generation in (0, 2, 2**53):
        credible = started_workers.is_credible("n1", report.model_copy(update={"generation": generation}))
        assert not credible or (kind, generation) == ("broken", 0)


def test_a_worker_is_heard_until_its_end_although_its_node_is_wanted() -> None:
    state = training()
    started_workers = started(state)
    member = state.nodes["n1"].member
    step(state, ev.NodesChanged(time_s=3.0, wanted=("n1",)))
    assert started_workers.is_credible("n1", REPORTS["progress"](member.incarnation))
    assert started_workers.is_credible("n1", REPORTS["note"](member.incarnation))
    assert started_workers.is_credible("n1", REPORTS["exited"](member.incarnation))
    started_workers.note_ended("a", member)
    assert not started_workers.is_credible("n1", REPORTS["note"](member.incarnation))


def test_after_a_restart_the_state_says_who_runs_what() -> None:
    state = training()
    incarnation = state.nodes["n1"].incarnation
    started_workers = StartedWorkers(state)
    started_workers.accept_hello(hello("n1", ("a", incarnation), ("b", incarnation), ("a", 99)))
    assert started_workers.is_credible("n1", REPORTS["progress"](incarnation))
    assert not started_workers.is_credible("n1", messages.Note(job="b", text="mine"))
    assert not started_workers.is_credible("n1", REPORTS["exited"](99))


def test_newer_numbers_than_the_journal_s_are_believed_of_an_agent_that_was_there_before_and_once() -> None:
    state = training()
    newest = state.incarnations
    news = messages.Hello(
        node="n1",
        pilot="p",
        incarnation=newest + 7,
        workers=(messages.WorkerReport(job="a", incarnation=newest + 7, ready=True, generation=9),),
    )
    started_workers = StartedWorkers(state)
    assert started_workers.accept_hello(news) == news
    again = started_workers.accept_hello(news)
    assert (again.incarnation, again.workers) == (0, ())
    started_workers.note_claimed(["n2"])
    known = messages.WorkerReport(job="a", incarnation=state.nodes["n2"].incarnation, ready=True, generation=9)
    claimed = started_workers.accept_hello(news.model_copy(update={"node": "n2", "workers": (known,)}))
    assert claimed.incarnation == 0
    assert [(worker.incarnation, worker.generation) for worker in claimed.workers] == [(known.incarnation, 0)]


def test_workers_of_an_earlier_pilot_are_not_those_of_the_next() -> None:
    state = training()
    started_workers = started(state)
    step(state, ev.NodesChanged(time_s=3.0, lost=("n3",)))
    member = Member("n3", 3)
    started_workers.accept_hello(hello("n3", ("b", member.incarnation)))
    assert started_workers.is_credible("n3", messages.Note(job="b", text="cut off for a moment"))
    started_workers.accept_hello(hello("n3", ("b", member.incarnation), pilot="another"))
    assert not started_workers.is_credible("n3", messages.Note(job="b", text="not mine"))
