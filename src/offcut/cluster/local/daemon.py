"""A small batch system for virtual nodes: `python -m offcut.cluster.local.daemon DIRECTORY`.

It knows when its nodes are idle, starts an agent on a claimed node, sends it SIGTERM when the queue wants the node, and
takes the node by force `grace_s` later, as a batch system does. It outlives the
controller, and measures how fast each node was released.

`DIRECTORY/cluster.json` configures it; commands and events are JSON lines over `DIRECTORY/cluster.sock`:
`watch` (begin the event stream with what is idle and held), `begin` (start the clock), `claim`, `release`, `want`,
`offer` (nodes), `statistics`, `stop`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from offcut.cluster.local.schedule import Schedule
from offcut.cluster.local.site import LINE_LIMIT_BYTES
from offcut.process import clocks, unix_socket
from offcut.process.fork_server import Forked
from offcut.process.json_lines import encode_line
from offcut.wire.worker_env import ENV_WORKER_ENV

#: If no controller has been connected for this long, the daemon kills everything and ends.
LINGER_S = 600.0
_IMPORT_PATIENCE_S = 60.0
#: From SIGTERM to SIGKILL for a node that is released: an agent needs a second (Slurm's KillWait is 30).
_KILL_WAIT_S = 5.0
#: This many reclaims are told in the statistics, the newest.
_RECLAIMS = 5_000


class AgentProcess(Protocol):
    """A started agent; see `Forked`."""

    async def wait(self) -> int: ...

    def signal(self, number: int) -> None: ...

    def kill(self) -> None: ...


#: Starts an agent on a node, with these arguments. Raises OSError if that fails.
StartAgent = Callable[[str, list[str]], Awaitable[AgentProcess]]


class _Node:
    """A virtual node. `phase`: busy (the queue uses it), idle, held (our agent runs), taking (wanted while held)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.phase = "busy"
        self.agent: AgentProcess | None = None
        #: Counts the agents on this node, so that a late kill does not hit a later agent.
        self.number = 0
        #: The name by which the controller knows this agent's pilot.
        self.pilot = ""
        #: Released before its agent had started.
        self.released = False
        self.wanted_s: float | None = None
        #: Idle node-seconds so far, and since when it is idle now.
        self.idle_s = 0.0
        self.idle_since_s: float | None = None


