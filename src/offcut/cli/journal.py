"""`offcut journal`: check a controller's journal, and save what can be read of a damaged one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from offcut.cli.options import JsonOption, StateOption
from offcut.cli.output import line, print_json

if TYPE_CHECKING:
    from offcut.service.paths import StatePaths
    from offcut.store.repair import Report

journal = typer.Typer(help="Check and repair the journal of a controller that does not run.", no_args_is_help=True)


def _paths(state: Path | None) -> StatePaths:
    from offcut.service.paths import StatePaths, default_state_dir

    return StatePaths((state or default_state_dir()).absolute())


def _must_exist(paths: StatePaths) -> None:
    from offcut.errors import InputError

    if not paths.journal.is_file():
        raise InputError(f"There is no journal at {paths.journal}.", next_step="Name its directory with --state.")


@journal.command("check")
def check(state: StateOption = None, json: JsonOption = False) -> None:
    """Read the whole journal and report its faults. It is not changed.

    Exits 0 if it is whole, 1 if it is damaged, 2 if there is none or a newer offcut wrote it.

    Example: `offcut journal check`
    """
    from offcut.errors import StoreError
    from offcut.store import repair as repairs

    paths = _paths(state)
    _must_exist(paths)
    try:
        lock = paths.take_lock()
    except StoreError:  # a controller runs
        _show(repairs.check(paths.journal, live=True), json=json)
    else:
        with lock:
            _show(repairs.check(paths.journal, live=False), json=json)


@journal.command("repair")
def repair(state: StateOption = None, json: JsonOption = False) -> None:
    """Write a new journal from all that can be read of a damaged one. The damaged files are kept beside it.

    Exits 0 if a controller can start from it now, 1 if nothing could be saved, 2 if a controller runs.

    Example: `offcut journal repair`
    """
    from datetime import datetime

    from offcut.store import repair as repairs

    paths = _paths(state)
    _must_exist(paths)
    with paths.take_lock():
        _show(repairs.repair(paths.journal, datetime.now()), json=json)


def _show(report: Report, *, json: bool) -> None:
    if json:
        print_json({**asdict(report), "whole": not report.faults})
    else:
        snapshot = "" if report.snapshot is None else f", a snapshot after event {report.snapshot}"
        line(f"{report.journal}: version {report.version}, {report.events} events{snapshot}")
        if report.jobs:
            line("Jobs: " + ", ".join(f"{count} {phase}" for phase, count in sorted(report.jobs.items())))
        if report.skipped:
            numbers = ", ".join(map(str, report.skipped))
            line(f"Events that could not be answered and are passed over: {numbers}")
        for sentence in (*report.faults, *report.words):
            line(sentence)
        if not report.faults:
            line("It is whole.")
    if report.faults and report.backup is None:
        raise typer.Exit(1)
