"""What a controller costs with a thousand nodes and more: bytes sent, processor time, and how soon it answers.

The real controller (`offcut up`, a process of its own with its journal, solver and rendezvous store) and the real wire
(a WebSocket connection per agent, over loopback, with `--tls` behind TLS). Stand-ins: the batch system, which is this
process and speaks the protocol of the local cluster's daemon, and the agents, of which a few processes hold some
hundred each (see `service_load_agents.py`); there are no workers. One job may have 1 to N nodes and is given all N.

Figures, for N nodes:

- `leave_mb`, `leave_cpu_s`: N/2 of the N members leave by themselves at instants drawn evenly from 5 s, as when the
  queue wants their nodes and tells the agents first. From the first instant until every agent that is left has been
  told the generation of the N/2 that stay, and nothing more than heartbeats' answers is sent: MB (10^6 bytes) that the
  agents' sockets received, and seconds of processor time (user and system) of the controller's process. Its solver and
  rendezvous store are processes of their own and not in it.
- `rest_cpu_share`: the controller's processor time divided by the time that passes while N agents are connected, the
  job trains, and nothing changes: agents beat, members tell their pace, the first rank its progress.
- `restart_s`: the controller is killed (SIGKILL) and started again at once with the same state directory: seconds from
  the start of the new process until every one of the N agents is connected and has been told the job's generation. No
  node may be lost by that.
- `storm_p99_s`: all N nodes are wanted at one instant: seconds from the instant at which the batch system tells the
  controller until an agent has received the word to hand its node back; the 99th percentile over the agents. The real
  agents need not wait for that word: the batch system tells them itself.

Stub agents and the controller share the machine's cores: on few cores the times are longer than on a login node. The
aims: at most 50 MB and 2 s for 500 of 1,000, 3 % of a core, 5 s, 1 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import setting

from offcut.process.json_lines import encode_line
from offcut.process.unix_socket import listen
from offcut.wire.client import Client

SEED = 1
LEAVE_S = 5.0
#: A thousand names fit into a line.
LINE_BYTES = 1 << 26
#: How long anything may take before the benchmark gives up.
PATIENCE_S = 300.0
AIMS = {"leave_500_mb": 50.0, "leave_500_cpu_s": 2.0, "rest_cpu_share": 0.03, "restart_s": 5.0, "storm_p99_s": 1.0}


class Host:
    """A process of stub agents."""

    def __init__(self, process: asyncio.subprocess.Process, lost: Callable[[dict[str, str]], None]) -> None:
        self._process = process
        self._lost = lost
        self._looks: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, lost: Callable[[dict[str, str]], None]) -> Host:
        script = Path(__file__).with_name("service_load_agents.py")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(script),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 26,
        )
        return cls(process, lost)

    def tell(self, **command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write((json.dumps(command) + "\n").encode())

    async def look(self) -> dict[str, Any]:
        self.tell(do="look")
        return await asyncio.wait_for(self._looks.get(), 60.0)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            said = json.loads(line)
            if "lost" in said:
                self._lost(said["lost"])
            else:
                self._looks.put_nowait(said["look"])

    async def end(self) -> None:
        self._task.cancel()
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


class BatchSystem:
    """Speaks the protocol of `offcut.cluster.local.daemon`; its nodes' agents are stubs."""

    def __init__(self, nodes: int) -> None:
        self.names = [f"nid{i:05d}" for i in range(1, nodes + 1)]
        self.phase = dict.fromkeys(self.names, "idle")
        self._pilots: dict[str, str] = {}
        self._watchers: list[asyncio.StreamWriter] = []
        self.hosts: list[Host] = []
        self.began_s = time.time()

    async def start(self, socket: Path, hosts: int) -> None:
        self.hosts = [await Host.start(self._lost) for _ in range(hosts)]
        self._server = await asyncio.start_unix_server(self._serve, sock=listen(socket), limit=LINE_BYTES)

    def host(self, node: str) -> Host:
        return self.hosts[int(node[3:]) % len(self.hosts)]

    def tell(self, **event: Any) -> None:
        data = encode_line({"kind": "nodes", "time_s": time.time(), **event})
        for writer in self._watchers:
            writer.write(data)

    def want(self, names: list[str]) -> None:
        """The queue wants all of these at one instant."""
        for name in names:
            self.phase[name] = "taking" if self.phase[name] == "held" else "busy"
        self.tell(wanted=names)

    def leave(self, after_s: dict[str, float]) -> None:
        """The queue wants these nodes: each agent is told after that time, and the controller hears of it from them."""
        for name in after_s:
            self.phase[name] = "taking"
        for host in self.hosts:
            host.tell(do="leave", nodes={name: s for name, s in after_s.items() if self.host(name) is host})

    def offer(self, names: list[str]) -> None:
        offered = [name for name in names if self.phase[name] == "busy"]
        self.phase.update(dict.fromkeys(offered, "idle"))
        self.tell(idle=offered)

    def _lost(self, pilots: dict[str, str]) -> None:
        idle = [name for name in pilots if self.phase[name] == "held"]
        for name in pilots:
            self.phase[name] = "idle" if name in idle else "busy"
            self._pilots.pop(name, None)
        self.tell(lost=pilots, idle=idle)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError):
            while line := await reader.readline():
                self._obey(json.loads(line), writer)
                await writer.drain()
        if writer in self._watchers:
            self._watchers.remove(writer)
        writer.close()

    def _obey(self, command: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        match command["kind"]:
            case "watch":
                writer.write(encode_line({"kind": "held", "pilots": self._pilots}))
                self._watchers.append(writer)
                idle = [name for name in self.names if self.phase[name] == "idle"]
                writer.write(encode_line({"kind": "nodes", "time_s": time.time(), "idle": idle}))
            case "claim":
                claims = {n: p for n, p in command["claims"].items() if self.phase[n] == "idle"}
                self.phase.update(dict.fromkeys(claims, "held"))
                self._pilots.update(claims)
                for host in self.hosts:
                    own = {n: p for n, p in claims.items() if self.host(n) is host}
                    host.tell(do="claim", claims=own, controller=command["controller"])
            case "statistics":
                told = {"kind": "statistics", "began_s": self.began_s, "idle_node_s": 0.0, "hand_backs": []}
                writer.write(encode_line(told))


class Controller:
    """The process of `offcut up`."""

    def __init__(self, state: Path, *, tls: bool) -> None:
        self.state = state
        self._tls = tls
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        offcut, where = str(Path(sys.executable).with_name("offcut")), ["--state", str(self.state)]
        command = [offcut, "up", *where]
        if self._tls:
            command += ["--listen", "127.0.0.1"]
            if not (self.state / "tls").exists():
                subprocess.run([offcut, "certificate", "--host", "127.0.0.1", *where], check=True, capture_output=True)
        config = self.state / "load.toml"
        config.write_text('[settings]\nprofiler = "oracle"\nboot_limit_s = 300.0\nready_limit_s = 300.0\n')
        with (self.state / "load.log").open("ab") as log:
            self.process = subprocess.Popen([*command, "--config", str(config)], stdout=log, stderr=log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def cpu_s(self) -> float:
        """User and system time so far, of all its threads."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        assert self.process is not None
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024

    async def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        def call() -> Any:
            with Client(self.state / "control.sock", timeout_s=60.0) as client:
                return client.post(path, body) if body is not None else client.get(path)

        return await asyncio.to_thread(call)


async def look(batch: BatchSystem) -> dict[str, Any]:
    """What all stub agents have received since the last look, and how they are."""
    each = [await host.look() for host in batch.hosts]
    received: dict[str, int] = {}
    for one in each:
        for kind, count in one["received"].items():
            received[kind] = received.get(kind, 0) + count
    sums = {key: sum(one[key] for one in each) for key in ("bytes", "alive", "connections", "resumed")}
    sets = {key: sorted({value for one in each for value in one[key]}) for key in ("generations", "members")}
    return {
        **sums,
        **sets,
        "received": received,
        "releases_s": [s for one in each for s in one["releases_s"]],
        "latest_s": max(one["latest_s"] for one in each),
    }


class Window:
    """Adds up looks until something holds."""

    def __init__(self, batch: BatchSystem, controller: Controller, since_s: float = 0.0) -> None:
        self._batch = batch
        self.since_s, self._cpu_s = since_s, 0.0
        self._controller = controller
        self.bytes = 0
        self.received: dict[str, int] = {}
        self.releases_s: list[float] = []

    async def begin(self) -> Window:
        await look(self._batch)
        self.since_s, self._cpu_s = time.monotonic(), self._controller.cpu_s()
        return self

    async def until(self, holds: Callable[[dict[str, Any]], bool], what: str, every_s: float = 0.25) -> dict[str, Any]:
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            seen = await look(self._batch)
            self.bytes += seen["bytes"]
            self.releases_s += seen["releases_s"]
            for kind, count in seen["received"].items():
                self.received[kind] = self.received.get(kind, 0) + count
            if holds(seen):
                return seen
            if time.monotonic() > give_up_s:
                raise SystemExit(f"{what}: not within {PATIENCE_S:g} s; the agents: {seen}")
            await asyncio.sleep(every_s)

    def figures(self) -> dict[str, Any]:
        return {
            "took_s": time.monotonic() - self.since_s,
            "mb": self.bytes / 1e6,
            "cpu_s": self._controller.cpu_s() - self._cpu_s,
            "messages": sum(self.received.values()),
            "generation_messages": sum(n for kind, n in self.received.items() if kind.startswith("generation")),
        }


async def grown(window: Window, nodes: int) -> dict[str, Any]:
    """All nodes are up, and all are members of one generation that every agent knows."""
    return await window.until(
        lambda seen: seen["alive"] == nodes and len(seen["generations"]) == 1 and seen["members"] == [nodes],
        f"one generation of {nodes} members",
    )


class Run:
    """One controller with `nodes` nodes and a job; every measurement leaves it in the state that the next one needs."""

    def __init__(
        self, nodes: int, rest_s: float, state: Path, progress: Callable[[str], None], *, tls: bool = False
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self._nodes = nodes
        self._rest_s = rest_s
        self._state = state
        self._progress = progress
        self._batch, self._controller = BatchSystem(nodes), Controller(state, tls=tls)
        self._leaving = random.Random(SEED).sample(self._batch.names, nodes // 2)

    async def all(self) -> None:
        try:
            (self._state / "cluster").mkdir(mode=0o700)
            await self._batch.start(self._state / "cluster" / "cluster.sock", hosts=2 if self._nodes <= 1000 else 4)
            for measurement in (self._start, self._rest, self._restart, self._leave, self._grow, self._storm):
                await measurement()
                await asyncio.sleep(2.0)
        finally:
            self._controller.kill()
            for host in self._batch.hosts:
                await host.end()

    def _note(self, what: str, row: dict[str, Any]) -> None:
        self.rows.append({"nodes": self._nodes, "what": what, **row})
        shown = "  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
        self._progress(f"{self._nodes:6} {what:8} {shown}")

    async def _window(self) -> Window:
        return await Window(self._batch, self._controller).begin()

    async def _start(self) -> None:
        self._controller.start()
        while not (self._state / "address.json").exists() or not (self._state / "control.sock").exists():
            if not self._controller.runs():
                raise SystemExit((self._state / "load.log").read_text()[-2000:])
            await asyncio.sleep(0.05)
        window = await self._window()
        curve = {"nodes": [0, self._nodes], "rate": [0.0, float(self._nodes)]}
        job = {"name": "load", "command": ["true"], "sizes": f"1:{self._nodes}", "max_failures": 1000, "curve": curve}
        await self._controller.ask("/v1/jobs", job)
        await grown(window, self._nodes)
        self._note("start", window.figures())

    async def _rest(self) -> None:
        window = await self._window()
        await asyncio.sleep(self._rest_s)
        await window.until(lambda seen: True, "rest")
        figures = window.figures()
        share = figures["cpu_s"] / figures["took_s"]
        self._note("rest", {**figures, "cpu_share": share, "mib": self._controller.resident_mib()})

    async def _restart(self) -> None:
        before = await look(self._batch)
        self._controller.kill()
        (self._state / "address.json").unlink(missing_ok=True)
        began_s = time.monotonic()
        self._controller.start()
        window = Window(self._batch, self._controller, since_s=began_s)
        seen = await window.until(
            lambda seen: (
                # One that is refused while too many dial at once dials again.
                seen["connections"] >= before["connections"] + self._nodes and seen["resumed"] == seen["alive"]
            ),
            "all agents back",
        )
        complete = window.figures()
        await asyncio.sleep(3.0)
        lost = self._nodes - (await look(self._batch))["alive"]
        self._note("restart", {**complete, "restart_s": seen["latest_s"] - began_s, "lost": lost})
        await grown(window, self._nodes)

    async def _leave(self) -> None:
        draw, stay = random.Random(SEED), self._nodes - len(self._leaving)
        window = await self._window()
        self._batch.leave({name: draw.uniform(0.0, LEAVE_S) for name in self._leaving})
        await window.until(
            lambda seen: (
                seen["alive"] == stay
                and len(seen["generations"]) == 1
                and seen["members"] == [stay]
                and seen["bytes"] < 1000
            ),
            "the generation of those that stay",
            every_s=0.5,
        )
        self._note("leave", window.figures())

    async def _grow(self) -> None:
        window = await self._window()
        self._batch.offer(self._leaving)
        await grown(window, self._nodes)
        self._note("grow", window.figures())

    async def _storm(self) -> None:
        window = await self._window()
        wanted_s = time.monotonic()
        self._batch.want(self._batch.names)
        await window.until(lambda seen: seen["alive"] == 0, "all nodes released")
        waits = sorted(s - wanted_s for s in window.releases_s)
        if len(waits) != self._nodes:
            raise SystemExit(f"{self._nodes - len(waits)} agents were never told to hand their node back.")
        worst = {
            "p50_s": statistics.median(waits),
            "p99_s": waits[math.ceil(0.99 * len(waits)) - 1],
            "max_s": waits[-1],
        }
        self._note("storm", {**window.figures(), **worst})


def summary(rows: list[dict[str, Any]], nodes: int) -> dict[str, float]:
    found = {row["what"]: row for row in rows if row["nodes"] == nodes}
    return {
        "leave_500_mb": found["leave"]["mb"],
        "leave_500_cpu_s": found["leave"]["cpu_s"],
        "rest_cpu_share": found["rest"]["cpu_share"],
        "restart_s": found["restart"]["restart_s"],
        "storm_p99_s": found["storm"]["p99_s"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="1,000 nodes only")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--nodes", type=int, action="append", help="instead of 1,000 and 5,000")
    parser.add_argument("--tls", action="store_true", help="agents dial over TLS")
    parser.add_argument("--keep", action="store_true", help="keep the state directory and its log")
    given = parser.parse_args()
    machine = setting.made_with("websockets", "pydantic")
    print(f"{machine}; seed {SEED}; {'TLS' if given.tls else 'no TLS'}", file=sys.stderr)

    def progress(line: str) -> None:
        print(line, file=sys.stderr if given.json else sys.stdout, flush=True)

    rows: list[dict[str, Any]] = []
    sizes = given.nodes or ([1000] if given.quick else [1000, 5000])
    for nodes in sizes:
        state = Path(tempfile.mkdtemp(prefix="offcut-load-"))
        try:
            run = Run(nodes, 10.0 if given.quick else 30.0, state, progress, tls=given.tls)
            asyncio.run(run.all())
            rows += run.rows
        finally:
            if given.keep:
                progress(f"kept: {state}")
            else:
                shutil.rmtree(state, ignore_errors=True)
    told = summary(rows, sizes[0])
    for name, value in told.items():
        aim = f"   aim {AIMS[name]:g}" if sizes[0] == 1000 else ""
        progress(f"{name:16} {value:8.3f}{aim}")
    if given.json:
        print(json.dumps({"machine": machine, "seed": SEED, "tls": given.tls, "rows": rows, "summary": told}, indent=2))


if __name__ == "__main__":
    main()
