"""`offcut sweep --follow` tells what happens to trials once each, and draws a bar on a terminal only."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from offcut.cli import output
from offcut.cli.sweep_follow import follow
from offcut.client.sweep import SweepEvent


def status(trials: dict[str, int], best: dict[str, Any] | None = None, state: str = "running") -> dict[str, Any]:
    return {"id": "s-1", "state": state, "trials": trials, "max_trials": 200, "best": best, "reason": ""}


def row(number: int, state: str, budget: float | None, value: float | None, reason: str = "") -> dict[str, Any]:
    return {"trial": number, "state": state, "budget": budget, "value": value, "reason": reason}


def story() -> Iterator[SweepEvent]:
    """Yield what happens in a sweep of 100 trials: one fails, one reports NaN, the others are better and better."""
    first = status({"running": 1})
    yield SweepEvent(kind="state", sweep=first)
    best: dict[str, Any] = {}
    for number in range(1, 101):
        best = {"trial": number, "value": 1 / (1 + number // 50), "budget": 3.0, "parameters": {"lr": 0.012345678}}
        now = status({"running": 1, "completed": number}, best)
        if number == 7:
            yield SweepEvent(kind="trial", sweep=now, trial=row(7, "running", 2.0, None))
            yield SweepEvent(kind="trial", sweep=now, trial=row(7, "running", 3.0, None))
        elif number == 8:
            yield SweepEvent(kind="trial", sweep=now, trial=row(8, "failed", 1.0, 2.0, "ValueError: [red]no\n"))
            yield SweepEvent(kind="trial", sweep=now, trial=row(8, "failed", 1.0, 2.0, "ValueError: [red]no\n"))
        elif number % 50 == 0:
            yield SweepEvent(kind="best", sweep=now, trial=best)
        else:
            yield SweepEvent(kind="trial", sweep=now, trial=row(number, "completed", 3.0, 1.0))
    yield SweepEvent(kind="state", sweep=status({"completed": 99, "failed": 1}, best, "finished"))


def printed(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, width: int = 80) -> tuple[int, str]:
    out = io.StringIO()
    console = Console(file=out, markup=False, emoji=False, highlight=False, force_terminal=terminal, width=width)
    monkeypatch.setattr(output, "console", console)
    return follow(story()), out.getvalue()


def test_a_pipe_gets_few_lines_and_each_failure_once(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = printed(monkeypatch, terminal=False)
    lines = text.splitlines()
    assert code == 0
    assert lines.count("trial 8 has failed: ValueError: [red]no") == 1
    assert lines.count("trial 7: its objective is NaN or infinite at budget 2: it counts as the worst") == 1
    assert "best 0.5000: trial 50 at budget 3 (lr=0.01235)" in lines
    assert sum("is finished" in line for line in lines) == 1
    assert lines[-1] == "s-1 is finished: 99 completed, 1 failed of 200; best 0.3333 (trial 100 at budget 3)"
    progress = [line for line in lines if line.startswith("s-1 is running")]
    assert 10 <= len(progress) <= 12, progress
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [40, 80])
def test_a_terminal_gets_a_bar_that_goes_when_the_sweep_ends(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    code, text = printed(monkeypatch, terminal=True, width=width)
    assert code == 0
    assert "of 200 trials" in text
    assert "s-1 is running" not in text
    assert "has failed\x1b[0m: ValueError: [red]no" in text
    assert "\x1b[2K" in text, "the bar is erased"


def test_a_sweep_that_fails_ends_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(output, "console", Console(file=out, markup=False, highlight=False, width=200))
    failed = status({"failed": 3}, None, "failed") | {"reason": "its first 3 trials failed"}
    assert follow([SweepEvent(kind="state", sweep=failed)]) == 1
    assert out.getvalue().endswith("no objective reported yet\ns-1: its first 3 trials failed.\n")
