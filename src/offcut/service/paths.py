"""The paths in a controller's state directory on its own machine, and in the directory shared with its agents."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from offcut.errors import StoreError
from offcut.process.unix_socket import check_socket_path
from offcut.wire.ownership import own_directory, own_part


def default_state_dir() -> Path:
    """Return `$OFFCUT_STATE`, else `offcut` in the user's state directory."""
    given = os.environ.get("OFFCUT_STATE")
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(given) if given else Path(base) / "offcut"


@dataclass(frozen=True, slots=True)
class StatePaths:
    """Paths below `root` and `share`.

    `root` is local: the journal, its lock, sockets. `share` is on a file system that agents see. If it is None, it is
    what `prepare` was last told, or else `root`.
    """

    root: Path
    share: Path | None = None

    @property
    def shared(self) -> Path:
        """Where agents look for the controller and keep their jobs' files."""
        if self.share is not None:
            return self.share
        try:
            return Path((self.root / "share").read_text().rstrip("\n"))
        except OSError:
            return self.root

    @property
    def lease(self) -> Path:
        """The file that says which controller uses the shared directory."""
        return self.shared / "lease.json"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def journal(self) -> Path:
        return self.root / "journal.sqlite"

    @property
    def numbers(self) -> Path:
        """The highest numbers that were given out, in case the journal is replaced by an older copy."""
        return self.root / "numbers.json"

    @property
    def agent_key(self) -> Path:
        """The secret with which agents' credentials are made."""
        return self.root / "agents.key"

    @property
    def credentials(self) -> Path:
        """Where agents read their credentials."""
        return self.shared / "agents"

    @property
    def certificates(self) -> Path:
        """The TLS certificate and its key."""
        return self.root / "tls"

    @property
    def socket(self) -> Path:
        """Where the owner's commands reach the controller."""
        return self.root / "control.sock"

    @property
    def page_token(self) -> Path:
        """The token that opens the page, alone, as Prometheus reads it."""
        return self.root / "page.token"

    @property
    def page_key(self) -> Path:
        """The secret with which the page's tokens are made."""
        return self.root / "page.key"

    @property
    def page_address(self) -> Path:
        """Where the page is served."""
        return self.root / "page.json"

    @property
    def page_opener(self) -> Path:
        """A file that leads a browser to the page with the token, so that this is in no process's arguments."""
        return self.root / "page.html"

    @property
    def address(self) -> Path:
        """Where agents look up how to reach the controller."""
        return self.shared / "address.json"

    @property
    def rendezvous(self) -> Path:
        """The rendezvous store's address and process id."""
        return self.root / "rendezvous.json"

    @property
    def rendezvous_secret(self) -> Path:
        """The secret from which each generation's secret is derived. Members show that to the store."""
        return self.root / "rendezvous.secret"

    @property
    def cluster(self) -> Path:
        """Sockets and logs of virtual nodes."""
        return self.root / "cluster"

    @property
    def pilots(self) -> Path:
        """The output of pilots on Slurm."""
        return self.shared / "cluster"

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    @property
    def telemetry(self) -> Path:
        """Stable samples of every job, noted every second: JSON lines."""
        return self.root / "telemetry.jsonl"

    @property
    def older_telemetry(self) -> Path:
        """The lines before those of `telemetry`."""
        return self.root / "telemetry.older.jsonl"

    @property
    def studies(self) -> Path:
        """Optuna's studies of sweeps, for its dashboard."""
        return self.root / "optuna.sqlite"

    @property
    def losses(self) -> Path:
        """The losses of jobs, one file per job: see `loss_history`."""
        return self.root / "losses"

    @property
    def audit(self) -> Path:
        """Who asked for what: JSON lines."""
        return self.root / "audit.jsonl"

    @property
    def older_audit(self) -> Path:
        """The lines before those of `audit`."""
        return self.root / "audit.older.jsonl"

    @property
    def statistics(self) -> Path:
        """The cluster's statistics, written when the controller is stopped."""
        return self.root / "statistics.json"

    def job(self, job_id: str) -> Path:
        """Return the directory of a job's logs, checkpoints and records."""
        return self.shared / "jobs" / job_id

    def new_job(self, name: str, number: int) -> str:
        """Return the id of a new job: its name and `number`, or the next free one. Its directory is created.

        A directory that exists has the checkpoints of another job, which the journal may have forgotten.
        """
        while True:
            try:
                self.job(f"{name}-{number}").mkdir(parents=True)
            except FileExistsError:
                number += 1
            except OSError as error:
                raise StoreError(f"The job's directory cannot be made: {error}.") from None
            else:
                return f"{name}-{number}"

    def prepare(self) -> None:
        """Create the directories, for this user alone, and note which one is shared.

        StoreError if that fails or if others could change what is in them, InputError if a path is too long.
        """
        check_socket_path(self.socket)
        own_directory(self.root, "state directory", "--state")
        shared = self._note_share()
        if shared != self.root:
            own_directory(shared, "shared directory", "--share")
        parts = {self.cluster, self.pilots, self.certificates, self.credentials}
        for part in [shared / "jobs", *(part for part in parts if part.exists())]:
            own_part(part, "directory", "--state")
        try:
            probe = self.root / ".probe"
            probe.write_bytes(b"x" * 4096)
            probe.unlink()
        except OSError as error:
            raise self._unwritable(error) from None

    def _note_share(self) -> Path:
        """Return the shared directory. StoreError if this state directory's jobs have their files elsewhere."""
        noted = StatePaths(self.root).shared
        given = self.share or noted
        if given == noted:
            return given
        if noted != self.root or (self.root / "jobs").is_dir():
            raise StoreError(
                f"The jobs of the state directory {self.root} have their files in {noted}, not in {given}.",
                next_step="Leave --share out, or begin with another --state.",
            )
        try:
            (self.root / "share").write_text(f"{given}\n")
        except OSError as error:
            raise self._unwritable(error) from None
        return given

    def _unwritable(self, error: OSError) -> StoreError:
        return StoreError(
            f"The state directory {self.root} cannot be written: {error.strerror}.",
            next_step="Choose another with --state.",
        )

    def take_lock(self) -> IO[str]:
        """Return the lock, held until the file is closed. StoreError if another controller has it."""
        file = self.lock.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise StoreError(
                f"The state directory {self.root} belongs to a running controller ({holder}).",
                next_step="Use that one, or start this one with another --state.",
            ) from None
        except OSError as error:
            file.close()
            raise StoreError(
                f"The state directory {self.root} cannot be locked: {error.strerror}.",
                next_step="It has to be on a local disk: choose one with --state, and what agents see with --share.",
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()}\n")
        file.flush()
        return file

    def publish_address(self, agents_url: str, certificate_pem: str | None = None) -> None:
        """Tell agents, also those of earlier controllers, how to reach this controller and which certificate it has."""
        told = {"agents": agents_url} | ({"certificate": certificate_pem} if certificate_pem else {})
        whole = self.address.with_suffix(".new")
        whole.write_text(json.dumps(told))
        whole.replace(self.address)
