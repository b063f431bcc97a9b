"""The rendezvous store: a process beside the controller, adopted after a restart, replaced when it dies."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import structlog

from offcut.errors import ClusterError
from offcut.service.paths import StatePaths

_log = structlog.get_logger()

_START_PATIENCE_S = 60.0
_LOOK_S = 0.5


class Rendezvous:
    """`address` is None until a store answers; `changed` is called with every new address."""

    def __init__(self, paths: StatePaths, changed: Callable[[], None], *, listen: str) -> None:
        self._paths = paths
        self._changed = changed
        self._listen = listen
        self._process: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self.address: str | None = None

    async def keep(self) -> None:
        """Have a living store, always."""
        while True:
            if not await self._alive():
                self.address = None
                await self._start()
            await asyncio.sleep(_LOOK_S)

    async def _alive(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            return False
        try:
            told = json.loads(self._paths.rendezvous.read_text())
            host, _, port = told["address"].rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port))
        except (OSError, ValueError, KeyError):
            return False
        writer.close()
        if host != self._listen:  # of an earlier controller, which members elsewhere reached differently
            os.kill(told["pid"], 15)
            return False
        if told["address"] != self.address:
            self.address, self._pid = told["address"], told["pid"]
            _log.info("rendezvous_store", address=self.address)
            self._changed()
        return True

    async def _start(self) -> None:
        self._paths.rendezvous.unlink(missing_ok=True)
        with (self._paths.root / "rendezvous.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "offcut.torch.store"),
                    *(str(self._paths.rendezvous), str(self._paths.lock), "--listen", self._listen),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + _START_PATIENCE_S
        while not self._paths.rendezvous.exists():
            if self._process.poll() is not None or loop.time() > give_up_s:
                raise ClusterError(
                    "The rendezvous store did not start.",
                    next_step=f"Is torch installed? Its log is {self._paths.root / 'rendezvous.log'}.",
                )
            await asyncio.sleep(0.02)

    def end(self) -> None:
        """For good: no job will need it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        elif self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, 15)
        self._paths.rendezvous.unlink(missing_ok=True)
