"""The list of commands. A command's module is imported when the command is run, or when help lists all of them."""

from __future__ import annotations

from importlib import import_module

import typer

from offcut.cli.script_command import ScriptCommand

#: The module of `offcut.cli` that has the command, and the function or group of commands there, in the order of help.
_COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "demo"),
    "up": ("up", "up"),
    "submit": ("jobs", "submit"),
    "wait": ("wait", "wait"),
    "status": ("status", "status"),
    "why": ("jobs", "why"),
    "curve": ("curve", "curve"),
    "loss": ("loss", "loss"),
    "change": ("jobs", "change"),
    "pause": ("jobs", "pause"),
    "resume": ("jobs", "resume"),
    "cancel": ("jobs", "cancel"),
    "forget": ("jobs", "forget"),
    "sweep": ("sweeps", "sweep"),
    "sweeps": ("sweeps", "sweeps"),
    "best": ("sweeps", "best"),
    "extend": ("sweeps", "extend"),
    "report": ("report", "report"),
    "logs": ("logs", "logs"),
    "metrics": ("metrics", "metrics"),
    "audit": ("audit", "audit"),
    "node": ("nodes", "node"),
    "release": ("nodes", "release"),
    "page": ("page", "page"),
    "certificate": ("certificate", "certificate"),
    "doctor": ("doctor", "doctor"),
    "journal": ("journal", "journal"),
    "allocate": ("allocate", "allocate"),
    "windows": ("windows", "windows"),
    "queue": ("queue", "queue"),
    "replay": ("replay", "replay"),
    "estimate": ("estimate", "estimate"),
    "profile": ("profile", "profile"),
    "plan": ("plan", "plan"),
}


def register(app: typer.Typer, only: str = "") -> None:
    """Add the command `only` to `app`; if there is no such command, every one, in the order in which help lists them.

    To add all of them takes longer than everything else that a short command does.
    """
    for name in [only] if only in _COMMANDS else _COMMANDS:
        module, attribute = _COMMANDS[name]
        command = getattr(import_module(f"offcut.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, cls=ScriptCommand if name == "submit" else None)(command)
