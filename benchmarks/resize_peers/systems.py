"""How each system's members are started, asked to leave, killed and frozen. All begin with three members."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from offcut.errors import OffcutError
from offcut.service.paths import StatePaths
from offcut.wire.client import Client
from resize_peers import training

HERE = Path(__file__).parent
MEMBERS = 3
PATIENCE_S = 180.0


class Failed(Exception):
    """The system did not respond within the limit."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A membership change that was asked for: since when, to which size, and which processes cannot be in it.

    There is more than one size where who joins may do so in the same change.
    """

    at_s: float
    worlds: tuple[int, ...]
    without: frozenset[int]


@dataclass(frozen=True, slots=True)
class Taken:
    """`ms` until the first step of the new membership was done on all its members.

    `steps` whole steps of `step_ms` each were done during it, that one included.
    """

    ms: float
    steps: int
    step_ms: float

    @property
    def stall_ms(self) -> float:
        """The latency minus the steps that were done during it."""
        return self.ms - self.steps * self.step_ms


def wait_for(what: str, found: Callable[[], Any], limit_s: float = PATIENCE_S) -> Any:
    """Poll until `found()` is true; its value. Failed after `limit_s`."""
    give_up_s = time.monotonic() + limit_s
    while not (value := found()):
        if time.monotonic() > give_up_s:
            raise Failed(f"no {what} within {limit_s:g} s")
        time.sleep(0.01)
    return value


class System(ABC):
    """`directory` is empty and goes away afterwards."""

    name: str

    def __init__(self, directory: Path, model: str, work_s: float) -> None:
        self.directory = directory
        notes = directory / "notes"
        notes.mkdir(parents=True)
        self.record = training.Record(notes)
        self.environment = {
            training.ENV_NOTES: str(notes),
            training.ENV_WIDTH: model,
            training.ENV_WORK: str(work_s),
            "OMP_NUM_THREADS": "1",
        }
        self.members: frozenset[int] = frozenset()
        self._logs = (directory / "log").open("ab")

    @abstractmethod
    def start(self) -> None:
        """Start three members and wait until they train together."""

    @abstractmethod
    def join(self) -> Asked:
        """A third member; counted from when its process is up, with everything imported."""

    @abstractmethod
    def leave(self, turn: int) -> Asked:
        """One of three members leaves in good order; it comes back with the next `join`."""

    @abstractmethod
    def kill(self, turn: int) -> Asked:
        """The training process of one of three members is killed (-9)."""

    @abstractmethod
    def freeze(self, turn: int) -> Asked:
        """The training process of one of three members is stopped."""

    @abstractmethod
    def recover(self) -> None:
        """After a kill or a freeze: three members again."""

    @abstractmethod
    def stop(self) -> None:
        """End everything."""

    def await_new(self, asked: Asked, limit_s: float = PATIENCE_S) -> Taken:
        """Wait for the new membership's first step."""

        def look() -> tuple[float, frozenset[int]] | None:
            self.record.refresh()
            return self.record.complete(asked.at_s, asked.worlds, asked.without)

        end_s, self.members = wait_for("step of the new membership", look, limit_s)
        done = {s.step for s in self.record.steps if s.step > 0 and asked.at_s < s.time_s <= end_s}
        return Taken(1000 * (end_s - asked.at_s), len(done), 1000 * self._step_s(asked.at_s))

    def _step_s(self, before_s: float) -> float:
        steps = [s for s in self.record.steps if s.step > 0 and s.time_s <= before_s]
        return training.median_gap_s(steps, steps[-1].pid) if steps else float("nan")

    def settle(self) -> None:
        """Let a few steps pass."""
        since_s = time.monotonic()

        def enough() -> bool:
            self.record.refresh()
            return sum(s.time_s > since_s for s in self.record.steps) >= 5 * len(self.members)

        wait_for("further steps", enough)

    def ready(self, after_s: float, name: str = "") -> training.Step:
        def look() -> training.Step | None:
            self.record.refresh()
            return self.record.ready(after_s, name)

        return wait_for(f"joiner {name}", look)

    def spawn(self, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=self._logs,
            stderr=self._logs,
            start_new_session=True,
        )


class Offcut(System):
    """A controller with three virtual nodes; the training is a job of it."""

    name = "offcut"

    def start(self) -> None:
        self._paths = StatePaths(self.directory / "state")
        self._paths.root.mkdir()
        self._controller = self.spawn(
            *("-m", "offcut", "up", "--nodes", str(MEMBERS), "--state", str(self._paths.root), "--log-json"),
            *("--profiler", "oracle"),  # the members share this machine's cores, so measured curves would show its load
        )
        self._client = Client(self._paths.socket)
        wait_for("controller", self._answers)
        job = {
            "name": "resize",
            "command": [str(HERE / "offcut_script.py")],
            "workdir": str(HERE),
            "env": self.environment,
            "sizes": f"1:{MEMBERS}",
            "max_failures": 1000,
            # Writing a checkpoint is not part of the measurement.
            "checkpoint_age_s": 3600.0,
        }
        self._client.post("/v1/jobs", job)
        self.await_new(Asked(time.monotonic(), (MEMBERS,), frozenset()))

    def _answers(self) -> bool:
        try:
            return bool(self._client.get("/v1/status"))
        except OffcutError:
            return False

    def join(self) -> Asked:
        asked_s = time.monotonic()
        self._client.post("/v1/nodes/offer", {"nodes": [self._away]})
        return Asked(self.ready(asked_s).time_s, (MEMBERS,), frozenset())

    def leave(self, turn: int) -> Asked:
        node = self._away = f"n{turn % MEMBERS + 1:02d}"
        pid = next(pid for pid in self.members if self._name(pid).startswith(node))
        at_s = time.monotonic()
        self._client.post("/v1/nodes/want", {"nodes": [node]})
        return Asked(at_s, (MEMBERS - 1,), frozenset({pid}))

    def kill(self, turn: int) -> Asked:
        return self._strike(turn, signal.SIGKILL)

    def freeze(self, turn: int) -> Asked:
        return self._strike(turn, signal.SIGSTOP)

    def _strike(self, turn: int, number: signal.Signals) -> Asked:
        pid = sorted(self.members)[turn % MEMBERS]
        self._struck_s = time.monotonic()
        os.kill(pid, number)
        # Its successor may be there before the others have found each other.
        return Asked(self._struck_s, (MEMBERS - 1, MEMBERS), frozenset({pid}))

    def recover(self) -> None:
        self.await_new(Asked(self._struck_s, (MEMBERS,), frozenset()))

    def _name(self, pid: int) -> str:
        return next(step.name for step in reversed(self.record.steps) if step.pid == pid)

    def stop(self) -> None:
        self._controller.terminate()
        self._controller.wait(60)


