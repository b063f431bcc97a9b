"""`offcut loss`: a job's loss curve, over all resizes and restarts."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from offcut.cli.connection import connect
from offcut.cli.loss_plot import with_axes
from offcut.cli.options import JobArgument, JsonOption, StateOption
from offcut.cli.output import console, line, print_json, text
from offcut.client.logged_values import COLUMNS
from offcut.errors import InputError
from offcut.number_format import format_loss

_HEIGHT = 14


def loss(
    job: JobArgument,
    name: Annotated[
        str | None, typer.Option(help="Show what the script logs under this name, as offcut.torch.log(accuracy=...).")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values instead of a picture.")] = False,
    log: Annotated[bool, typer.Option("--log", help="A logarithmic vertical axis.")] = False,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Show a job's loss curve, also after its end. Up to 4,096 points are kept, evenly spread over the training.

    Examples: `offcut loss digits`, `offcut loss digits --log`, `offcut loss digits --csv > digits.csv`,
    `offcut loss digits --name accuracy`
    """
    if csv and json:
        raise InputError("loss: --csv and --json exclude each other.", next_step="Give one of them.")
    with connect(state) as controller:
        told = controller.job(job).loss(name)
    if json:
        print_json(told)
    elif csv:
        _print_csv(told["points"], name or "loss")
    else:
        _show(told, name or "loss", log=log)


def _print_csv(points: dict[str, list[Any]], name: str) -> None:
    columns = (*COLUMNS, name)
    sys.stdout.write(",".join(columns) + "\n")
    for row in zip(*(points[column] for column in columns), strict=True):
        sys.stdout.write(",".join("nan" if value is None else repr(value) for value in row) + "\n")


def _show(told: dict[str, Any], name: str, *, log: bool) -> None:
    points = told["points"]
    known = [(step, at) for step, at in zip(points["step"], points[name], strict=True) if at is not None]
    if not points["step"]:
        why = " Scripts of mode restart report none." if told["mode"] == "restart" else ""
        line(f"No loss of {told['id']} was recorded.{why}")
        return
    if known:
        last, (least_step, least) = known[-1], min(known, key=lambda point: point[1])
        line(
            text(told["id"], "bold"),
            f": {name} {format_loss(last[1])} at step {last[0]:,}; lowest {format_loss(least)} at step {least_step:,}.",
        )
    _warn_of_gaps(points, name)
    if log and (below := sum(at <= 0 for _, at in known)):
        line(f"{below} points are not greater than 0: a logarithmic axis has no place for them.")
        known = [point for point in known if point[1] > 0]
    if len(known) < 2:
        line("Two points make a curve: look again in a few seconds.") if known else None
        return
    steps, losses = zip(*known, strict=True)
    blocks = not console.options.ascii_only
    for row in with_axes(steps, losses, width=min(console.width, 160), height=_HEIGHT, log=log, blocks=blocks):
        line(row)


def _warn_of_gaps(points: dict[str, list[Any]], name: str) -> None:
    missing = [step for step, at in zip(points["step"], points[name], strict=True) if at is None]
    if missing:
        line(
            text(
                f"At {len(missing)} of {len(points['step'])} points the {name} is not a finite number, "
                f"first at step {missing[0]:,}.",
                "yellow",
            )
        )
