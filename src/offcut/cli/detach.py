"""`offcut up --detach`: the controller in the background, in a session of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from offcut.cli.output import line, print_json
from offcut.errors import ServiceError
from offcut.service.paths import StatePaths


def start_detached(paths: StatePaths, *, json: bool) -> None:
    """Run this command again without `--detach`; return when the controller is ready.

    Raises ServiceError with the controller's message and exit code if it does not become ready.
    """
    paths.prepare()
    root = paths.root
    log = root / "controller.log"
    reading, writing = os.pipe()
    arguments = [word for word in sys.argv[1:] if word not in ("--detach", "--json")]
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
        raise _not_started(log, begins, controller.wait())
    if json:
        print_json({"pid": controller.pid, "log": str(log), "state": str(root)})
    else:
        line(f"The controller runs as process {controller.pid}. Stop it with: kill {controller.pid}")
        line(f"Its log is {log}")


def say_ready(descriptor: int | None) -> Callable[[], None]:
    """Return the function that a detached controller calls when it is ready."""

    def say() -> None:
        if descriptor is not None:
            with suppress(OSError):
                os.write(descriptor, b"ready\n")
                os.close(descriptor)

    return say


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _not_started(log: Path, begins: int, code: int) -> ServiceError:
    with log.open("rb") as file:
        file.seek(begins)
        lines = file.read().decode(errors="replace").splitlines()
    sentences = [line.removeprefix("offcut: ") for line in lines if line.startswith("offcut: ")]
    what = " ".join(sentences) or f"The controller ended with code {code} before it was ready."
    error = ServiceError(what, next_step=f"The controller's log is {log}.")
    error.exit_code = 2 if code == 2 else 1
    return error
