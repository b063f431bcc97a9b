"""One job of a controller."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from offcut.client.connection import Connection, job_path
from offcut.client.log_follow import LogFollower
from offcut.client.log_tail import last_lines, worker_logs
from offcut.client.logged_values import logged_values
from offcut.errors import UnreachableError, WaitTimeoutError

#: How often the controller is asked.
_ASK_S = 0.5
#: While logs are followed: how often to look for new output, and how often to ask whether the job has ended.
_LOOK_S = 0.1
_ASK_WHILE_FOLLOWING_S = 1.0
#: After the job's end, its last workers may still print: nothing must have come for this long.
_SETTLE_S = 1.0
_ENDED = ("finished", "failed", "cancelled")


def has_ended(job: dict[str, Any]) -> bool:
    """Return whether the job has ended, as the controller shows it."""
    return job["state"] in _ENDED


class Job:
    """A job by its id or name. Of several jobs of one name it is the newest that lives, else the newest.

    Attributes:
        name: the id or name by which the controller is asked.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self.name = name
        self._connection = connection

    def __repr__(self) -> str:
        return f"<Job {self.name}>"

    def status(self) -> dict[str, Any]:
        """Return the job as `offcut status NAME --json` shows it: state, size, steps, loss, ...."""
        return self._get()

    @property
    def state(self) -> str:
        """The job's state now: `waiting`, `running`, `paused`, `finishing`, `finished`, `failed` or `cancelled`."""
        state: str = self._get()["state"]
        return state

    def why(self) -> dict[str, Any]:
        """Return why the job has its size: the last decision of the allocator, and what happened last."""
        return self._get("why")

    def curve(self) -> dict[str, Any]:
        """Return the job's scaling curve, as measured and as estimated."""
        return self._get("curve")

    def directory(self) -> Path:
        """Return the directory with the job's logs, checkpoints and records."""
        return Path(self._get("directory")["directory"])

    def loss(self, name: str | None = None) -> dict[str, Any]:
        """Return the losses over the whole training, or what the script logs under a name.

        Args:
            name: as in `offcut.torch.log(accuracy=...)`; None: the loss.

        Returns:
            A dictionary whose `points` are columns of equal length: `time_s` (seconds since 1970), `generation`,
            `step`, `samples`, and `loss` or `name`. A value that is not finite is None.

        Raises:
            InputError: there is no such job, or it has logged nothing under that name.
        """
        told = self._get("loss")
        if name is None:
            return told
        return told | logged_values(told["id"], Job(self._connection, told["id"]).directory(), name)

    # -- changes ----------------------------------------------------------------------------------------------------

    def cancel(self) -> dict[str, Any]:
        """End the job now. Return its status."""
        return self._post("cancel")

    def pause(self) -> dict[str, Any]:
        """Take all nodes from the job; its state is kept. Return its status."""
        return self._post("pause")

    def resume(self) -> dict[str, Any]:
        """Resume the job if it is paused. Return its status."""
        return self._post("resume")

    def change(self, *, sizes: str | None = None, weight: float | None = None) -> dict[str, Any]:
        """Change the allowed sizes (`2:4`) or the weight of the job. Return its status."""
        shown: dict[str, Any] = self._connection.patch(job_path(self.name), {"sizes": sizes, "weight": weight})
        return shown

    # -- waiting ----------------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Wait until the job has ended, also while its controller is restarted. Return its status.

        Args:
            timeout_s: give up after this many seconds; None: wait for as long as it takes.

        Raises:
            WaitTimeoutError: the job has not ended in time.
        """
        until_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        shown = self.wait_until(until_s, self.status())
        if not has_ended(shown):
            raise WaitTimeoutError(f"{shown['id']} has not ended within {timeout_s:g} s: it is {shown['state']}.")
        return shown

    def wait_until(self, until_s: float, last: dict[str, Any]) -> dict[str, Any]:
        """Return the job's status once it has ended, or when the time is over.

        Args:
            until_s: an instant of `time.monotonic`.
            last: the status that was told last.
        """
        # By its id: a newer job may get the same name meanwhile.
        path, shown = job_path(last["id"]), last
        while not has_ended(shown) and time.monotonic() < until_s:
            time.sleep(max(0.0, min(_ASK_S, until_s - time.monotonic())))
            try:
                shown = self._connection.get_patiently(path, until_s)
            except UnreachableError:
                break
        return shown

    # -- logs -------------------------------------------------------------------------------------------------------

    def logs(self, lines: int = 50, worker: str | None = None) -> dict[str, list[str]]:
        """Return the last lines that each worker printed, the one that printed last at the end.

        Args:
            lines: at most this many of each worker.
            worker: only workers whose names start with this (`n03`); None: all.
        """
        found = worker_logs(self.directory() / "logs", worker)
        return {log.stem: last_lines(log, lines) for log in found}

    def follow_logs(
        self, worker: str | None = None, read: dict[Path, int] | None = None
    ) -> Iterator[tuple[Path, bytes]]:
        """Yield what the workers print (the log, whole lines) until the job has ended and nothing more comes.

        Args:
            worker: only workers whose names start with this; None: all.
            read: the position in bytes up to which each log has been read already.
        """
        told = self._get("directory")
        path = job_path(told["id"])
        follower = LogFollower(Path(told["directory"]) / "logs", worker, read)
        asked_s, ended_s, ended = 0.0, 0.0, False
        while not ended or time.monotonic() < ended_s + _SETTLE_S:
            if not ended and time.monotonic() - asked_s >= _ASK_WHILE_FOLLOWING_S:
                ended = has_ended(self._connection.get_patiently(path))
                asked_s = ended_s = time.monotonic()
            for new in follower.new_lines():
                yield new
                ended_s = time.monotonic()
            time.sleep(_LOOK_S)
        yield from follower.new_lines(at_end=True)

    def _get(self, *rest: str) -> dict[str, Any]:
        told: dict[str, Any] = self._connection.get(job_path(self.name, *rest))
        return told

    def _post(self, verb: str) -> dict[str, Any]:
        told: dict[str, Any] = self._connection.post(job_path(self.name, verb))
        return told
