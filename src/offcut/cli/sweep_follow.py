"""`offcut sweep --follow`: a progress bar on a terminal, and lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from offcut.cli import output
from offcut.cli.output import line, text
from offcut.client.sweep import SweepEvent
from offcut.number_format import format_count, format_duration, format_loss

_ACTIVE = ("asked", "ready", "running")
#: Where the output is not a terminal, a line of progress is printed whenever this share of the trials is done, or after
#: this many seconds if anything has changed.
_SHARE, _EVERY_S = 0.05, 30.0


def progress_sentence(shown: dict[str, Any]) -> str:
    """Return how far a sweep is, as one sentence without a full stop."""
    trials = _trials(shown) or "no trial yet"
    hours = ""
    if shown.get("max_node_hours") is not None:
        hours = f"; {shown['node_hours']:.3g} of {shown['max_node_hours']:g} node-hours"
    why = f" ({shown['reason']})" if shown["state"] == "paused" and shown["reason"] else ""
    return f"{shown['id']} is {shown['state']}{why}: {trials} of {shown['max_trials']}{hours}; {best_words(shown)}"


def best_words(shown: dict[str, Any]) -> str:
    """Return the best value of a sweep so far, in words."""
    best = shown["best"]
    if best is None:
        return "no objective reported yet"
    return f"best {format_loss(best['value'])} (trial {best['trial']} at budget {format_count(best['budget'])})"


def follow(events: Iterable[SweepEvent]) -> int:
    """Show a sweep's progress until it has ended. Return the exit code: 0 if it has finished, else 1.

    Another best trial, trials that fail and objectives that are not numbers are lines of their own.

    Args:
        events: what happens in the sweep.
    """
    shown: dict[str, Any] = {}
    lines = _TrialLines()
    with _Screen() if output.console.is_terminal else _Pipe() as progress:
        for event in events:
            if event.sweep is not shown:
                progress.show(event.sweep)
                shown = event.sweep
            lines.tell(event)
    line(progress_sentence(shown))
    if shown["reason"]:
        line(f"{shown['id']}: {shown['reason']}.")
    return 0 if shown["state"] == "finished" else 1


def _trials(shown: dict[str, Any]) -> str:
    return ", ".join(f"{count} {phase}" for phase, count in shown["trials"].items())


def _done(shown: dict[str, Any]) -> int:
    """Return how many trials are decided upon; a halted one may be promoted later."""
    return sum(count for phase, count in shown["trials"].items() if phase not in _ACTIVE)


class _TrialLines:
    """Prints what happens to trials: once for each."""

    def __init__(self) -> None:
        self._best: int | None = None
        self._failed: set[int] = set()
        self._not_numbers: set[int] = set()

    def tell(self, event: SweepEvent) -> None:
        trial = event.trial
        if trial is None:
            return
        number = trial["trial"]
        if event.kind == "best":
            if number == self._best:
                return  # it trains on, and the progress tells its value
            self._best = number
            parameters = ", ".join(f"{name}={_short(value)}" for name, value in trial["parameters"].items())
            line(
                text(f"best {format_loss(trial['value'])}", "bold green"),
                f": trial {number} at budget {format_count(trial['budget'])} ({parameters})",
            )
        elif trial["state"] == "failed" and number not in self._failed:
            self._failed.add(number)
            reason = " ".join(str(trial["reason"]).split())
            line(text(f"trial {number} has failed", "bold red"), f": {reason}")
        elif trial["budget"] is not None and trial["value"] is None and number not in self._not_numbers:
            self._not_numbers.add(number)
            line(
                text(f"trial {number}", "yellow"),
                f": its objective is NaN or infinite at budget {format_count(trial['budget'])}: it counts as the worst",
            )


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class _Pipe:
    """Prints lines of progress, few enough for a log."""

    def __init__(self) -> None:
        self._printed: dict[str, Any] = {}
        self._printed_s = 0.0

    def __enter__(self) -> _Pipe:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, shown: dict[str, Any]) -> None:
        before = self._printed
        if before:
            step = max(1.0, _SHARE * shown["max_trials"])
            changed = shown["state"] != before["state"] and shown["state"] in ("running", "paused")  # not its end
            due = changed or abs(_done(shown) - _done(before)) >= step
            waited = time.monotonic() - self._printed_s >= _EVERY_S and shown["trials"] != before["trials"]
            if not due and not waited:
                return
        self._printed, self._printed_s = shown, time.monotonic()
        line(progress_sentence(shown))


class _Screen:
    """Keeps two lines at the bottom of the terminal: a bar, and what the trials do."""

    def __init__(self) -> None:
        self._shown: dict[str, Any] = {}
        self._done = 0
        self._began_s = time.monotonic()
        self._live = Live(console=output.console, get_renderable=self._picture, transient=True, refresh_per_second=4)

    def __enter__(self) -> _Screen:
        self._live.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._live.__exit__(*exception)

    def show(self, shown: dict[str, Any]) -> None:
        self._shown = shown
        # A halted trial that is promoted would let the bar go back.
        self._done = max(self._done, _done(shown))

    def _picture(self) -> Group | Text:
        shown = self._shown
        if not shown:
            return Text("")
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(ratio=1)
        grid.add_column(no_wrap=True, justify="right")
        grid.add_row(
            text(shown["id"], "bold"),
            ProgressBar(total=shown["max_trials"], completed=self._done),
            f"{self._done:,} of {shown['max_trials']:,} trials, {format_duration(time.monotonic() - self._began_s)}",
        )
        state = "" if shown["state"] == "running" else f"{shown['state']}: "
        below = text(f"{state}{_trials(shown) or 'no trial yet'}; {best_words(shown)}")
        below.no_wrap, below.overflow = True, "ellipsis"
        return Group(grid, below)
