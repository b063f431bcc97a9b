"""`offcut report`: write the report of a controller's run, or of one sweep, as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offcut.cli.options import JsonOption, StateOption
from offcut.cli.output import line, print_json

if TYPE_CHECKING:
    from offcut.service.paths import StatePaths
    from offcut.store.journal import Journal


def report(
    sweep: Annotated[str | None, typer.Option(help="The id or name of a sweep: the report is about this one.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write. Default: report.html or SWEEP.html in the state directory.")
    ] = None,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Write a report from the journal as one HTML file: of the controller's run so far, or of one sweep.

    The controller may be running or not. The report of a sweep has its best value against node-hours, its rungs, its
    parameters and their importance, and its trials on the nodes.

    Examples: `offcut report`, `offcut report --sweep digits --out digits.html`
    """
    from offcut.errors import InputError
    from offcut.service.paths import StatePaths, default_state_dir
    from offcut.store.journal import Journal
    from offcut.store.repair import copied

    paths = StatePaths((state or default_state_dir()).absolute())
    if not paths.journal.is_file():
        raise InputError(f"There is no journal at {paths.journal}.", next_step="Name its directory with --state.")
    with copied(paths.journal, live=_controller_runs(paths)) as copy:
        journal = Journal(copy)
        try:
            name, document, summary = _of_run(journal, paths) if sweep is None else _of_sweep(journal, sweep)
        finally:
            journal.close()
    path = out or paths.root / f"{name}.html"
    try:
        path.write_text(document, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}.", next_step="Name a file with --out.") from None
    if json:
        print_json({"report": str(path), **summary})
    else:
        line(f"Report: {path}")


def _controller_runs(paths: StatePaths) -> bool:
    from offcut.errors import StoreError

    try:
        lock = paths.take_lock()
    except StoreError:
        return True
    with lock:
        return False


def _of_run(journal: Journal, paths: StatePaths) -> tuple[str, str, dict[str, Any]]:
    """Return the name of the report's file, the page, and what --json has of it."""
    from offcut.report.run_report import run_page

    return "report", run_page(journal, paths), {}


def _of_sweep(journal: Journal, name: str) -> tuple[str, str, dict[str, Any]]:
    """Return the name of the report's file, the page, and what --json has of it. InputError if there is no sweep."""
    from offcut.report.sweep_page import sweep_page, sweep_summary
    from offcut.report.sweep_record import SweepRecorder
    from offcut.service.sweep_lookup import find

    sweep_id = find(journal.fold(), name).search.sweep.id
    recorder = SweepRecorder(sweep_id)
    for state, event in journal.replay():
        recorder.observe(state, event)
    record = recorder.record()
    assert record is not None, "a sweep of the last state is in the state before, too"
    return sweep_id, sweep_page(record), {"sweep": sweep_summary(record)}
