"""Schedulers in users' files run in a process: it may raise, hang or die, and the sweep says so and loses nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from offcut.control import State, step
from offcut.errors import InputError
from offcut.model import Job, Sizes
from offcut.model import events as ev
from offcut.model.search_space import FloatParameter, SearchSpace
from offcut.model.sweep import SchedulerChoice, Sweep
from offcut.service.searcher.user_schedulers import UserSchedulers, describe

GOOD = """
import os, time
from offcut.search.schedulers.base import Continue, Halt, StartNew, Stop

class Mine:
    def __init__(self, limit=4.0):
        self.max_budget = limit
        self.waits_at_rungs = False
    def next_rung(self, trial, budget):
        return budget + 1.0
    def decide(self, view, trial):
        {decide}
    def next_trial(self, view):
        return StartNew()
"""


def submitted(path: Path, state: State) -> None:
    job = Job(id="s-1", name="s", command=("t.py",), sizes=Sizes.parse("1"))
    choice = SchedulerChoice(f"{path}:Mine", (("limit", 4.0),))
    space = SearchSpace((FloatParameter(name="lr", low=0.1, high=1.0),))
    traits = asyncio.run(describe(choice))
    assert (traits.max_budget, traits.waits_at_rungs) == (4.0, False)
    sweep = Sweep(id="s-1", name="s", job=job, space=space, scheduler=choice, scheduler_traits=traits, parallel=2)
    step(state, ev.NodesChanged(time_s=1.0, offered=(ev.Offer("n1"), ev.Offer("n2"))))
    step(state, ev.SweepSubmitted(time_s=1.0, sweep=sweep))


def report(state: State, number: int, budget: float) -> None:
    reports = (ev.ObjectiveReport(budget, 1.0),)
    step(state, ev.ObjectivesRead(time_s=1.0, job=f"s-1.{number}", reports=reports))


@pytest.mark.ci
def test_a_users_scheduler_decides_fails_hangs_dies_and_goes_on_when_its_file_is_mended(tmp_path: Path) -> None:
    path, state = tmp_path / "mine.py", State()
    path.write_text(GOOD.format(decide="return Stop('too bad') if trial.number == 1 else Continue()"))
    submitted(path, state)
    told: list[ev.SchedulerAnswered] = []

    def handle(event: Any) -> None:
        told.append(event)
        step(state, event)

    async def main() -> None:
        schedulers = UserSchedulers(state, lambda: 1.0, handle, limit_s=60.0)
        search = state.sweeps["s-1"].search
        try:
            await schedulers.look()
            assert [trial.phase for trial in search.trials.values()] == ["running"]
            await schedulers.look()
            assert len(told) == 1, "no question is asked again that was answered"
            report(state, 0, 1.0)
            await schedulers.look()
            assert [trial.phase for trial in search.trials.values()] == ["running", "running"]
            report(state, 1, 1.0)
            await schedulers.look()
            assert (search.trials[1].phase, search.trials[1].reason) == ("stopped", "too bad")
            for place, (decide, reason) in enumerate(
                [
                    ("return view.trials[99]", "the scheduler mine.py failed (line 12): KeyError: 99"),
                    ("return None", "the scheduler mine.py failed: decide returned None, which is not Continue"),
                    ("raise SystemExit(3)", "the scheduler mine.py failed (line 12): SystemExit: 3"),
                    ("os._exit(1)", "the scheduler mine.py failed: Its process died"),
                    ("time.sleep(600)", "the scheduler mine.py failed: It did not answer within 1 s"),
                ]
            ):
                path.write_text(GOOD.format(decide=decide) + "\n" * place)
                if "sleep" in decide:
                    schedulers._limit_s = 1.0
                trials = len(search.trials)
                report(state, 0, 2.0)
                await schedulers.look()
                assert search.phase == "paused"
                assert search.reason.startswith(reason)
                assert len(search.trials) == trials
                step(state, ev.SweepResumed(time_s=1.0, sweep="s-1"))
            schedulers._limit_s = 60.0
            path.unlink()
            await schedulers.look()
            assert search.reason == f"the scheduler's file {path} is not there any more"
            step(state, ev.SweepResumed(time_s=1.0, sweep="s-1"))
            path.write_text(GOOD.format(decide="return Continue()") + "# mended")
            await schedulers.look()
            assert (search.phase, search.trials[0].rung_budget) == ("running", 3.0)
        finally:
            schedulers.close()

    asyncio.run(main())


@pytest.mark.ci
def test_a_file_that_is_no_scheduler_is_refused_at_once(tmp_path: Path) -> None:
    for text, reason in (
        ("raise KeyError('x')", "KeyError"),
        ("import os; os._exit(3)", "Its process died"),
        (GOOD.format(decide="pass").replace("limit=4.0", "limit=-1"), "max_budget must be greater than 0"),
    ):
        path = tmp_path / "mine.py"
        path.write_text(text)
        choice = SchedulerChoice(f"{path}:Mine" if "Mine" in text else str(path))
        with pytest.raises(InputError, match=reason):
            asyncio.run(describe(choice))
