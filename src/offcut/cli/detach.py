"""`offcut up --detach`: the controller in the background, in a session of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import typer

from offcut.cli.output import print_json
from offcut.service.paths import StatePaths

#: How much of the log is shown when the controller did not start, and no sentence of it says why.
_LAST_LINES = 10


def start_detached(root: Path, *, json: bool) -> None:
    """Run this command again without `--detach`; return when the controller is ready.

    Exits with the controller's own exit code, and with what it said, where it does not come up.
    """
    paths = StatePaths(root)
    paths.prepare()
    log = root / "controller.log"
    reading, writing = os.pipe()
    arguments = [word for word in sys.argv[1:] if word != "--detach"]
    with open(log, "ab", opener=_private) as output:
        begins = output.tell()
        controller = subprocess.Popen(
            [sys.executable, "-m", "offcut", *arguments, "--ready-fd", str(writing)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=(writing,),
        )
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe:
            ready = pipe.readline()
    except KeyboardInterrupt:
        controller.terminate()
        raise
    if not ready:
        _show_failure(log, begins)
        raise typer.Exit(controller.wait() or 1)
    if json:
        print_json({"pid": controller.pid, "log": str(log), "state": str(root)})
    else:
        typer.echo(f"The controller runs as process {controller.pid}. Stop it with: kill {controller.pid}")
        typer.echo(f"Its log is {log}")


def say_ready(descriptor: int | None) -> Callable[[], None]:
    """What a detached controller calls once it is ready."""

    def say() -> None:
        if descriptor is not None:
            with suppress(OSError):
                os.write(descriptor, b"ready\n")
                os.close(descriptor)

    return say


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _show_failure(log: Path, begins: int) -> None:
    with log.open("rb") as file:
        file.seek(begins)
        lines = file.read().decode(errors="replace").splitlines()
    sentences = [line for line in lines if line.startswith("offcut: ")]
    for line in sentences or lines[-_LAST_LINES:]:
        typer.echo(line, err=True)
    typer.echo(f"offcut: The controller did not start; its log is {log}", err=True)
