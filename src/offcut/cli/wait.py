"""`offcut wait`: wait until jobs have ended. The exit code is that of their scripts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from offcut.cli.connection import ask_again, connect, job_path
from offcut.cli.job_end import INTERRUPTED, TIMED_OUT, end_sentence, has_ended
from offcut.cli.log_follow import LogFollower
from offcut.cli.logs import LogOutput, follow_logs
from offcut.cli.options import JsonOption, StateOption
from offcut.cli.output import line, print_json, remark
from offcut.errors import UnreachableError
from offcut.wire.client import Client

#: How often the controller is asked.
_ASK_S = 0.5


def wait(
    jobs: Annotated[list[str], typer.Argument(help="Names or ids of jobs.")],
    timeout: Annotated[
        float | None, typer.Option(min=0.0, help="Give up after this many seconds, with exit code 124.")
    ] = None,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Wait until jobs have ended, also while their controller is restarted. Ctrl-C leaves the jobs alone.

    The exit code is 0 if the job finished, else that of its script: 128 + the signal's number if a signal ended it, 143
    if the job was cancelled. Of several jobs it is the highest. 124: the timeout has passed; 130: Ctrl-C.

    Examples: `offcut wait digits && python evaluate.py`, `offcut wait digits-1 digits-2 --timeout 3600`
    """
    until_s = float("inf") if timeout is None else time.monotonic() + timeout
    with connect(state) as controller:
        seen = [controller.get(job_path(job)) for job in jobs]
        try:
            for i, job in enumerate(seen):
                seen[i] = _until_ended(controller, job, until_s)
                if not json:
                    line(end_sentence(seen[i]))
            code = max(job["exit_code"] for job in seen) if all(map(has_ended, seen)) else TIMED_OUT
        except KeyboardInterrupt:
            remark("Interrupted: the jobs go on.")
            code = INTERRUPTED
    if json:
        print_json({"jobs": seen, "exit_code": code})
    raise typer.Exit(code)


def _until_ended(controller: Client, job: dict[str, Any], until_s: float) -> dict[str, Any]:
    """Return the job as it is shown once it has ended, or when the time is over."""
    # By its id: a newer job may get the same name meanwhile.
    path = job_path(job["id"])
    while not has_ended(job) and time.monotonic() < until_s:
        time.sleep(max(0.0, min(_ASK_S, until_s - time.monotonic())))
        try:
            job = ask_again(lambda: controller.get(path), until_s)
        except UnreachableError:
            break
    return job


def follow_to_end(controller: Client, job: dict[str, Any]) -> int:
    """Print what a job's workers print until it has ended; return the exit code, as `wait` does.

    What is said about the job goes to standard error, so that standard output is the log.
    """
    path, shown = job_path(job["id"]), job
    out = LogOutput()

    def ended() -> bool:
        nonlocal shown
        shown = ask_again(lambda: controller.get(path))
        return has_ended(shown)

    try:
        directory = Path(controller.get(job_path(job["id"], "directory"))["directory"]) / "logs"
        follow_logs(ended, LogFollower(directory), out)
    except KeyboardInterrupt:
        remark(f"Interrupted: {job['id']} goes on. Follow it with: offcut logs -f {job['id']}")
        return INTERRUPTED
    remark(end_sentence(shown))
    code: int = shown["exit_code"]
    return code
