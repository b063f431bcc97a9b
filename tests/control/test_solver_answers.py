"""The solver answers, late, wrongly, or not at all.

`World` boots a node in 1 s, starts a worker in 2 s and forms a generation in 0.2 s; a worker that is told to leave
needs 0.1 s.
"""

from __future__ import annotations

import pytest
from scenarios import running
from world import only

from offcut.model import Allocation
from offcut.model import effects as ef
from offcut.model import events as ev
from offcut.model.events import Timer


def test_a_stale_answer_changes_nothing(world):
    world.solver_waits = True
    world.submit("a")
    world.offer("n1")
    old = world.questions[-1]
    world.offer("n2")
    assert world.answer(old) == []
    assert world.state.open_problem is not None
    assert only(world.answer(world.questions[-1]), ef.Claim)
    assert world.answer(world.questions[-1]) == [], "an answer counts once"


def test_a_slow_solver_delays_no_release(world):
    running(world, "n1", "n2")
    world.solver_waits = True
    world.offer("n3")
    assert only(world.want("n1"), ef.Release)
    assert world.members("a") == ["n2"]


def test_after_a_failed_solve_every_job_keeps_its_nodes(world):
    running(world, "n1")
    world.solver_waits = True
    world.offer("n2")
    world.send(ev.SolveFailed(time_s=world.now_s, version=world.state.version, reason="out of memory"))
    assert world.members("a") == ["n1"]
    assert world.story("allocation") == ["not solved: out of memory; every job keeps the nodes that it has"]


def test_a_failed_solve_is_asked_again(world):
    running(world, "n1")
    world.solver_waits = True
    world.offer("n2")
    world.send(ev.SolveFailed(time_s=world.now_s, version=world.state.version, reason="out of memory"))
    world.solver_waits = False
    world.run(world.state.settings.solve_again_s + 5)
    assert world.members("a") == ["n1", "n2"]


@pytest.mark.parametrize(
    ("counts", "fault"),
    [
        ({"a": 7}, "7 nodes given out, but there are 3"),
        ({"a": -1}, "-1 is not an allowed size of a"),
        ({"a": 2, "b": 3}, "3 is not an allowed size of b"),
    ],
)
def test_an_answer_that_cannot_be_carried_out_is_refused_with_a_reason(world, counts, fault):
    running(world, "n1")
    world.solver_waits = True
    world.submit("b", "1,2")
    world.offer("n2", "n3")
    effects = world.give(**counts)
    assert [tell.text for tell in effects] == [f"answer refused: {fault}; every job keeps the nodes that it has"]
    assert world.state.open_problem is None
    assert world.state.decision is None or world.state.decision.version < world.state.version


def test_a_late_answer_is_carried_out_while_it_is_still_allowed_and_the_newer_problem_is_asked_again(world):
    world.solver_waits = True
    world.submit("a")
    world.offer("n1")
    old = world.questions[-1]
    world.offer("n2")
    late = ev.Solved(time_s=world.now_s, version=old.version, allocation=Allocation(nodes={"a": 1}), late=True)
    effects = world.send(late)
    assert only(effects, ef.Claim)[0].nodes == ("n1",)
    (solve,) = only(effects, ef.Solve)
    assert solve.version == world.state.version
    assert solve.problem.nodes == 2
    assert not world.state.decision.allocation.proven
    assert only(world.answer(solve), ef.Claim)


def test_a_late_answer_that_does_not_fit_any_more_is_dropped(world):
    world.solver_waits = True
    world.submit("a")
    world.offer("n1", "n2")
    old = world.questions[-1]
    world.lose("n2")
    asked = world.state.open_problem
    late = ev.Solved(time_s=world.now_s, version=old.version, allocation=Allocation(nodes={"a": 2}), late=True)
    assert world.send(late) == []
    assert world.state.open_problem is asked


def test_a_greedy_answer_is_logged_and_the_solver_is_asked_again_with_growing_waits(world):
    world.solver_waits = True
    world.submit("a")
    world.offer("n1")
    waits = []
    for _ in range(3):
        world.send(
            ev.Solved(
                time_s=world.now_s,
                version=world.state.version,
                allocation=Allocation(nodes={"a": 1}, proven=False, standin="The solver: it hung."),
            )
        )
        waits.append(world.state.timers[Timer("solve_again")] - world.now_s)
        world.run(waits[-1] + 1)
        assert world.state.open_problem is not None
    again_s = world.state.settings.solve_again_s
    assert waits == [again_s, 2 * again_s, 4 * again_s]
    assert "The solver: it hung. A greedy answer was taken" in world.story("allocation")[0]
    assert world.members("a") == ["n1"]
    world.answer(world.questions[-1])
    assert world.state.standin_answers == 0
