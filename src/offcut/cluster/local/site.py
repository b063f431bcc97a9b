"""Starts the daemon of virtual nodes, or finds the one that an earlier controller left running."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from offcut.cluster.local.schedule import Schedule
from offcut.errors import ClusterError
from offcut.process.unix_socket import answers, check_socket_path
from offcut.wire.worker_env import ENV_GLOO_INTERFACE

_START_PATIENCE_S = 20.0
#: The longest line between the daemon and its clients: it may name every node, or list every release so far.
LINE_LIMIT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSite:
    """The description of a local cluster. `preload`: modules that its workers will need, imported once."""

    schedule: Schedule
    grace_s: float = 1.0
    preload: tuple[str, ...] = ()
    agent_arguments: tuple[str, ...] = ()
    #: Added to the environment of every worker.
    worker_env: Mapping[str, str] = field(default_factory=lambda: {ENV_GLOO_INTERFACE: "lo"})


async def ensure_running(directory: Path, site: LocalSite) -> bool:
    """Make sure that a daemon runs in `directory`. Return True if it was started now. Raises ClusterError."""
    socket = directory / "cluster.sock"
    longest = max((len(name) for name in site.schedule.nodes), default=0)
    check_socket_path(directory / ("x" * max(longest, len("cluster")) + ".sock"))
    if await answers(socket):
        return False
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    socket.unlink(missing_ok=True)
    for name in ("agents.sock", "workers.sock"):
        (directory / name).unlink(missing_ok=True)
    site.schedule.save(directory / "schedule.json")
    config = {
        "grace_s": site.grace_s,
        "preload": ",".join(site.preload),
        "agent_arguments": list(site.agent_arguments),
        "worker_env": dict(site.worker_env),
    }
    (directory / "cluster.json").write_text(json.dumps(config))
    with (directory / "cluster.log").open("ab") as log:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "offcut.cluster.local.daemon", str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    give_up_s = time.monotonic() + _START_PATIENCE_S
    while not await answers(socket):
        if daemon.poll() is not None or time.monotonic() > give_up_s:
            raise ClusterError("The local cluster did not start.", next_step=f"Its log is {directory / 'cluster.log'}.")
        await asyncio.sleep(0.02)
    return True
