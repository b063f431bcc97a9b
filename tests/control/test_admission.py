"""Which jobs take part in the allocation, and which of the free nodes they get."""

from __future__ import annotations

from dataclasses import replace

from world import World, job

from offcut.control import Settings, State, step
from offcut.control.admission import admitted
from offcut.model import Allocation, ScalingCurve
from offcut.model import events as ev

LINEAR = ScalingCurve((1, 8), (1.0, 8.0))


def submit(state: State, *names: str, **fields) -> None:
    for name in names:
        step(state, ev.JobSubmitted(time_s=0.0, job=job(name, curve=LINEAR, **fields)))


def offer(state: State, *names: str, time_s: float = 1.0) -> None:
    step(state, ev.NodesChanged(time_s=time_s, offered=tuple(ev.Offer(name) for name in names)))


def give(state: State, **counts: int) -> None:
    step(state, ev.Solved(time_s=state.now_s, version=state.version, allocation=Allocation(nodes=counts)))


def names(state: State) -> list[str]:
    return [found.job.id for found in admitted(state)]


def test_a_cap_admits_the_head_of_the_queue():
    state = State(settings=Settings(max_jobs=2))
    submit(state, "a", "b", "c")
    assert names(state) == ["a", "b"]


def test_a_job_that_has_started_keeps_its_place_without_a_node():
    state = State(settings=Settings(max_jobs=1))
    submit(state, "a", "b")
    offer(state, "n0")
    give(state, a=1)
    step(state, ev.NodesChanged(time_s=2.0, wanted=("n0",), lost=("n0",)))
    assert not state.jobs["a"].nodes
    assert names(state) == ["a"]


def test_the_next_job_follows_one_that_ended():
    state = State(settings=Settings(max_jobs=1))
    submit(state, "a", "b")
    offer(state, "n0")
    give(state, a=1)
    step(state, ev.JobCancelled(time_s=2.0, job="a"))
    assert names(state) == ["b"]
    assert "a" not in state.started
    assert state.queue == ["b"]


def test_the_next_job_is_let_in_when_one_nears_its_end():
    state = State(settings=Settings(max_jobs=1))
    submit(state, "a", "b", "c")
    offer(state, "n0")
    give(state, a=1)
    step(state, ev.JobNearsEnd(time_s=2.0, job="a"))
    assert names(state) == ["a"], "it does not even train yet"
    state.jobs["a"].phase = "running"
    step(state, ev.JobNearsEnd(time_s=3.0, job="a"))
    assert names(state) == ["a", "b"]
    step(state, ev.JobNearsEnd(time_s=4.0, job="b"))
    assert names(state) == ["a", "b"], "one successor for one job"


def test_a_higher_priority_is_not_kept_out_by_a_lower_one():
    state = State(settings=Settings(max_jobs=1))
    submit(state, "low")
    offer(state, "n0")
    give(state, low=1)
    submit(state, "next")
    submit(state, "high", priority=5)
    assert state.queue == ["high", "next"]
    assert names(state) == ["high", "low"]


def test_a_paused_job_does_not_take_part_and_does_not_block_the_queue():
    state = State(settings=Settings(max_jobs=1))
    submit(state, "a", "b")
    step(state, ev.JobPaused(time_s=1.0, job="a"))
    assert names(state) == ["b"]


def test_without_a_cap_a_few_more_than_could_use_the_free_nodes():
    state = State()
    submit(state, *(f"j{i}" for i in range(100)))
    assert len(names(state)) == 8
    offer(state, *(f"n{i:02d}" for i in range(96)))
    assert len(names(state)) == 12


def sized(state: State, sizes: str, *names: str, **fields) -> None:
    for name in names:
        step(state, ev.JobSubmitted(time_s=0.0, job=job(name, sizes, **fields)))


def test_jobs_that_cannot_start_do_not_block_the_queue():
    state = State()
    sized(state, "64", *(f"big{i}" for i in range(8)))
    sized(state, "1:8", "small")
    offer(state, *(f"n{i}" for i in range(10)))
    assert state.open_problem is not None
    assert [request.id for request in state.open_problem.jobs] == ["small"]
    offer(state, *(f"m{i:02d}" for i in range(54)), time_s=2.0)
    assert "big0" in names(state), "there are 64 nodes now"


def test_jobs_that_need_nodes_of_others_leave_the_free_ones_to_those_behind():
    state = State()
    sized(state, "1:60", "runs")
    offer(state, *(f"n{i:02d}" for i in range(70)))
    give(state, runs=60)
    sized(state, "64", *(f"big{i}" for i in range(20)))
    sized(state, "1:8", "small")
    assert names(state) == ["runs", *(f"big{i}" for i in range(8)), "small"]


def test_with_a_cap_too_a_job_that_cannot_start_takes_no_place():
    state = State(settings=Settings(max_jobs=1))
    sized(state, "64", "big")
    sized(state, "1:8", "small")
    offer(state, "n0")
    assert names(state) == ["small"]


def test_a_job_that_has_started_and_does_not_fit_any_more_does_not_count_against_the_cap():
    state = State(settings=Settings(max_jobs=1))
    sized(state, "4", "four")
    offer(state, *(f"n{i}" for i in range(4)))
    give(state, four=4)
    sized(state, "1:8", "small")
    assert names(state) == ["four"]
    step(state, ev.NodesChanged(time_s=2.0, wanted=("n0",), lost=("n0",)))
    assert names(state) == ["four", "small"], "three nodes are not enough for the first"


def test_a_start_that_costs_more_than_the_horizon_still_pays():
    world = World(Settings(horizon_s=10.0, grow_cost_s=18.0))
    world.submit("a", "1:8")
    world.offer("n0", "n1")
    world.run(60)
    assert world.state.jobs["a"].size == 2


def test_a_growing_job_gets_nodes_of_the_group_that_it_has():
    state = State()
    submit(state, "a", "b")
    offer(state, "x0", "x1", "x2", time_s=1.0)
    offer(state, "y0", "y1", "y2", time_s=2.0)
    give(state, a=1, b=0)
    mine = next(iter(state.jobs["a"].nodes))
    assert mine.startswith("x"), "the nodes that are idle longest come first"
    state.now_s = 3.0
    step(state, ev.JobSubmitted(time_s=3.0, job=job("c", curve=LINEAR)))
    give(state, a=3, b=3)
    assert {name[0] for name in state.jobs["a"].nodes} == {"x"}
    assert {name[0] for name in state.jobs["b"].nodes} == {"y"}


def test_random_placement_is_the_same_every_time():
    def placed() -> list[str]:
        state = State(settings=replace(Settings(), placement="random"))
        submit(state, "a")
        offer(state, *(f"n{i}" for i in range(20)))
        give(state, a=5)
        return list(state.jobs["a"].nodes)

    assert placed() == placed()
    assert sorted(placed()) != [f"n{i}" for i in range(5)]
