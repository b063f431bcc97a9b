"""`check_state` finds each fault of a state, and describes it in a sentence."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from world import World

from offcut.control import Settings, State
from offcut.control.check_state import check_state
from offcut.control.state import Probe


@pytest.fixture
def state() -> State:
    """Job `a` runs on n1 and n2; n3 is idle, n4 boots for `b`."""
    world = World()
    world.offer("n1", "n2")
    world.submit("a", "1:2")
    world.run(6)
    world.offer("n4")
    world.submit("b", "1:2")
    world.run(0.5)
    assert world.state.nodes["n4"].phase == "claimed"
    world.solver_waits = True
    world.offer("n3")
    assert check_state(world.state) == []
    return world.state


def two_jobs_on_one_node(state: State) -> None:
    state.jobs["b"].nodes["n1"] = None


def a_node_that_does_not_exist(state: State) -> None:
    del state.nodes["n3"]


def a_node_without_its_job(state: State) -> None:
    state.nodes["n1"].job = None


def a_boot_without_a_limit(state: State) -> None:
    state.timers.clear()


def a_member_that_is_another(state: State) -> None:
    state.nodes["n1"].incarnation = 99


def a_probe_without_a_limit(state: State) -> None:
    state.jobs["a"].probe = Probe(2, 0.0)


def a_job_that_does_not_take_part(state: State) -> None:
    state.open_problem = (
        None
        if state.open_problem is None
        else state.open_problem.__class__(
            nodes=state.open_problem.nodes, horizon_s=120.0, jobs=state.open_problem.jobs[:1]
        )
    )


def an_end_without_a_reason(state: State) -> None:
    state.jobs["b"].phase = "failed"


def a_first_member_that_is_gone(state: State) -> None:
    state.jobs["a"].phase = "finishing"
    state.nodes["n1"].worker = "none"


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (two_jobs_on_one_node, "Node n1 is assigned to a and to b."),
        (a_node_that_does_not_exist, "A node is free that does not exist."),
        (a_node_without_its_job, "Node n1 says that its job is None, but it is assigned to a."),
        (a_boot_without_a_limit, "Node n4: it boots without a limit in time."),
        (a_member_that_is_another, "Job a: its member on n1 is not that node's worker."),
        (a_probe_without_a_limit, "Job a: it tries a size without a limit in time, or has the limit and tries none."),
        (a_job_that_does_not_take_part, "Job b could run and does not take part in the allocation."),
        (an_end_without_a_reason, "Job b: it has ended without a time and a reason, or has these and has not ended."),
        (a_first_member_that_is_gone, "Job a: its first member is gone, which must be the last to go."),
    ],
)
def test_each_fault_of_a_state_is_found(state: State, spoil: Callable[[State], None], sentence: str) -> None:
    spoil(state)
    assert sentence in check_state(state)


def test_jobs_beyond_the_cap_do_not_count_as_a_fault() -> None:
    world = World(Settings(max_jobs=1))
    world.solver_waits = True
    world.submit("a", "1:2")
    world.submit("b", "1:2")
    world.offer("n1", "n2", "n3")
    assert [request.id for request in world.state.open_problem.jobs] == ["a"]
    assert check_state(world.state) == []
