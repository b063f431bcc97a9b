"""`offcut report --sweep` writes the page of a sweep from the journal, while its controller runs or afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from world import job

from offcut.control import Settings
from offcut.model import events as ev
from offcut.model.search_space import FloatParameter, SearchSpace
from offcut.model.sweep import SchedulerChoice, Sweep
from offcut.service.paths import StatePaths
from offcut.store import Journal

SWEEP = Sweep(
    id="s-1",
    name="s",
    job=job("s-1", "1"),
    space=SearchSpace((FloatParameter(name="lr", low=0.0, high=1.0),)),
    scheduler=SchedulerChoice("none", (("max_budget", 9.0),)),
    direction="maximize",
)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    journal = Journal(StatePaths(tmp_path).journal)
    journal.load(Settings())
    reports = (ev.ObjectiveReport(1.0, 2.0), ev.ObjectiveReport(2.0, 3.0), ev.ObjectiveReport(3.0, 1.0))
    journal.append(1, ev.SweepSubmitted(time_s=0.0, sweep=SWEEP))
    journal.append(2, ev.ObjectivesRead(time_s=7.0, job="s-1.0", reports=reports))
    journal.close()
    return tmp_path


@pytest.mark.parametrize("running", [False, True])
def test_the_report_of_a_sweep_is_one_file(offcut: Callable[..., tuple], state: Path, running: bool) -> None:
    lock = StatePaths(state).take_lock() if running else None
    code, out, error = offcut("report", "--sweep", "s", "--state", state, "--json")
    if lock is not None:
        lock.close()
    assert (code, error) == (0, "")
    told = json.loads(out)
    assert told["sweep"]["best"] == {"trial": 0, "value": 3.0, "node_hours": 0.0}
    assert Path(told["report"]) == state / "s-1.html"
    assert Path(told["report"]).read_text().startswith("<!doctype html>")


def test_what_is_wrong_is_one_sentence(offcut: Callable[..., tuple], state: Path, tmp_path: Path) -> None:
    code, _, error = offcut("report", "--sweep", "other", "--state", state)
    assert (code, error.count("There is no sweep called other.")) == (2, 1)
    code, _, error = offcut("report", "--state", tmp_path / "none")
    assert (code, "There is no journal at" in error) == (2, True)
    code, _, error = offcut("report", "--sweep", "s", "--state", state, "--out", tmp_path / "no" / "such.html")
    assert (code, "cannot be written" in error) == (2, True)
