"""A thousand trials that wait do not slow the controller: an event takes as many calls as with ten."""

from __future__ import annotations

import cProfile
import pstats
from typing import Any

import pytest

from offcut.allocate.exact import solve
from offcut.control import State, step
from offcut.model import Job, Sizes
from offcut.model import events as ev
from offcut.model.search_space import FloatParameter, SearchSpace
from offcut.model.sweep import ResultOrder, SchedulerChoice, Sweep


def with_trials(count: int, order: ResultOrder) -> State:
    """Return a controller of 8 nodes with this many trials at once, of which most wait for nodes."""
    state = State()
    job = Job(id="s-1", name="s", command=("t.py",), sizes=Sizes.parse("1"))
    offered = tuple(ev.Offer(f"n{i}") for i in range(8 if order == "logical" else count))
    step(state, ev.NodesChanged(time_s=1.0, offered=offered))
    sweep = Sweep(
        id="s-1",
        name="s",
        job=job,
        space=SearchSpace((FloatParameter(name="lr", low=0.1, high=1.0),)),
        scheduler=SchedulerChoice("asha", (("max_budget", 27.0),)),
        order=order,
        parallel=count,
        max_trials=count,
    )
    step(state, ev.SweepSubmitted(time_s=1.0, sweep=sweep))
    report(state, 0, 0.5)
    step(state, ev.NodesChanged(time_s=1.0, lost=tuple(f"n{i}" for i in range(8, len(offered)))))
    answer(state)
    step(state, ev.NodesBooted(time_s=1.0, nodes=tuple(state.nodes)))
    assert len(state.sweeps["s-1"].trial_jobs) == count
    return state


def report(state: State, trial: int, budget: float) -> None:
    reports = (ev.ObjectiveReport(budget, 1.0),)
    step(state, ev.ObjectivesRead(time_s=state.now_s, job=f"s-1.{trial}", reports=reports))


def answer(state: State) -> None:
    assert state.open_problem is not None
    answered = solve(state.open_problem)
    step(state, ev.Solved(time_s=state.now_s, version=state.version, allocation=answered))


def calls(function: Any, *arguments: Any) -> int:
    profile = cProfile.Profile()
    profile.runcall(function, *arguments)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def spent(state: State) -> dict[str, int]:
    """Return the calls that a report before a rung, one at a rung, a reclaim and an offered node take."""
    found = {"report": calls(report, state, 1, 0.75), "rung": calls(report, state, 1, 1.0)}
    answer(state)
    found["reclaim"] = calls(step, state, ev.NodesChanged(time_s=2.0, wanted=("n1",)))
    answer(state)
    found["offer"] = calls(step, state, ev.NodesChanged(time_s=3.0, offered=(ev.Offer("n1"),)))
    return found


@pytest.mark.parametrize("order", ["logical", "arrival"])
def test_an_event_takes_as_many_calls_with_a_thousand_trials_as_with_ten(order: ResultOrder) -> None:
    few, many = spent(with_trials(12, order)), spent(with_trials(1000, order))
    rung = many.pop("rung")
    del few["rung"]
    for what, calls_taken in many.items():
        # `arrival` adds up the nodes that the trials hold.
        assert calls_taken <= 3 * few[what] + (0 if order == "logical" or what == "report" else 3000), what
    assert rung <= 10_000, "a rung compares the trials that are there"
