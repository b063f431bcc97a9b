"""`offcut doctor`: checks what offcut needs on this machine, or what a site's Slurm allows."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from offcut.cli.options import JsonOption, StateOption
from offcut.cli.output import Sheet, print_json, print_table, text
from offcut.errors import OffcutError

Verdict = Literal["good", "note", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    verdict: Verdict
    found: str
    #: What to do about it; empty if nothing.
    next_step: str = ""


def doctor(
    state: StateOption = None,
    cluster: Annotated[
        Literal["local", "slurm"], typer.Option(help="'slurm': what this site's Slurm allows, and which mode fits.")
    ] = "local",
    json: JsonOption = False,
) -> None:
    """Check what offcut needs on this machine, or what a site's Slurm allows; exit 1 if something is missing.

    Examples: `offcut doctor`, `offcut doctor --cluster slurm`
    """
    from offcut.service.paths import StatePaths, default_state_dir

    paths = StatePaths((state or default_state_dir()).absolute())
    checks: list[Callable[[], Finding]] = [
        _python,
        lambda: _package("torch", needed_for="training: pip install 'offcut[torch]'"),
        lambda: _package("scikit-learn", needed_for="the demo: pip install 'offcut[demo]'"),
        _cores,
        _loopback,
        lambda: _directory(paths.root),
        lambda: _key(paths.agent_key),
        lambda: _controller(paths.socket),
    ]
    findings = _slurm() if cluster == "slurm" else [check() for check in checks]
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        table = Sheet("what", "", "found", "what to do")
        marks = {"good": text("good", "green"), "note": text("note", "yellow"), "bad": text("bad", "bold red")}
        for finding in findings:
            table.add_row(finding.what, marks[finding.verdict], finding.found, finding.next_step)
        print_table(table)
    if any(finding.verdict == "bad" for finding in findings):
        raise typer.Exit(1)


def _slurm() -> list[Finding]:
    import asyncio

    from offcut.cluster.slurm.commands import Commands
    from offcut.cluster.slurm.site_survey import rules_fact, survey_or_fact

    facts = [*asyncio.run(survey_or_fact(Commands(20.0))), asyncio.run(rules_fact())]
    return [Finding(fact.what, fact.verdict, fact.found, fact.next_step) for fact in facts]


def _python() -> Finding:
    found = f"Python {platform.python_version()} on {platform.system()} {platform.release()}"
    if platform.system() != "Linux":
        return Finding("system", "bad", found, "offcut runs on Linux: it relies on /proc, pidfd and prctl.")
    return Finding("system", "good" if sys.version_info >= (3, 11) else "bad", found)


def _package(name: str, *, needed_for: str) -> Finding:
    try:
        return Finding(name, "good", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "note", "not installed", f"Needed for {needed_for}")


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0))
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found = f"{cores} cores, {memory_gib:.0f} GiB"
    if cores < 2:
        return Finding("machine", "note", found, "Virtual nodes share one core: expect slow steps.")
    return Finding("machine", "good", found)


def _loopback() -> Finding:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            return Finding("loopback", "good", f"port {server.getsockname()[1]} could be bound")
    except OSError as error:
        return Finding("loopback", "bad", str(error), "Agents reach the controller over 127.0.0.1.")


def _directory(root: Path) -> Finding:
    from offcut.process.unix_socket import check_socket_path

    nearest = next(path for path in (root, *root.parents) if path.exists())
    try:
        check_socket_path(root / "cluster" / "workers.sock")
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except (OffcutError, OSError) as error:
        return Finding("state directory", "bad", f"{root}: {error}", "Choose another with --state.")
    free_gib = shutil.disk_usage(nearest).free / 2**30
    verdict: Verdict = "good" if free_gib >= 1 else "note"
    return Finding(
        "state directory",
        verdict,
        f"{root}, {free_gib:.0f} GiB free",
        "" if free_gib >= 1 else "Checkpoints need room.",
    )


def _key(path: Path) -> Finding:
    from offcut.wire import tokens

    if not path.exists():
        return Finding("agents' key", "good", "none yet; the controller makes one")
    try:
        tokens.read(path)
    except OffcutError as error:
        return Finding("agents' key", "bad", error.what, error.next_step)
    return Finding("agents' key", "good", "readable by its owner only")


def _controller(control_socket: Path) -> Finding:
    from offcut.wire.client import Client

    with Client(control_socket, timeout_s=5.0) as client:
        try:
            status = client.get("/v1/status")
        except OffcutError:
            return Finding("controller", "note", "none answers here", "Start one with: offcut up")
    held = sum(node["phase"] == "up" for node in status["nodes"])
    return Finding("controller", "good", f"{len(status['jobs'])} jobs, {len(status['nodes'])} nodes, {held} held")
