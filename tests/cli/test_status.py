"""`offcut status`: what it shows in terminals of any width, and again and again with `--watch`."""

from __future__ import annotations

import io
from typing import Any

import pytest
from fake_api import FakeClient, job
from fake_api import status as fake_status
from rich.console import Console

from offcut.cli import output, status
from offcut.client import connection
from offcut.errors import UnreachableError

GONE = UnreachableError("No controller answers.")


@pytest.fixture
def shows(monkeypatch):
    """`shows(*JOBS_OF_AN_ANSWER)`: what the API answers, one after another; the last one ends the command as Ctrl-C."""

    def serve(*answers: Any) -> None:
        left = list(answers)
        original = fake_status("plain")

        def get(self: FakeClient, path: str, **_: Any) -> Any:
            if not left:
                raise KeyboardInterrupt
            answer = left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return original | {"jobs": answer} if path == "/v1/status" else answer[0]

        monkeypatch.setattr(FakeClient, "get", get)

    monkeypatch.setattr("offcut.client.controller.Client", FakeClient)
    monkeypatch.setattr(status, "format_clock", lambda _: "12:00:00")
    monkeypatch.setattr(status.time, "sleep", lambda _: None)
    monkeypatch.setattr(connection, "_AGAIN_S", 0.0)
    return serve


@pytest.fixture
def terminal(monkeypatch):
    """`terminal(WIDTH)`: let commands print to a terminal of this width, and return what it gets."""

    def make(width: int, height: int = 60) -> io.StringIO:
        shown = io.StringIO()
        console = Console(
            file=shown, force_terminal=True, color_system=None, width=width, height=height, markup=False, emoji=False
        )
        monkeypatch.setattr(output, "console", console)
        monkeypatch.setattr(status, "console", console)
        return shown

    return make


def running(name: str = "digits-1", **fields: Any) -> dict[str, Any]:
    return job("x") | {"id": name, "state": "running", "sizes": "1:4", "exit_code": None, "loss": 0.1077} | fields


def test_steps_of_all_that_there_will_be_and_the_time_that_is_left(offcut, shows) -> None:
    shows(
        [running(steps=1500, total_steps=6000, time_left_s=150.0), running("b-2", total_steps=None, time_left_s=None)]
    )
    out = offcut("status")[1]
    assert "│ 1,500 of 6,000 │ 2 min │ 0.1077 │" in out
    assert "│ b-2      │ running │    2 │   1:4 │              7 │       │" in out


@pytest.mark.parametrize("width", [60, 70, 80, 120])
def test_a_narrow_terminal_gets_fewer_columns_instead_of_folded_numbers(offcut, shows, terminal, width: int) -> None:
    shown = terminal(width)
    shows([running(steps=12500, total_steps=24_000, time_left_s=3900.0)])
    offcut("status")
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert any("digits-1" in line and "running" in line and "12,500 of 24,000" in line for line in lines)
    assert any("samples/s" in line for line in lines) == (width >= 80)


def test_why_a_job_has_failed_is_said_in_one_line(offcut, shows) -> None:
    reason = "2 failures in a row; the last: ValueError: \x1b[31m[/x] " + "long " * 100
    shows([running(), running("b-2", state="failed", exit_code=3, reason=f"{reason}\nsecond line")])
    out = offcut("status")[1]
    (line,) = (line for line in out.splitlines() if "b-2 has failed" in line)
    assert line.startswith(
        "b-2 has failed with exit code 3: 2 failures in a row; the last: ValueError: \\x1b[31m[/x] long"
    )
    assert line.endswith("…. See: offcut logs b-2")
    assert len(line) < 400


def test_watching_in_a_pipe_prints_a_line_for_each_job_that_runs_or_ends(offcut, shows) -> None:
    end = running(state="failed", exit_code=7, reason="OSError: gone")
    shows([running(), running("old-0", state="finished")], GONE, [running(steps=8)], [end], [end])
    code, out, error = offcut("status", "--watch")
    assert code == 0
    assert out.splitlines() == [
        "12:00:00 digits-1 is running, 2 of 1:4 nodes, step 7 of 70, loss 0.1077, 10 samples/s, 63 s left",
        "12:00:00 digits-1 is running, 2 of 1:4 nodes, step 8 of 70, loss 0.1077, 10 samples/s, 63 s left",
        "12:00:00 digits-1 has failed with exit code 7: OSError: gone",
    ]
    assert "answers again" in error


def test_watching_one_job_ends_with_it(offcut, shows, terminal) -> None:
    shows([running()], [running(state="finished", exit_code=0)])
    code, out, _ = offcut("status", "digits", "--watch")
    assert (code, out.splitlines()[-1]) == (0, "12:00:00 digits-1 is finished.")
    shown = terminal(100)
    shows([running()], [running(state="finished", exit_code=0)])
    assert offcut("status", "digits", "--watch")[0] == 0
    assert "│ finished │" in shown.getvalue()


def test_watching_a_terminal_shows_the_last_answer_while_there_is_none(offcut, shows, terminal) -> None:
    shown = terminal(100, height=12)
    over = [running(f"over-{i}", state="finished", exit_code=0) for i in range(8)]
    shows([*over, running()], GONE)
    assert offcut("status", "--watch", "--interval", "5")[0] == 0
    _, first, second, *_ = shown.getvalue().split("12:00:00, each 5 s. Ctrl-C ends this view.")
    assert "does not answer" not in first
    assert "The controller does not answer: this is what it said last." in second
    top = second.partition("over-0")[0]
    assert "│ digits-1 │ running" in top, "jobs that run are not cut off at the end"


def test_watching_and_a_document_exclude_each_other(offcut, shows) -> None:
    assert offcut("status", "--watch", "--json")[0] == 2


@pytest.mark.parametrize(
    ("loss", "shown"), [(0.10774, "0.1077"), (2.5, "2.5000"), (0.0, "0.0000"), (3.21e-7, "3.21e-07"), (-1.0, "-1.0000")]
)
def test_a_small_loss_is_not_shown_as_nothing(loss: float, shown: str) -> None:
    from offcut.number_format import format_loss

    assert format_loss(loss) == shown
