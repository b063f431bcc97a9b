"""Commands about nodes: release or forgive them, or act as the local cluster's queue."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from offcut.cli.connection import connect
from offcut.cli.options import JsonOption, StateOption
from offcut.cli.output import line, print_json
from offcut.errors import InputError

NamesArgument = Annotated[list[str], typer.Argument(help="Names of nodes.")]

node = typer.Typer(help="Forgive nodes; act as the local cluster's queue.", no_args_is_help=True)


@node.command("want")
def want(names: NamesArgument, state: StateOption = None, json: JsonOption = False) -> None:
    """Let the queue want nodes. Example: `offcut node want n03`"""
    with connect(state) as controller:
        _show(controller.want(names), names, json, "The queue wants")


@node.command("offer")
def offer(names: NamesArgument, state: StateOption = None, json: JsonOption = False) -> None:
    """Let the queue leave nodes idle. Example: `offcut node offer n03`"""
    with connect(state) as controller:
        _show(controller.offer(names), names, json, "The queue leaves idle")


@node.command("forgive")
def forgive(
    names: Annotated[list[str] | None, typer.Argument(help="Names of nodes.")] = None,
    all_nodes: Annotated[bool, typer.Option("--all", help="Every node.")] = False,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Claim nodes again that were set aside because starts or pilots failed there, or released by hand.

    Examples: `offcut node forgive n03`, `offcut node forgive --all`
    """
    if bool(names) + all_nodes != 1:
        raise InputError("node forgive: name nodes, or give --all.", next_step="See: offcut node forgive --help")
    with connect(state) as controller:
        shown = controller.forgive(names or [])
    if json:
        print_json(shown)
    else:
        line("Every node may be claimed again." if all_nodes else f"May be claimed again: {', '.join(names or [])}")


def _show(answer: dict[str, Any], names: list[str], json: bool, words: str) -> None:
    if json:
        print_json(answer)
    else:
        line(f"{words}: {', '.join(names)}")


def release(
    names: Annotated[list[str] | None, typer.Argument(help="Names of nodes.")] = None,
    all_nodes: Annotated[bool, typer.Option("--all", help="Every node; and claim none again.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Claim nodes again after --all.")] = False,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Release nodes to the queue now.

    Examples: `offcut release n03`, `offcut release --all`, `offcut release --undo`
    """
    if bool(names) + all_nodes + undo != 1:
        raise InputError("release: name nodes, or give --all, or --undo.", next_step="See: offcut release --help")
    with connect(state) as controller:
        shown = controller.claim_again() if undo else controller.release(names or [])
    if json:
        print_json(shown)
    elif undo:
        line("Claiming idle nodes again.")
    else:
        line("Every node is being released." if all_nodes else f"Released: {', '.join(names or [])}")