class Daemon:
    """`start_agent` starts the agents, if not the fork server in the directory does."""

    def __init__(self, directory: Path, start_agent: StartAgent | None = None) -> None:
        self._directory = directory
        self._start_agent = start_agent or self._fork_agent
        #: How far the wall clock was ahead of the steady one at the start; it may be set.
        self._wall_ahead_s = clocks.wall_s() - clocks.steady_s()
        config = json.loads((directory / "cluster.json").read_text())
        self._grace_s: float = config["grace_s"]
        self._preload: str = config["preload"]
        self._agent_arguments: list[str] = config["agent_arguments"]
        self._agent_env = {**os.environ, ENV_WORKER_ENV: json.dumps(config["worker_env"])}
        self._schedule = Schedule.load(directory / "schedule.json")
        self._nodes = {name: _Node(name) for name in self._schedule.nodes}
        self._watchers: list[asyncio.StreamWriter] = []
        self._children: dict[str, asyncio.subprocess.Process] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._began_s: float | None = None
        self._pilots = 0
        self._reclaims: deque[dict[str, Any]] = deque(maxlen=_RECLAIMS)
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        # Agents cannot ask for it themselves: had this process died meanwhile, they would get another's id.
        parent = str(os.getpid())
        self._spawn(self._keep_running("agents", "offcut.agent.template", str(self._directory / "agents.sock"), parent))
        worker_template = [str(self._directory / "workers.sock"), "--parent", parent, "--preload", self._preload]
        self._spawn(self._keep_running("workers", "offcut.torch.programs.worker_template", *worker_template))
        path = self._directory / "cluster.sock"
        server = await asyncio.start_unix_server(
            self.serve_client, sock=unix_socket.listen(path), limit=LINE_LIMIT_BYTES
        )
        self._spawn(self._end_when_forgotten())
        await self._stopping.wait()
        await self._take_down()
        server.close()
        path.unlink(missing_ok=True)

    def _now_s(self) -> float:
        """Return the wall clock's time at the start plus the steady time since."""
        return clocks.steady_s() + self._wall_ahead_s

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep_running(self, name: str, module: str, *arguments: str) -> None:
        """Run a fork server, and a new one whenever it dies."""
        while True:
            with (self._directory / f"{name}.log").open("ab") as log:
                child = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    module,
                    *arguments,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
                )
            self._children[name] = child
            await child.wait()
            await asyncio.sleep(0.2)

    async def _end_when_forgotten(self) -> None:
        seen_s = clocks.steady_s()
        while clocks.steady_s() - seen_s < LINGER_S and self._directory.is_dir():
            if self._watchers:
                seen_s = clocks.steady_s()
            await asyncio.sleep(1.0)
        self._stopping.set()

    async def _take_down(self) -> None:
        for task in self._tasks:
            task.cancel()
        agents = [node.agent for node in self._nodes.values() if node.agent is not None]
        for agent in agents:
            agent.signal(signal.SIGTERM)
        if agents:
            await asyncio.wait([asyncio.create_task(agent.wait()) for agent in agents], timeout=self._grace_s)
        for agent in agents:
            agent.kill()
        for child in self._children.values():
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    # -- the queue's side -------------------------------------------------------------------------------------------

    async def _follow_schedule(self) -> None:
        assert self._began_s is not None
        for change in self._schedule.changes():
            await asyncio.sleep(max(0.0, self._began_s + change.at_s - self._now_s()))
            self.change(change.idle, change.wanted)

    def change(self, idle: Sequence[str], wanted: Sequence[str]) -> None:
        """Apply all changes of nodes at one instant, as one event."""
        offered = [name for name in idle if self._offer(self._nodes[name])]
        wants = [name for name in wanted if self._want(self._nodes[name])]
        if offered or wants:
            self._send_event(idle=offered, wanted=wants)

    def _offer(self, node: _Node) -> bool:
        if node.phase == "taking":
            # The queue's next job is already over: the node is offered after its release.
            node.wanted_s = None
        if node.phase != "busy":
            return False
        node.phase = "idle"
        node.idle_since_s = node.idle_since_s or self._now_s()
        return True

    def _want(self, node: _Node) -> bool:
        if node.idle_since_s is not None:
            node.idle_s += self._now_s() - node.idle_since_s
            node.idle_since_s = None
        if node.phase == "idle":
            node.phase = "busy"
            return True
        if node.phase != "held":
            return False
        node.phase = "taking"
        node.wanted_s = self._now_s()
        if node.agent is not None:
            node.agent.signal(signal.SIGTERM)
        self._spawn(self._kill_after_grace(node, node.number))
        return True

    async def _kill_after_grace(self, node: _Node, number: int) -> None:
        """Kill the agent when the grace is over: the queue waits no longer."""
        await asyncio.sleep(self._grace_s)
        if node.number == number and node.agent is not None:
            node.agent.kill()

    # -- the controller's side -----------------------------------------------------------------------------------------

    def _claim(self, claims: dict[str, str], controller: dict[str, str]) -> None:
        refused = {}
        for name, pilot in claims.items():
            node = self._nodes.get(name)
            if node is None or node.phase != "idle":
                refused[name] = pilot
                continue
            node.phase = "held"
            node.released = False
            self._pilots += 1
            node.number = self._pilots
            node.pilot = pilot
            self._spawn(self._pilot(node, controller))
        if refused:
            self._send_event(refused=refused)

    async def _pilot(self, node: _Node, controller: dict[str, str]) -> None:
        """Run an agent on the node until it ends."""
        held_s = self._now_s()
        arguments = [
            *("--node", node.name, "--pilot", node.pilot),
            *("--address-file", controller["address_file"]),
            *("--token-file", str(Path(controller["credentials"]) / f"{node.pilot}.token")),
            *("--socket", str(self._directory / f"{node.name}.sock")),
            *("--template", str(self._directory / "workers.sock")),
            *self._agent_arguments,
        ]
        code = 1
        try:
            agent = await self._start_agent(node.name, arguments)
            node.agent = agent
            if node.phase == "taking" or node.released:
                agent.kill()
            code = await agent.wait()
        except OSError:
            pass
        node.agent = None
        self._released(node, held_s, code)

    async def _fork_agent(self, node: str, arguments: list[str]) -> AgentProcess:
        return await Forked.start(
            self._directory / "agents.sock",
            arguments,
            env=self._agent_env,
            workdir=str(self._directory),
            log=self._directory / f"{node}.log",
            patience_s=_IMPORT_PATIENCE_S,
        )

    def _released(self, node: _Node, held_s: float, code: int) -> None:
        now_s = self._now_s()
        if node.wanted_s is not None:
            self._reclaims.append(
                {"node": node.name, "wanted_s": node.wanted_s, "took_s": now_s - node.wanted_s, "killed": code < 0}
            )
        idle_again = node.phase == "held" or (node.phase == "taking" and node.wanted_s is None)
        node.phase = "idle" if idle_again else "busy"
        node.wanted_s = None
        if idle_again:
            node.idle_since_s = node.idle_since_s or now_s
        self._send_event(lost={node.name: node.pilot}, idle=[node.name] if idle_again else [])

    def _release(self, names: Sequence[str]) -> None:
        for name in names:
            node = self._nodes.get(name)
            if node is None or node.phase != "held":
                continue
            node.released = True
            if node.agent is not None:
                node.agent.signal(signal.SIGTERM)
                self._spawn(self._kill_if_frozen(node, node.number))

    async def _kill_if_frozen(self, node: _Node, number: int) -> None:
        """Kill an agent that was told to leave and is frozen, as a batch system does with a cancelled job."""
        await asyncio.sleep(_KILL_WAIT_S)
        if node.number == number and node.agent is not None:
            node.agent.kill()

    # -- connections ------------------------------------------------------------------------------------------------

    def _send_event(self, **event: Any) -> None:
        data = encode_line({"kind": "nodes", "time_s": self._now_s(), **event})
        for writer in self._watchers:
            writer.write(data)

    async def serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Obey the commands of one connection until it ends."""
        try:
            while line := await reader.readline():
                command = json.loads(line)
                answer = self._obey(command, writer)
                if answer is not None:
                    writer.write(encode_line(answer))
                await writer.drain()
        except (OSError, ValueError):
            pass
        finally:
            if writer in self._watchers:
                self._watchers.remove(writer)
            writer.close()

    def _obey(self, command: dict[str, Any], writer: asyncio.StreamWriter) -> dict[str, Any] | None:
        names = command.get("nodes", [])
        unknown = [name for name in names if name not in self._nodes]
        match command["kind"]:
            case "watch":
                held = {node.name: node.pilot for node in self._nodes.values() if node.phase in ("held", "taking")}
                writer.write(encode_line({"kind": "held", "pilots": held}))
                self._watchers.append(writer)
                idle = [node.name for node in self._nodes.values() if node.phase == "idle"]
                writer.write(encode_line({"kind": "nodes", "time_s": self._now_s(), "idle": idle}))
            case "begin" if self._began_s is None:
                self._began_s = self._now_s()
                self._spawn(self._follow_schedule())
            case "claim":
                self._claim(command["claims"], command["controller"])
            case "release":
                self._release(names)
            case "want" | "offer" if unknown:
                return {"kind": "answer", "unknown": unknown}
            case "want":
                self.change([], names)
                return {"kind": "answer", "unknown": []}
            case "offer":
                self.change(names, [])
                return {"kind": "answer", "unknown": []}
            case "statistics":
                return {"kind": "statistics", **self._statistics()}
            case "stop":
                self._stopping.set()
        return None

    def _statistics(self) -> dict[str, Any]:
        now_s = self._now_s()
        idle_s = sum(n.idle_s + (now_s - n.idle_since_s if n.idle_since_s else 0.0) for n in self._nodes.values())
        return {"began_s": self._began_s, "idle_node_s": idle_s, "hand_backs": list(self._reclaims)}


def main() -> None:
    directory = Path(sys.argv[1])
    asyncio.run(Daemon(directory).run())
    # What is left of our process group (an agent that was being forked, for example) is killed too; we lead it.
    if os.getpgrp() == os.getpid():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with suppress(ProcessLookupError):
            os.killpg(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
