"""The agent's connection to the controller: opened by the agent, and opened again whenever it breaks."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable

import structlog
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from offcut.agent.controller_dial import ControllerSocket, CredentialRefusedError, Dial
from offcut.errors import OffcutError, ProtocolError
from offcut.process import clocks
from offcut.wire import messages
from offcut.wire.generation_changes import GenerationReader

_log = structlog.get_logger()

#: The longest waits before the next attempts, seconds: short at first, because a restart takes about a second.
_RETRY_S = (0.05, 0.1, 0.2, *(0.5,) * 8, 1.0)
#: A heartbeat is sent after this long without a message. The controller gives an agent up after `SILENCE_S` (5 s).
_HEARTBEAT_S = 2.0
#: Reports that wait while the controller is away. With more, the oldest are dropped, ends of workers never.
_MOST_WAITING = 1000
#: A controller that refuses an agent accepts its connection first.
_LASTS_S = 1.0


def retry_wait_s(attempt: int) -> float:
    """Return how long to wait after this many attempts without success, in seconds.

    It is drawn, so that agents that were cut off at one instant do not all dial at another.
    """
    return _RETRY_S[min(attempt, len(_RETRY_S) - 1)] * random.uniform(0.5, 1.0)


class ControllerLink:
    """Sends reports in order, keeps them while the controller is away, and calls `on_message` with its messages.

    `dial` opens a connection. `hello` says what the agent runs at that moment.
    """

    def __init__(
        self,
        dial: Dial,
        hello: Callable[[], messages.Hello],
        on_message: Callable[[messages.ToAgent], None],
    ) -> None:
        self._dial = dial
        self._hello = hello
        self._on_message = on_message
        self._waiting: deque[messages.Message] = deque()
        self._progress: dict[str, messages.Progress] = {}
        self._news = asyncio.Event()
        self._away_since_s = clocks.steady_s()
        self._up_since_s: float | None = None
        #: This node's address on its route to the controller.
        self.host = "127.0.0.1"

    def report(self, message: messages.Message) -> None:
        """Send the message once there is a connection; of a job's progress only the newest is sent."""
        if isinstance(message, messages.Progress):
            self._progress[message.job] = message
        else:
            if len(self._waiting) >= _MOST_WAITING:
                self._drop_oldest()
            self._waiting.append(message)
        self._news.set()

    def _drop_oldest(self) -> None:
        # The first may be on its way at this moment.
        for i in range(1, len(self._waiting)):
            if not isinstance(self._waiting[i], messages.Exited):
                del self._waiting[i]
                return

    def unsent_exits(self) -> list[messages.Exited]:
        return [message for message in self._waiting if isinstance(message, messages.Exited)]

    async def drained(self, limit_s: float) -> None:
        """Wait until every report has been sent, for at most `limit_s`."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + limit_s
        while self._waiting and loop.time() < until_s:
            await asyncio.sleep(0.005)

    async def run(self) -> None:
        """Stay connected until cancelled; return if the controller refuses this agent for good."""
        attempt = 0
        while True:
            try:
                async with self._dial() as socket:
                    attempt = 0
                    self.host = socket.host
                    if not await self._talk(socket):
                        return
            except CredentialRefusedError as error:
                _log.warning("credential_refused", error=str(error))
            except (OSError, ValueError, KeyError, ConnectionClosed, InvalidHandshake, TimeoutError) as error:
                _log.debug("controller_away", error=str(error))
            except OffcutError as error:
                _log.warning("controller_refused", error=str(error))
            finally:
                self._note_cut()
            await asyncio.sleep(retry_wait_s(attempt))
            attempt += 1

    def away_s(self) -> float:
        """Return for how long there has been no controller. A connection counts once it has lasted for a second."""
        now_s = clocks.steady_s()
        if self._up_since_s is not None and now_s - self._up_since_s > _LASTS_S:
            return 0.0
        return now_s - self._away_since_s

    def _note_cut(self) -> None:
        if self.away_s() == 0.0:
            self._away_since_s = clocks.steady_s()
        self._up_since_s = None

    async def _talk(self, socket: ControllerSocket) -> bool:
        """Talk over one connection until it ends; return False if no other may be opened."""
        await socket.send(self._hello().model_dump_json())
        self._up_since_s = clocks.steady_s()
        sender = asyncio.create_task(self._send(socket))
        reader = GenerationReader()
        try:
            async for data in socket:
                message = messages.to_agent(data)
                if isinstance(message, messages.NewGeneration | messages.GenerationChange):
                    message = reader.read(message)
                if isinstance(message, messages.Refused):
                    if message.fatal:
                        return False
                    raise ProtocolError(message.reason)
                self._on_message(message)
        finally:
            sender.cancel()
        return True

    async def _send(self, socket: ControllerSocket) -> None:
        while True:
            while self._waiting:
                await socket.send(self._waiting[0].model_dump_json())
                self._waiting.popleft()
            progress, self._progress = self._progress, {}
            for message in progress.values():
                await socket.send(message.model_dump_json())
            self._news.clear()
            try:
                async with asyncio.timeout(_HEARTBEAT_S):
                    await self._news.wait()
            except TimeoutError:
                await socket.send(messages.Heartbeat().model_dump_json())
