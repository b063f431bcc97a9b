"""Every `offcut` command that the documentation shows exists, with the options that it is shown with."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from offcut.cli import app, commands

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").rglob("*.*"))]
#: At the start of a line, after a prompt, a comment sign or indentation; up to a comment, a pipe or the line's end.
SHOWN = re.compile(r"^(?:\$ |# |\s+)?(?:\.venv/bin/)?(offcut [a-z][^#\n|]*)", re.MULTILINE)


@pytest.fixture(scope="module")
def root() -> Any:
    if not app.registered_commands:
        commands.register(app)
    return typer.main.get_command(app)


def shown() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = page.read_text() if page.suffix in (".md", ".py", ".toml") else ""
        if page.suffix == ".md":
            text = "\n".join(re.findall(r"^```(?:console|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
            text = text.replace("\\\n", " ")
        found += [(page.name, command.strip()) for command in SHOWN.findall(text)]
    return found


def test_commands_are_found_on_the_pages() -> None:
    pages = {page for page, _ in shown()}
    assert {"README.md", "quickstart.md", "allocation.md", "traces.md", "queue.md", "digits.toml", "digits.py"} <= pages


@pytest.mark.parametrize(("page", "line"), shown())
def test_a_shown_command_exists_with_its_options(root: Any, page: str, line: str) -> None:
    words = shlex.split(line)[1:]
    command = root
    while hasattr(command, "commands"):
        assert words[0] in command.commands, f"{page}: {line}"
        command = command.commands[words.pop(0)]
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    given = words[: words.index("--")] if "--" in words else words
    for word in given:
        if re.match(r"--?[a-z]", word):
            assert word.partition("=")[0] in options, f"{page}: {line}"