class Torchrun(System):
    """Three agents of torchrun, one worker each, on a rendezvous that the benchmark hosts."""

    name = "torchrun"
    settings = (
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, last_call_timeout=1, keep_alive_interval=1, "
        "keep_alive_max_attempt=3, monitor_interval=0.1"
    )

    def start(self) -> None:
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._started = 0
        began_s = time.monotonic()
        for _ in range(MEMBERS):
            self._start_agent()
        self.await_new(Asked(began_s, (MEMBERS,), frozenset()))

    def _start_agent(self) -> str:
        self._started += 1
        name = f"agent{self._started}"
        self._agents[name] = self.spawn(
            str(HERE / "torchrun_agent.py"),
            *("--nnodes", f"1:{MEMBERS}", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "resize"),
            *("--rdzv-endpoint", f"127.0.0.1:{self._store.port}", "--max-restarts", "1000"),
            *("--monitor-interval", "0.1", "--local-addr", "127.0.0.1", "--rdzv-conf"),
            "is_host=0,last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3",
            *(str(HERE / "torchrun_script.py"), str(self.directory / "checkpoint")),
            **{training.ENV_NAME: name, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        )
        return name

    def join(self) -> Asked:
        began_s = time.monotonic()
        return Asked(self.ready(began_s, self._start_agent()).time_s, (MEMBERS,), self.members)

    def leave(self, turn: int) -> Asked:
        agent = self._agents.pop(list(self._agents)[-1])
        at_s = time.monotonic()
        agent.terminate()
        return Asked(at_s, (MEMBERS - 1,), self.members)

    def kill(self, turn: int) -> Asked:
        return self._strike(signal.SIGKILL)

    def freeze(self, turn: int) -> Asked:
        return self._strike(signal.SIGSTOP)

    def _strike(self, number: signal.Signals) -> Asked:
        newest = list(self._agents)[-1]
        self._victim = next(s.pid for s in reversed(self.record.steps) if s.name == newest and s.step > 0)
        at_s = time.monotonic()
        os.kill(self._victim, number)
        # The agent starts the worker again: the size stays, the workers are all new.
        return Asked(at_s, (MEMBERS,), self.members)

    def recover(self) -> None:
        """Nothing to do: it went back to three members by itself."""

    def stop(self) -> None:
        for agent in self._agents.values():
            agent.kill()
            agent.wait()
        for pid in self.members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Torchft(System):
    """Three replica groups of one process each, and a lighthouse."""

    name = "torchft"
    settings = (
        "lighthouse: join_timeout 200 ms, heartbeat_timeout 1 s, quorum_tick 10 ms; time-outs of group and manager 5 s"
    )

    def start(self) -> None:
        os.environ.setdefault("RUST_LOG", "error")  # the lighthouse tells of every quorum
        from torchft.coordination import LighthouseServer

        self._lighthouse = LighthouseServer(
            bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=200, quorum_tick_ms=10, heartbeat_timeout_ms=1000
        )
        self._replicas: dict[str, subprocess.Popen[bytes]] = {}
        self._started = 0
        began_s = time.monotonic()
        for _ in range(MEMBERS):
            self._start_replica()
        self.await_new(Asked(began_s, (MEMBERS,), frozenset()))

    def _start_replica(self) -> str:
        self._started += 1
        name = f"replica{self._started}"
        self._replicas[name] = self.spawn(
            str(HERE / "torchft_script.py"),
            **{training.ENV_NAME: name, "TORCHFT_LIGHTHOUSE": self._lighthouse.address()},
        )
        return name

    def join(self) -> Asked:
        began_s = time.monotonic()
        return Asked(self.ready(began_s, self._start_replica()).time_s, (MEMBERS,), frozenset())

    def leave(self, turn: int) -> Asked:
        return self._strike(turn, signal.SIGTERM)

    def kill(self, turn: int) -> Asked:
        return self._strike(turn, signal.SIGKILL)

    def freeze(self, turn: int) -> Asked:
        return self._strike(turn, signal.SIGSTOP)

    def _strike(self, turn: int, number: signal.Signals) -> Asked:
        victim = self._victim = self._replicas.pop(list(self._replicas)[turn % MEMBERS])
        at_s = time.monotonic()
        victim.send_signal(number)
        return Asked(at_s, (MEMBERS - 1,), frozenset({victim.pid}))

    def recover(self) -> None:
        self._victim.kill()
        self._victim.wait()
        self.await_new(self.join())

    def stop(self) -> None:
        for replica in self._replicas.values():
            replica.kill()
            replica.wait()
        self._lighthouse.shutdown()
