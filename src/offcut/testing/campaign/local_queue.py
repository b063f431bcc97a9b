"""The simulated local batch system: the daemon's own code in a simulated process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

from offcut.cluster.local.daemon import Daemon
from offcut.cluster.local.schedule import Schedule
from offcut.testing.campaign.commons import Commons
from offcut.testing.campaign.nodes import SimulatedAgent
from offcut.testing.campaign.pipes import Pipe
from offcut.testing.campaign.simulated_loop import Process


class LocalQueue:
    """The queue's side of the nodes: which are idle, which are wanted, and the agents that run there."""

    def __init__(self, world: Commons, nodes: Sequence[str], start_agent: Callable[[str, str], SimulatedAgent]) -> None:
        """`start_agent` starts an agent on a node, for a pilot."""
        self._world = world
        self._start = start_agent
        self.process = Process("daemon", world.loop, world.wall_of("daemon"))
        directory = world.directory / "cluster"
        directory.mkdir(mode=0o700)
        (directory / "cluster.json").write_text(
            json.dumps({"grace_s": 2.0, "preload": "", "agent_arguments": [], "worker_env": {}})
        )
        Schedule(tuple(nodes), ()).save(directory / "schedule.json")
        self._daemon: Daemon = self.process.context.run(Daemon, directory, self._start_agent)

    async def _start_agent(self, node: str, arguments: list[str]) -> SimulatedAgent:
        await asyncio.sleep(self._world.draw(f"fork {node}", 0.01, 0.1))
        return self._start(node, arguments[arguments.index("--pilot") + 1])

    async def open_connection(self, client: Process) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect a controller to the daemon."""
        random = self._world.stream(f"daemon and {client.name}")
        pipe = Pipe(self._world.loop, (client, self.process), (0, 0), lambda: random.uniform(1e-4, 5e-3))
        self.process.spawn(self._daemon.serve_client(pipe.readers[1], pipe.writers[1]))  # type: ignore[arg-type]
        return pipe.readers[0], pipe.writers[0]  # type: ignore[return-value]

    def change(self, idle: Sequence[str] = (), wanted: Sequence[str] = ()) -> None:
        """Let the queue leave nodes idle, and want others."""
        self._world.trace.event("queue", f"idle {list(idle)} wanted {list(wanted)}")
        self.process.call(self._daemon.change, idle, wanted)
