"""A script reports its objective to the file of its trial, and only there; alone it reports nothing."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from offcut.errors import InputError
from offcut.service.objective_files import parse_report
from offcut.torch import max_budget, objective, report_objective, trial_parameters
from offcut.wire.worker_env import ENV_JOB_DIR, ENV_MAX_BUDGET, ENV_PARAMETERS, OBJECTIVES_FILE


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of a trial. Return the file to which it reports."""
    monkeypatch.setenv(ENV_JOB_DIR, str(tmp_path))
    monkeypatch.setenv(ENV_PARAMETERS, '{"lr": 0.1, "layers": 2, "act": "relu", "bias": true}')
    monkeypatch.setenv(ENV_MAX_BUDGET, "27")
    monkeypatch.setattr(objective, "_rank", None)
    return tmp_path / OBJECTIVES_FILE


def test_a_trial_has_its_parameters_and_its_budget(trial: Path) -> None:
    assert trial_parameters() == {"lr": 0.1, "layers": 2, "act": "relu", "bias": True}
    assert max_budget() == 27.0


def test_a_report_is_a_line_that_the_controller_reads(trial: Path) -> None:
    report_objective(0.25, budget=1)
    report_objective(math.nan, budget=2.5)
    first, second = [parse_report(line) for line in trial.read_bytes().splitlines()]
    assert first is not None
    assert second is not None
    assert (first.budget, first.value) == (1.0, 0.25)
    assert second.budget == 2.5
    assert math.isnan(second.value)


def test_only_the_first_rank_reports(trial: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    report_objective(0.25, budget=1)
    assert not trial.exists()
    # A member's own rank counts more than that of a launcher.
    objective.follow_rank(lambda: 0)
    report_objective(0.25, budget=1)
    assert len(trial.read_text().splitlines()) == 1


def test_a_script_that_is_not_a_trial_reports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_JOB_DIR, str(tmp_path))
    monkeypatch.delenv(ENV_PARAMETERS, raising=False)
    report_objective(0.25, budget=1)
    assert list(tmp_path.iterdir()) == []
    assert trial_parameters() == {}
    assert max_budget() is None


@pytest.mark.parametrize("budget", [0, -1, math.nan])
def test_a_budget_that_is_not_greater_than_0_is_refused(budget: float) -> None:
    with pytest.raises(InputError, match="budget must be greater than 0"):
        report_objective(0.25, budget=budget)
