"""The directive `command-reference`: every command with its help, from the command line itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from offcut.cli import app as offcut
from offcut.cli import commands


class CommandReference(SphinxDirective):
    """One section for each command, in the order of `offcut --help`."""

    def run(self) -> list[nodes.Node]:
        if not offcut.registered_commands:
            commands.register(offcut)
        text = "\n".join(_commands(typer.main.get_command(offcut), "offcut"))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def _commands(group: Any, name: str) -> Iterator[str]:
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{name} {word}")
        elif not command.hidden:
            yield from _command(command, f"{name} {word}")


def _command(command: Any, name: str) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    yield f"## `{name}`"
    yield ""
    yield command.help
    yield ""
    yield "```text"
    yield command.get_usage(context)
    yield "```"
    yield ""
    yield "| | |"
    yield "|---|---|"
    for parameter in command.params:
        record = None if parameter.name == "help" else parameter.get_help_record(context)
        if record is not None:
            yield f"| `{_cell(record[0])}` | {_cell(record[1])} |"
    yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("command-reference", CommandReference)
    return {"parallel_read_safe": True}
