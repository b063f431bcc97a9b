"""Commands about sweeps: sweep, sweeps, best, extend. `pause`, `resume` and `cancel` are those of jobs."""

from __future__ import annotations

import json as json_format
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from offcut.cli.connection import connect
from offcut.cli.options import JsonOption, StateOption
from offcut.cli.output import Sheet, line, print_json, print_table, remark, text
from offcut.cli.sweep_follow import best_words, progress_sentence
from offcut.cli.sweep_follow import follow as follow_sweep
from offcut.errors import InputError
from offcut.number_format import format_count, format_loss

SweepArgument = Annotated[str, typer.Argument(help="The sweep's id or name.")]


def sweep(
    file: Annotated[Path, typer.Argument(help="A sweep file: the search space, the job, the scheduler.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print its progress until it has ended; exit 1 if it failed.")
    ] = False,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Search over the parameters of a training job: each trial is a malleable job.

    Examples: `offcut sweep digits.toml`, `offcut sweep digits.toml --follow`
    """
    from offcut.wire.sweepspec import read_sweep_file

    if json and follow:
        raise InputError("sweep: --json is one document, and --follow has no end.", next_step="Give one of them.")
    spec = read_sweep_file(file)
    with connect(state) as controller:
        shown = controller.post_sweep(spec)
        if follow:
            remark(f"Submitted {shown['id']}. Ctrl-C leaves it alone.")
            with suppress(KeyboardInterrupt):
                raise typer.Exit(follow_sweep(controller.sweep(shown["id"]).follow()))
            return
    if json:
        print_json(shown)
    else:
        line("Submitted ", text(shown["id"], "bold"), f". Follow it with: offcut sweeps {shown['id']}")


def sweeps(
    name: Annotated[str | None, typer.Argument(help="Only this sweep, with each of its trials.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print the sweep's progress until it has ended; exit 1 if it failed.")
    ] = False,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Show sweeps, or the trials of one.

    Examples: `offcut sweeps`, `offcut sweeps digits`, `offcut sweeps digits --follow`
    """
    if follow and (json or name is None):
        raise InputError("sweeps: --follow needs a sweep, and excludes --json.", next_step="Name one sweep.")
    with connect(state) as controller:
        if follow and name is not None:
            with suppress(KeyboardInterrupt):
                raise typer.Exit(follow_sweep(controller.sweep(name).follow()))
        elif name is None:
            _show(controller.sweeps(), _print_sweeps, json)
        else:
            _show(controller.sweep(name).status(), _print_trials, json)


def _show(shown: Any, show: Callable[[Any], None], json: bool) -> None:
    if json:
        print_json(shown)
    else:
        show(shown)


def _print_sweeps(found: list[dict[str, Any]]) -> None:
    if not found:
        line("There is no sweep. Submit one with: offcut sweep SWEEP.toml")
        return
    sheet = Sheet("sweep", "state", "started", "ended", "of", "best", "trial", right=("started", "ended", "of", "best"))
    for each in found:
        best = each["best"]
        sheet.add_row(
            each["id"],
            each["state"],
            str(each["started"]),
            str(each["ended"]),
            str(each["max_trials"]),
            "" if best is None else format_loss(best["value"]),
            "" if best is None else str(best["trial"]),
        )
    print_table(sheet)
    for each in found:
        if each["reason"]:
            line(f"{each['id']}: {each['reason']}.")


def _print_trials(shown: dict[str, Any]) -> None:
    line(progress_sentence(shown))
    if shown["reason"]:
        line(f"{shown['reason']}.", indent="  ")
    sheet = Sheet("trial", "state", "budget", "value", "parameters", right=("budget", "value"))
    for trial in shown["each"]:
        parameters = trial["parameters"] or {}
        sheet.add_row(
            str(trial["trial"]),
            trial["state"],
            "" if trial["budget"] is None else format_count(trial["budget"]),
            "" if trial["value"] is None else format_loss(trial["value"]),
            ", ".join(f"{name}={_short(value)}" for name, value in parameters.items()),
        )
    print_table(sheet)
    for trial in shown["each"]:
        if trial["state"] == "failed":
            line(f"Trial {trial['trial']} failed: {trial['reason']}")


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def best(
    name: SweepArgument,
    toml: Annotated[bool, typer.Option("--toml", help="Print the parameters alone, as lines of TOML.")] = False,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Show the best trial of a sweep so far, and its parameters.

    Examples: `offcut best digits`, `offcut best digits --toml > best.toml`
    """
    if json and toml:
        raise InputError("best: --json and --toml exclude each other.", next_step="Give one of them.")
    with connect(state) as controller:
        shown = controller.sweep(name).status()
    found = shown["best"]
    if found is None:
        raise InputError(f"No trial of {shown['id']} has reported its objective yet.", next_step="Ask again later.")
    if json:
        print_json(found)
    elif toml:
        for parameter, value in found["parameters"].items():
            # JSON's numbers, strings and booleans are TOML's; so are quoted keys.
            line(f"{json_format.dumps(parameter)} = {json_format.dumps(value)}")
    else:
        line(f"{shown['id']}: {best_words(shown)}")
        for parameter, value in found["parameters"].items():
            line(f"{parameter} = {value}", indent="  ")


def extend(
    name: SweepArgument,
    trials: Annotated[int | None, typer.Option(help="At most this many trials in all.")] = None,
    budget: Annotated[float | None, typer.Option(help="At most this much budget in all.")] = None,
    node_hours: Annotated[float | None, typer.Option(help="At most this many node-hours in all.")] = None,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Let a sweep run longer, also one that has finished: its halted trials may be promoted then.

    Example: `offcut extend digits --trials 200`
    """
    if trials is None and budget is None and node_hours is None:
        raise InputError("extend: nothing to change.", next_step="Give --trials, --budget or --node-hours.")
    with connect(state) as controller:
        shown = controller.sweep(name).extend(max_trials=trials, total_budget=budget, max_node_hours=node_hours)
    if json:
        print_json(shown)
    else:
        line(progress_sentence(shown))
