"""A real slurmdbd on a real MariaDB under one directory, for a private Slurm with accounts and limits."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from offcut.process.parent_death import die_with_parent

PROGRAMS = ("mariadbd", "mariadb-install-db", "mariadb", "slurmdbd", "sacctmgr")
_PATIENCE_S = 60.0


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def require_accounting() -> None:
    """Skip the test where slurmdbd or MariaDB are not installed."""
    lacking = [name for name in PROGRAMS if _program(name) is None]
    if os.geteuid() != 0:
        pytest.skip("slurmdbd of another user than root needs set-up by hand")
    if lacking:
        pytest.skip(f"{', '.join(lacking)} not found: run scripts/install-slurm --accounting")


@contextmanager
def accounting(root: Path) -> Iterator[dict[str, str]]:
    """Run a slurmdbd until the block ends. Yields the lines of slurm.conf that lead to it."""
    started: list[subprocess.Popen[bytes]] = []
    host = socket.gethostname().split(".")[0]
    ports = [_free_port() for _ in range(2)]

    def start(*command: str, **env: str) -> None:
        with (root / f"{Path(command[0]).name}.log").open("ab") as log:
            started.append(
                subprocess.Popen(
                    command,
                    env={**os.environ, **env},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),  # noqa: PLW1509
                )
            )

    data, sock = root / "data", root / "db.sock"
    try:
        _run("mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db")
        options = ("--user=root", f"--datadir={data}", f"--socket={sock}", f"--port={ports[0]}")
        small = ("--bind-address=127.0.0.1", "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900")
        start(_program("mariadbd") or "", "--no-defaults", *options, *small, f"--pid-file={root / 'db.pid'}")
        client = ("mariadb", "--no-defaults", f"--socket={sock}", "--user=root", "--execute")
        users = "; ".join(
            f"create user 'slurm'@'{where}' identified by 'x'; grant all on *.* to 'slurm'@'{where}'"
            for where in ("localhost", "127.0.0.1")
        )
        _retry(lambda: _run(*client, users))
        conf = root / "slurmdbd.conf"
        settings = {
            "AuthType": "auth/none",
            "DbdHost": host,
            "DbdAddr": "127.0.0.1",
            "DbdPort": ports[1],
            "SlurmUser": "root",
            "LogFile": root / "dbd.log",
            "PidFile": root / "dbd.pid",
            "StorageType": "accounting_storage/mysql",
            "StorageHost": "127.0.0.1",
            "StoragePort": ports[0],
            "StorageUser": "slurm",
            "StoragePass": "x",
            "StorageLoc": "slurm",
        }
        conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        conf.chmod(0o600)
        # It looks for slurmdbd.conf beside slurm.conf, which need not exist.
        start(_program("slurmdbd") or "", "-D", SLURM_CONF=str(root / "slurm.conf"))
        _retry(lambda: socket.create_connection(("127.0.0.1", ports[1])).close())
        yield {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": str(ports[1]),
            "AccountingStorageEnforce": "associations,limits,qos",
        }
    finally:
        for process in reversed(started):
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20.0)
            process.kill()
            process.wait()


def _run(*command: str) -> None:
    argv = [_program(command[0]) or command[0], *command[1:]]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{command[0]}: {done.stderr or done.stdout}")


def _retry(task: Callable[[], None]) -> None:
    give_up_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            task()
            return
        except OSError:
            if time.monotonic() > give_up_s:
                raise
            time.sleep(0.2)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
