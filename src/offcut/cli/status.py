"""`offcut status`: jobs and nodes, once or again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from offcut.cli.connection import connect
from offcut.cli.job_end import end_sentence
from offcut.cli.options import JsonOption, StateOption
from offcut.cli.output import Sheet, console, line, print_json, print_table, sentence, text
from offcut.cli.tables import cluster_lines, job_line, job_table, node_table, reason_lines, task_lines
from offcut.client.connection import Connection
from offcut.client.job import has_ended
from offcut.errors import InputError, UnreachableError
from offcut.number_format import format_clock

#: No more jobs that have ended are shown, unless all are asked for.
_ENDED_SHOWN = 10

Shown = dict[str, Any]


def status(
    job: Annotated[str | None, typer.Argument(help="Only this job.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every job that has ended, not only the last ten.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="With --watch: seconds from one to the next.")] = 2.0,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Show jobs and nodes. `--json` shows every job since the beginning.

    With `--watch`, a terminal is redrawn in place; a pipe or file gets one line for each job that runs or ends. Of one
    job it ends with the job.

    Examples: `offcut status`, `offcut status --all`, `offcut status digits --watch`
    """
    if json and watch:
        raise InputError("status: --json prints one document, --watch many.", next_step="Give one of them.")
    with connect(state) as controller:

        def ask() -> Shown:
            if job is None:
                return controller.status(None if every or json else _ENDED_SHOWN)
            return {"jobs": [controller.job(job).status()]}

        if watch:
            with suppress(KeyboardInterrupt):
                in_place = console.is_terminal and not console.is_dumb_terminal
                if in_place:
                    _watch_terminal(ask, interval, only=job is not None)
                else:
                    _watch_pipe(ask, controller.connection, interval, only=job is not None)
            return
        shown = ask()
    if json:
        print_json(shown if job is None else shown["jobs"][0])
        return
    for part in _parts(shown):
        if isinstance(part, Sheet):
            print_table(part)
        else:
            line(part)


def _parts(shown: Shown) -> list[Sheet | Text]:
    """Return what is shown, from top to bottom: tables and sentences. Of one job that is the job alone."""
    parts: list[Sheet | Text] = [job_table(shown["jobs"]), *reason_lines(shown["jobs"])]
    if "nodes" not in shown:
        return parts
    if shown["left_out"]:
        parts.append(text(f"{shown['left_out']} more jobs have ended; see them with: offcut status --all"))
    return [*parts, node_table(shown["nodes"]), *map(sentence, _remarks(shown))]


def _remarks(shown: Shown) -> list[str | Text]:
    """Return what there is to say of the cluster and of the controller itself."""
    lines = list(cluster_lines(shown["cluster"]))
    lines += [
        f"{node['name']} is set aside until {format_clock(node['until_s'])}: {node['reason']}"
        for node in shown["aside"]
    ]
    lines += [f"The journal at the start: {remark}" for remark in shown.get("journal", ())]
    lines += [
        f"Event {event['event_id']} ({event['kind']}) could not be answered: {event['reason']}"
        for event in shown["skipped"][-3:]
    ]
    lines += task_lines(shown["tasks"])
    if shown.get("lease_uncertain"):
        lines.append("No node is claimed: the shared directory does not answer, and another controller may have it.")
    if not shown["claiming"]:
        lines.append("Claiming is off; turn it on with: offcut release --undo")
    return lines


def _watch_terminal(ask: Callable[[], Shown], interval_s: float, *, only: bool) -> None:
    """Redraw the terminal in place; of one job (`only`) until it has ended. While no one answers, the last is shown."""
    from rich.live import Live

    shown, trouble = ask(), ""
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        while True:
            heading = f"{format_clock(time.time())}, each {interval_s:g} s. Ctrl-C ends this view."
            top: list[RenderableType] = [text(heading, "dim"), *([text(trouble, "yellow")] if trouble else [])]
            # Those that run come first: what does not fit into the terminal is cut off at its end.
            first = shown | {"jobs": sorted(shown["jobs"], key=has_ended)}
            live.update(Group(*top, *_parts(first)), refresh=True)
            if only and has_ended(shown["jobs"][0]):
                return
            time.sleep(interval_s)
            try:
                shown, trouble = ask(), ""
            except UnreachableError:
                trouble = "The controller does not answer: this is what it said last."


def _watch_pipe(ask: Callable[[], Shown], connection: Connection, interval_s: float, *, only: bool) -> None:
    """Print one line for each job that has not ended, and one when a job ends."""
    known: dict[str, bool] | None = None
    shown = ask()
    while True:
        now = format_clock(time.time())
        for job in shown["jobs"]:
            if not has_ended(job):
                line(f"{now} {job_line(job)}")
            elif only or (known is not None and not known.get(job["id"], False)):
                line(f"{now} {end_sentence(job)}")
        sys.stdout.flush()
        known = {job["id"]: has_ended(job) for job in shown["jobs"]}
        if only and has_ended(shown["jobs"][0]):
            return
        time.sleep(interval_s)
        shown = connection.ask_again(ask)
