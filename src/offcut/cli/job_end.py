"""How a job ended, for commands that wait for it."""

from __future__ import annotations

from typing import Any

from offcut.client.job import has_ended

#: The exit code of a command that ended before the jobs: the limit has passed (as of timeout(1)), or Ctrl-C.
TIMED_OUT = 124
INTERRUPTED = 130


def end_sentence(job: dict[str, Any]) -> str:
    """Return one sentence that says how the job ended, or that it has not."""
    if not has_ended(job):
        return f"{job['id']} has not ended: it is {job['state']}."
    if job["state"] == "failed":
        return f"{job['id']} has failed with exit code {job['exit_code']}: {job['reason']}"
    return f"{job['id']} is {job['state']}."
