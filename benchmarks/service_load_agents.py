"""Stub agents for `service_load.py`: many agents of claimed nodes in one process, without workers.

`python service_load_agents.py` reads commands and writes what its agents do, one JSON object per line. Every agent has
a WebSocket connection of its own, dials, retries and beats as `offcut.agent` does, and answers with the real messages:
a worker that is told to start is ready after `BOOT_S`; a member tells its pace each `PACE_S`, and the first rank its
progress twice a second. Commands, in the field `do`:

- `claim` (`claims`: node to pilot; `controller`: where to dial): an agent starts for each.
- `leave` (`nodes`: node to seconds): the node's worker leaves after that time, by itself, and then the agent ends.
- `kill` (`nodes`): these agents end without a word, as when their node goes down.
- `look`: answered by `look`: see `Agents.look`.

An agent that ends is told as `lost` (node to pilot), each in a line of its own, as the batch system would.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import sys
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.uri import parse_uri

from offcut.agent import controller_link as agent_line
from offcut.wire import messages, tls
from offcut.wire.generation_changes import GenerationReader

#: From the order to start a worker to its report that it is ready.
BOOT_S = 0.2
#: How often a member tells its pace, and the first rank the job's progress.
PACE_S = 2.0
PROGRESS_S = 0.5
#: How long a worker takes to leave at its step boundary, and the first rank to do the first step of a generation.
STEP_S = 0.05
_GENERATION = re.compile(rb'"generation":(\d+)')
_BASE = re.compile(rb'"base":(\d+)')
#: Generations that an agent of this process has read, and how many of them are kept.
_READ: dict[int, messages.NewGeneration] = {}
_MOST_READ = 100


@lru_cache(maxsize=1)
def trusting(pem: str) -> ssl.SSLContext:
    """As agents trust the controller's certificate; once for all agents of this process."""
    return tls.trusting(pem)


