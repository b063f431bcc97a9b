"""The rendezvous store: a process beside the controller, adopted after a restart, replaced when it dies."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import structlog

from offcut.errors import ClusterError, ProtocolError
from offcut.service.paths import StatePaths
from offcut.wire import rendezvous as wire
from offcut.wire import tokens

_log = structlog.get_logger()

_START_PATIENCE_S = 60.0
_LOOK_S = 0.5
#: A store that does not answer the controller for this long is replaced.
_ANSWER_S = 10.0


class MeetingPlace(Protocol):
    """Where the members of a generation find each other; see `Rendezvous`."""

    #: None until a store answers.
    address: str | None

    def secret(self, job: str, generation: int) -> str: ...

    async def keep(self) -> None: ...

    def end(self) -> None: ...


class Rendezvous:
    """`address` is None until a store answers; `changed` is called with every new address.

    A store is this controller's if it proves that it knows the state directory's secret. No store is killed by its
    process id: it is asked to end, over the connection on which it has proved that.
    """

    def __init__(self, paths: StatePaths, changed: Callable[[], None], *, listen: str) -> None:
        self._paths = paths
        self._changed = changed
        self._listen = listen
        self._master = tokens.create(paths.rendezvous_secret)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: _Control | None = None
        self.address: str | None = None

    def secret(self, job: str, generation: int) -> str:
        """Return what the members of one generation of a job show to the store."""
        return wire.generation_secret(self._master, job, generation)

    async def keep(self) -> None:
        """Keep a store running. ClusterError if none can be started."""
        while True:
            if self._control is None or not await self._control.answers():
                self._drop()
                if not await self._adopt():
                    await self._start()
            await asyncio.sleep(_LOOK_S)

    def _drop(self) -> None:
        self.address = None
        if self._control is not None:
            self._control.close()
            self._control = None

    async def _adopt(self) -> bool:
        """Adopt the store that the state directory names, if it belongs to this controller."""
        try:
            told = json.loads(self._paths.rendezvous.read_text())
            address = str(told["address"])
            control = await _Control.connect(address, self._master)
        except (OSError, EOFError, ValueError, KeyError, TypeError, ProtocolError):
            return False
        if address.rpartition(":")[0] != self._listen:  # of an earlier controller with another address for members
            await control.stop()
            return False
        self._control, self.address = control, address
        _log.info("rendezvous_store", address=address)
        self._changed()
        return True

    async def _start(self) -> None:
        self._end_process()
        # A store that is not named there any more ends by itself.
        self._paths.rendezvous.unlink(missing_ok=True)
        try:
            with (self._paths.root / "rendezvous.log").open("ab") as log:
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "offcut.service.rendezvous_server"),
                        *(str(self._paths.rendezvous), str(self._paths.rendezvous_secret), "--listen", self._listen),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            raise ClusterError(f"The rendezvous store could not be started: {error.strerror}.") from None
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + _START_PATIENCE_S
        while not await self._adopt():
            if self._process.poll() is not None or loop.time() > give_up_s:
                raise ClusterError(
                    "The rendezvous store did not start.",
                    next_step=f"Its log is {self._paths.root / 'rendezvous.log'}.",
                )
            await asyncio.sleep(0.02)

    def _end_process(self) -> None:
        """End the process that this controller has started. Its id cannot be reused before it is waited for."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def end(self) -> None:
        """End the store for good: no job will need it."""
        self._end_process()
        self._drop()
        # An adopted store ends by itself when it is not named any more.
        self._paths.rendezvous.unlink(missing_ok=True)


class _Control:
    """The controller's connection to a store that has proved that it belongs to it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, address: str, master: str) -> _Control:
        """Connect to the store. Raises OSError, EOFError or ProtocolError if no store of this controller answers."""
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(host, int(port))
            control = cls(reader, writer)
            try:
                await control._prove(wire.control_secret(master), address)
            except BaseException:
                control.close()
                raise
        return control

    async def _prove(self, secret: str, address: str) -> None:
        version, theirs = await self._read(2)
        if version != wire.VERSION:
            raise ProtocolError("A rendezvous store of another version.")
        ours = wire.nonce()
        proof = wire.proof(secret, b"client", address, theirs, ours)
        self._writer.write(wire.pack(wire.CONTROL, b"", b"0", ours, proof))
        kind, said = await self._read(2)
        if kind != b"ok" or not wire.proves(said, secret, b"server", address, theirs, ours):
            raise ProtocolError("This is not a rendezvous store of this state directory.")

    async def _read(self, fields: int) -> list[bytes]:
        size = wire.length(await self._reader.readexactly(wire.LENGTH_BYTES))
        if size > wire.GREETING_BYTES:
            raise ProtocolError("This is not a rendezvous store.")
        found = wire.unpack(await self._reader.readexactly(size))
        if len(found) != fields:
            raise ProtocolError("This is not a rendezvous store.")
        return found

    async def answers(self) -> bool:
        """Return whether the store is alive."""
        return await self._say(b"ping")

    async def stop(self) -> None:
        """Ask the store to end."""
        await self._say(b"stop")
        self.close()

    async def _say(self, word: bytes) -> bool:
        with suppress(OSError, EOFError, ProtocolError):
            async with asyncio.timeout(_ANSWER_S):
                self._writer.write(wire.pack(word))
                await self._read(1)
                return True
        return False

    def close(self) -> None:
        self._writer.close()
