"""`offcut wait`: wait until jobs have ended. The exit code is that of their scripts."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from offcut.cli.connection import connect
from offcut.cli.job_end import INTERRUPTED, TIMED_OUT, end_sentence
from offcut.cli.log_output import LogOutput
from offcut.cli.options import JsonOption, StateOption
from offcut.cli.output import line, print_json, remark
from offcut.client.job import Job, has_ended


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
        seen = [controller.job(job).status() for job in jobs]
        try:
            for i, job in enumerate(seen):
                seen[i] = controller.job(job["id"]).wait_until(until_s, job)
                if not json:
                    line(end_sentence(seen[i]))
            code = max(job["exit_code"] for job in seen) if all(map(has_ended, seen)) else TIMED_OUT
        except KeyboardInterrupt:
            remark("Interrupted: the jobs go on.")
            code = INTERRUPTED
    if json:
        print_json({"jobs": seen, "exit_code": code})
    raise typer.Exit(code)


def follow_to_end(job: Job) -> int:
    """Print what a job's workers print until it has ended; return the exit code, as `wait` does.

    What is said about the job goes to standard error, so that standard output is the log.
    """
    out = LogOutput()
    try:
        for log, data in job.follow_logs():
            out.write(log, data)
        shown = job.wait()
    except KeyboardInterrupt:
        remark(f"Interrupted: {job.name} goes on. Follow it with: offcut logs -f {job.name}")
        return INTERRUPTED
    remark(end_sentence(shown))
    code: int = shown["exit_code"]
    return code
