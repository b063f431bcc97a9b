"""Registers every command."""

from __future__ import annotations

import typer

from offcut.cli import allocate, estimate, jobs, nodes, queue, replay, up, windows
from offcut.cli.certificate import certificate
from offcut.cli.curve import curve
from offcut.cli.demo import demo
from offcut.cli.doctor import doctor
from offcut.cli.journal import journal
from offcut.cli.logs import logs
from offcut.cli.plan import plan
from offcut.cli.profile import profile
from offcut.cli.script_command import ScriptCommand


def register(app: typer.Typer) -> None:
    """Add every command to `app`, in the order in which help lists them."""
    app.command("demo")(demo)
    app.command("up")(up.up)
    app.command("submit", cls=ScriptCommand)(jobs.submit)
    app.command("status")(jobs.status)
    app.command("why")(jobs.why)
    app.command("curve")(curve)
    app.command("change")(jobs.change)
    app.command("pause")(jobs.pause)
    app.command("resume")(jobs.resume)
    app.command("cancel")(jobs.cancel)
    app.command("forget")(jobs.forget)
    app.command("logs")(logs)
    app.add_typer(nodes.node, name="node")
    app.command("release")(nodes.release)
    app.command("certificate")(certificate)
    app.command("doctor")(doctor)
    app.add_typer(journal, name="journal")
    app.command("allocate")(allocate.allocate)
    app.command("windows")(windows.windows)
    app.command("queue")(queue.queue)
    app.command("replay")(replay.replay)
    app.command("estimate")(estimate.estimate)
    app.command("profile")(profile)
    app.command("plan")(plan)
