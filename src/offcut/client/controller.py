"""A running controller: submitting jobs and sweeps, finding them, and its nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from offcut.client.connection import Connection, say_nothing
from offcut.client.job import Job
from offcut.client.sweep import Sweep
from offcut.service.paths import StatePaths, default_state_dir
from offcut.wire.client import Client

if TYPE_CHECKING:
    from offcut.wire.jobspec import JobSpec
    from offcut.wire.sweepspec import SweepSpec


def connect(state: str | Path | None = None, *, say: Callable[[str], None] = say_nothing) -> Controller:
    """Return the controller of a state directory. No request is made yet.

    Args:
        state: the state directory, as `offcut up --state` names it; None: `$OFFCUT_STATE`, else the default directory.
        say: gets the remarks of calls that wait while the controller is restarted.

    Raises:
        InputError: another user listens there.
    """
    return Controller(Client(StatePaths(Path(state) if state is not None else default_state_dir()).socket), say)


class Controller:
    """A running controller; see `connect`. It may be used in a `with` statement, and need not."""

    def __init__(self, client: Client, say: Callable[[str], None] = say_nothing) -> None:
        #: Requests to the API itself.
        self.connection = Connection(client, say)

    def __enter__(self) -> Controller:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: no connection is kept."""

    def status(self, ended: int | None = None) -> dict[str, Any]:
        """Return jobs, nodes and the state of the controller, as `offcut status --json` does.

        Args:
            ended: at most this many of the jobs that have ended, the last ones; None: all.
        """
        told: dict[str, Any] = self.connection.get("/v1/status", **({} if ended is None else {"ended": ended}))
        return told

    def metrics(self) -> list[dict[str, Any]]:
        """Return what the controller measures of itself and its queue, as `offcut metrics --json` does."""
        told: list[dict[str, Any]] = self.connection.get("/v1/metrics")
        return told

    def metrics_text(self) -> str:
        """Return the same in the text format that Prometheus reads."""
        return self.connection.get_text("/metrics")

    # -- jobs -------------------------------------------------------------------------------------------------------

    def submit(
        self,
        what: str | Path | JobSpec,
        arguments: Sequence[str] = (),
        *,
        workdir: str | Path | None = None,
        **fields: Any,
    ) -> Job:
        """Submit a malleable training job.

        Args:
            what: a training script, a job file that ends in `.toml`, or a `JobSpec`.
            arguments: the script's own.
            workdir: the script's working directory; None: the current one.
            **fields: fields of a job file, such as `name`, `sizes` (`"1:4"`), `weight`, `env`.

        Returns:
            The job; its `name` is its id.

        Raises:
            InputError: a field or a file is not usable, or the controller refuses the job.
        """
        from offcut.client.specs import job_spec

        spec = job_spec(what, arguments, fields, workdir=workdir)
        return self.job(self.post_job(spec)["id"])

    def post_job(self, spec: JobSpec) -> dict[str, Any]:
        """Submit a job whose files have been checked. Return its status."""
        shown: dict[str, Any] = self.connection.post("/v1/jobs", spec.model_dump(exclude_unset=True))
        return shown

    def job(self, name: str) -> Job:
        """Return a job by its id or name. The controller is not asked yet."""
        return Job(self.connection, name)

    def jobs(self) -> list[Job]:
        """Return every job, also those that have ended, in order of submission."""
        return [self.job(job["id"]) for job in self.status()["jobs"]]

    def forget(self, jobs: Sequence[str], *, files: bool = False) -> dict[str, Any]:
        """Remove jobs that have ended from the history.

        Args:
            jobs: ids or names.
            files: delete their logs, checkpoints and records, too.

        Returns:
            `jobs`, their ids, and `directories`, where their files are or were.
        """
        told: dict[str, Any] = self.connection.post("/v1/forget", {"jobs": list(jobs), "files": files})
        return told

    # -- sweeps -----------------------------------------------------------------------------------------------------

    def submit_sweep(self, what: str | Path | SweepSpec | dict[str, Any] | None = None, **fields: Any) -> Sweep:
        """Submit a sweep: a search over the parameters of a training job.

        Args:
            what: a sweep file, a `SweepSpec`, or its fields as a dictionary; None: the keyword arguments alone.
            **fields: fields of a sweep file, such as `name`, `job`, `space`, `scheduler` (a name, or a dictionary with
                its options), `max_trials`. A parameter of the space is a dictionary or a `ParameterSpec`.

        Returns:
            The sweep; its `name` is its id.

        Raises:
            InputError: a field or a file is not usable, or the controller refuses the sweep.
        """
        from offcut.client.specs import sweep_spec

        return self.sweep(self.post_sweep(sweep_spec(what, fields))["id"])

    def post_sweep(self, spec: SweepSpec) -> dict[str, Any]:
        """Submit a sweep whose files have been checked. Return its status."""
        shown: dict[str, Any] = self.connection.post("/v1/sweeps", spec.model_dump(exclude_unset=True, mode="json"))
        return shown

    def sweep(self, name: str) -> Sweep:
        """Return a sweep by its id or name. The controller is not asked yet."""
        return Sweep(self.connection, name)

    def sweeps(self) -> list[dict[str, Any]]:
        """Return every sweep, as `offcut sweeps --json` does."""
        shown: list[dict[str, Any]] = self.connection.get("/v1/sweeps")
        return shown

    # -- nodes ------------------------------------------------------------------------------------------------------

    def release(self, nodes: Sequence[str] = ()) -> dict[str, Any]:
        """Release nodes to the queue now; without names every one, and claim none again."""
        told: dict[str, Any] = self.connection.post("/v1/release", {"nodes": list(nodes)})
        return told

    def claim_again(self) -> dict[str, Any]:
        """Claim nodes again after every one was released."""
        told: dict[str, Any] = self.connection.post("/v1/claim")
        return told

    def forgive(self, nodes: Sequence[str] = ()) -> dict[str, Any]:
        """Claim nodes again that were set aside; without names every one."""
        told: dict[str, Any] = self.connection.post("/v1/forgive", {"nodes": list(nodes)})
        return told

    def want(self, nodes: Sequence[str]) -> dict[str, Any]:
        """Let the queue of a local cluster want nodes."""
        told: dict[str, Any] = self.connection.post("/v1/nodes/want", {"nodes": list(nodes)})
        return told

    def offer(self, nodes: Sequence[str]) -> dict[str, Any]:
        """Let the queue of a local cluster leave nodes idle."""
        told: dict[str, Any] = self.connection.post("/v1/nodes/offer", {"nodes": list(nodes)})
        return told