def tell(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def read_generation(data: bytes, *, changed: bool, told: int) -> messages.NewGeneration:
    """Read a generation as `offcut.agent` does, but once for all agents of this process.

    Args:
        data: The message.
        changed: It tells what has changed since the generation `told`, the last that this agent was told.
    """
    number = _GENERATION.search(data)
    assert number is not None
    if changed:
        base = _BASE.search(data)
        assert base is not None
        if int(base[1]) != told:
            raise SystemExit(f"An agent that knows generation {told} was told {data[:200]!r}.")
    generation = int(number[1])
    if generation not in _READ:
        reader, message = GenerationReader(), messages.to_agent(data)
        if isinstance(message, messages.GenerationChange):
            reader.read(_READ[message.base])
        assert isinstance(message, messages.NewGeneration | messages.GenerationChange)
        _READ[generation] = reader.read(message)
        while len(_READ) > _MOST_READ:
            del _READ[next(iter(_READ))]
    return _READ[generation]


class Agent(asyncio.Protocol):
    """One agent, over all its connections."""

    def __init__(self, node: str, pilot: str, files: dict[str, str]) -> None:
        self.node, self.pilot = node, pilot
        self._address = Path(files["address_file"])
        self._token = Path(files["credentials"]) / f"{pilot}.token"
        self._ws: ClientProtocol | None = None
        self._transport: asyncio.Transport | None = None
        self._lost = asyncio.Event()
        self._said_s = 0.0
        #: Job and incarnation of its worker; whether it is ready, and what it has been told.
        self.worker: tuple[str, int] | None = None
        self.ready = False
        self.generation = 0
        self.members = 0
        #: The last generation that came over the present connection.
        self._told = 0
        self._first = False
        self.ended = False
        #: Since the last look: bytes that came, messages by kind; when it was told to go.
        self.received_bytes = 0
        self.received: dict[str, int] = {}
        self.released_s = 0.0
        #: Connections that were accepted, and when the newest generation of the newest of them came.
        self.connections = 0
        self.resumed_s = 0.0
        self._step = 0

    async def run(self) -> None:
        attempt = 0
        while not self.ended:
            with suppress(OSError, ValueError, KeyError):
                told = json.loads(self._address.read_text())
                url = urlsplit(told["agents"])
                self._ws = ClientProtocol(
                    parse_uri(told["agents"]),
                    extensions=[ClientPerMessageDeflateFactory(compress_settings={"memLevel": 5})],
                    max_size=None,
                )
                self._lost.clear()
                context = trusting(told["certificate"]) if "certificate" in told else None
                await asyncio.get_running_loop().create_connection(lambda: self, url.hostname, url.port, ssl=context)
                attempt = 0
                await self._lost.wait()
            if not self.ended:
                await asyncio.sleep(agent_line.retry_wait_s(attempt))
                attempt += 1

    # -- the connection ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        assert self._ws is not None
        self._transport = transport
        request = self._ws.connect()
        request.headers["Authorization"] = f"Bearer {self._token.read_text().strip()}"
        self._ws.send_request(request)
        self._flush()

    def data_received(self, data: bytes) -> None:
        assert self._ws is not None
        self.received_bytes += len(data)
        self._ws.receive_data(data)
        for event in self._ws.events_received():
            if isinstance(event, Response):
                if event.status_code != 101:
                    continue
                self.connections += 1
                self.resumed_s = 0.0
                self._told = 0
                workers = ()
                if self.worker is not None:
                    job, incarnation = self.worker
                    workers = (
                        messages.WorkerReport(
                            job=job, incarnation=incarnation, ready=self.ready, generation=self.generation
                        ),
                    )
                highest = self.worker[1] if self.worker else 0
                self.say(
                    messages.Hello(node=self.node, pilot=self.pilot, workers=workers, incarnation=highest), first=True
                )
            elif isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                self._take(bytes(event.data))
        self._flush()

    def eof_received(self) -> None:
        if self._ws is not None:
            self._ws.receive_eof()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._lost.set()

    def say(self, message: messages.Message, *, first: bool = False) -> None:
        if self._ws is not None and self._transport is not None and (first or self._said_s):
            with suppress(Exception):
                self._ws.send_text(message.model_dump_json().encode())
                self._said_s = time.monotonic()
            self._flush()

    def _flush(self) -> None:
        assert self._ws is not None
        for data in self._ws.data_to_send():
            if self._transport is not None and data:
                self._transport.write(data)

    def beat(self, now_s: float) -> None:
        """Called often: say what is due."""
        if self._transport is None or not self._said_s:
            return
        if now_s - self._said_s >= agent_line._HEARTBEAT_S:
            self.say(messages.Heartbeat())

    # -- what it is told --------------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        kind = data[9 : data.index(b'"', 9)].decode()
        self.received[kind] = self.received.get(kind, 0) + 1
        if kind.startswith("generation"):
            self._take_generation(kind, data)
            return
        message = messages.to_agent(data)
        match message:
            case messages.Start():
                self.worker, self.ready = (message.launch.job, message.incarnation), False
                asyncio.get_running_loop().call_later(BOOT_S, self._boot, self.worker)
            case messages.Stop():
                asyncio.get_running_loop().call_later(STEP_S, self.exit, "left")
            case messages.ReleaseNode():
                self.released_s = self.released_s or time.monotonic()
                asyncio.get_running_loop().call_later(STEP_S, self.leave)
            case messages.Refused() if message.fatal:
                self.end()

    def _take_generation(self, kind: str, data: bytes) -> None:
        whole = read_generation(data, changed=kind != "generation", told=self._told)
        self._told = whole.generation
        self.generation = max(self.generation, whole.generation)
        self.resumed_s = self.resumed_s or time.monotonic()
        self.members = len(whole.members)
        self._first = bool(whole.members) and whole.members[0].node == self.node
        if self._first:
            asyncio.get_running_loop().call_later(STEP_S, self._form, self.generation)

    def _boot(self, worker: tuple[str, int]) -> None:
        if self.worker == worker and not self.ended:
            self.ready = True
            self.say(messages.Ready(job=worker[0], incarnation=worker[1]))
            self._pace()

    def _form(self, generation: int) -> None:
        if self.worker is not None and generation == self.generation:
            self._step += 1
            self.say(messages.Formed(job=self.worker[0], generation=generation, step=self._step))
            self._progress(generation)

    def _progress(self, generation: int) -> None:
        if self.worker is None or self.ended or generation != self.generation or not self._first:
            return
        self._step += 1
        self.say(
            messages.Progress(
                job=self.worker[0],
                generation=generation,
                step=self._step,
                samples=256 * self._step,
                loss=1.0,
                clock_s=time.time(),
            )
        )
        asyncio.get_running_loop().call_later(PROGRESS_S, self._progress, generation)

    def _pace(self) -> None:
        if self.worker is None or self.ended:
            return
        if self.generation:
            job, incarnation = self.worker
            self.say(messages.Pace(job=job, incarnation=incarnation, generation=self.generation, own_step_s=0.1))
        asyncio.get_running_loop().call_later(PACE_S, self._pace)

    # -- its end ----------------------------------------------------------------------------------------------------

    def exit(self, outcome: str) -> None:
        """The worker is gone; the agent stays."""
        if self.worker is not None:
            (job, incarnation), self.worker = self.worker, None
            self.say(
                messages.Exited(
                    job=job,
                    incarnation=incarnation,
                    outcome=outcome,  # type: ignore[arg-type]
                    generation=self.generation,
                    stable_step=max(1, self._step),
                )
            )

    def leave(self) -> None:
        if not self.ended:
            self.exit("left")
            self.end()

    def end(self) -> None:
        if self.ended:
            return
        self.ended = True
        if self._ws is not None and self._transport is not None:
            with suppress(Exception):
                self._ws.send_close(CloseCode.NORMAL_CLOSURE)
            self._flush()
            self._transport.close()
        self._lost.set()
        tell(lost={self.node: self.pilot})


class Agents:
    def __init__(self) -> None:
        self._agents: dict[str, Agent] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: Bytes that ended agents have received since the last look, and when they were told to go.
        self._ended_bytes = 0

    def obey(self, command: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        match command["do"]:
            case "claim":
                for node, pilot in command["claims"].items():
                    agent = self._agents[node] = Agent(node, pilot, command["controller"])
                    task = asyncio.create_task(agent.run())
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
            case "leave":
                for node, after_s in command["nodes"].items():
                    loop.call_later(after_s, self._agents[node].leave)
            case "kill":
                for node in command["nodes"]:
                    self._agents[node].end()
            case "look":
                tell(look=self.look())

    def look(self) -> dict[str, Any]:
        """What has come to the agents since the last look (bytes, messages by kind), and how they are now."""
        received: dict[str, int] = {}
        received_bytes, latest_s = 0, 0.0
        released, alive, generations = [], [], []
        for agent in self._agents.values():
            received_bytes += agent.received_bytes
            for kind, count in agent.received.items():
                received[kind] = received.get(kind, 0) + count
            if agent.released_s:
                released.append(agent.released_s)
            agent.received_bytes, agent.received, agent.released_s = 0, {}, 0.0
            if not agent.ended:
                alive.append(agent.node)
                generations.append((agent.generation, agent.members, agent.connections, bool(agent.resumed_s)))
                latest_s = max(latest_s, agent.resumed_s)
        return {
            "bytes": received_bytes,
            "received": received,
            "releases_s": released,
            "alive": len(alive),
            "generations": sorted({generation for generation, *_ in generations}),
            "members": sorted({members for _, members, *_ in generations}),
            "connections": sum(connections for _, _, connections, _ in generations),
            "resumed": sum(resumed for *_, resumed in generations),
            "latest_s": latest_s,
        }

    async def beat(self) -> None:
        """Heartbeats, spread over time as those of many machines are."""
        parts, part = 20, 0
        while True:
            await asyncio.sleep(agent_line._HEARTBEAT_S / 10 / parts)
            part = (part + 1) % parts
            now_s = time.monotonic()
            for agent in list(self._agents.values())[part::parts]:
                if not agent.ended:
                    agent.beat(now_s)


async def main() -> None:
    agents = Agents()
    reader = asyncio.StreamReader(limit=1 << 26)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    beat = asyncio.create_task(agents.beat())
    while line := await reader.readline():
        agents.obey(json.loads(line))
    beat.cancel()


if __name__ == "__main__":
    asyncio.run(main())
