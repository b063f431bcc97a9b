"""An agent obeys the queue even if file systems or programs hang, and ends by itself when no controller needs it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from websockets.asyncio.server import ServerConnection, serve

from live import wait_for
from offcut.wire import messages, tokens

#: What is promised is 0.8 s and the exit; a busy machine gets this.
SOON_S = 5.0


@pytest.fixture
def place() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="offcut-test-"))
    tokens.create(root / "token")
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def agent(place: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """`agent(*options)` starts one whose address file is `place / "address.json"`."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*options: str) -> subprocess.Popen[bytes]:
        command = [
            *(sys.executable, "-m", "offcut.agent", "--node", "n1", "--pilot", "p1"),
            *("--address-file", str(place / "address.json"), "--token-file", str(place / "token")),
            *("--socket", str(place / "agent.sock")),
            *options,
        ]
        with (place / "agent.log").open("wb") as log:
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        wait_for("the agent", (place / "agent.sock").exists)
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def obeys(process: subprocess.Popen[bytes]) -> None:
    """Return whether the agent has ended soon after SIGTERM."""
    before_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    assert time.monotonic() - before_s < SOON_S


def test_sigterm_is_obeyed_while_the_shared_file_system_hangs(place: Path, agent: Callable) -> None:
    # A process that opens it waits for a writer, as for a file server that does not answer.
    os.mkfifo(place / "address.json")
    process = agent()
    time.sleep(0.5)
    obeys(process)


def test_without_a_controller_an_empty_agent_ends_by_itself(place: Path, agent: Callable) -> None:
    os.mkfifo(place / "address.json")
    process = agent("--empty-limit-s", "0.5", "--orphan-limit-s", "600")
    assert process.wait(60) == 0
    assert "no_controller" in (place / "agent.log").read_text()


class Controller:
    """A stand-in for the controller: `take` returns what agents send."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.heard: list[messages.FromAgent] = []
        self.lines: list[ServerConnection] = []

    def said(self, kind: str) -> list[Any]:
        return [message for message in self.heard if message.kind == kind]

    async def until(self, kind: str) -> Any:
        async with asyncio.timeout(60):
            while not self.said(kind):
                await asyncio.sleep(0.01)
        return self.said(kind)[-1]

    async def send(self, message: messages.Message) -> None:
        await self.lines[-1].send(message.model_dump_json())


@asynccontextmanager
async def controller(place: Path) -> AsyncIterator[Controller]:
    async def talk(line: ServerConnection) -> None:
        stand_in.lines.append(line)
        async for data in line:
            stand_in.heard.append(messages.from_agent(data))

    async with serve(talk, "127.0.0.1", 0) as server:
        stand_in = Controller(next(iter(server.sockets)).getsockname()[1])
        whole = place / "address.new"
        whole.write_text(json.dumps({"agents": f"ws://127.0.0.1:{stand_in.port}/v1/agents"}))
        whole.replace(place / "address.json")
        yield stand_in


def launch(place: Path, script: str, **fields: Any) -> messages.Start:
    (place / "train.py").write_text(script)
    job = {
        "job": "a",
        "command": ("train.py",),
        "workdir": str(place),
        "directory": str(place / "job"),
        "env": {"PYTHONPATH": os.pathsep.join(sys.path)},
    }
    return messages.Start(launch=messages.Launch.model_validate(job | fields), incarnation=1)


SLEEPS = "import time\ntime.sleep(600)\n"
DEAF = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPS


def test_sigterm_is_obeyed_while_a_worker_s_log_cannot_be_opened(place: Path, agent: Callable) -> None:
    async def scenario() -> None:
        async with controller(place) as stand_in:
            process = agent()
            await stand_in.until("hello")
            logs = place / "job" / "logs"
            logs.mkdir(parents=True)
            # Opened for appending, it waits for a reader.
            os.mkfifo(logs / "n1#1:0.log")
            await stand_in.send(launch(place, SLEEPS))
            await asyncio.sleep(0.5)
            obeys(process)

    asyncio.run(scenario())


def test_a_wanted_node_is_released_with_its_worker_though_the_controller_has_gone(place: Path, agent: Callable) -> None:
    async def scenario() -> None:
        async with controller(place) as stand_in:
            process = agent()
            await stand_in.until("hello")
            await stand_in.send(launch(place, DEAF, mode="restart"))
            ready = await stand_in.until("ready")
            member = messages.GenerationMember(node="n1", incarnation=1)
            generation = messages.NewGeneration(
                job="a", generation=1, members=(member,), store=ready.address, abort=False
            )
            await stand_in.send(generation)
            await stand_in.until("formed")
            (worker,) = psutil.Process(process.pid).children(recursive=True)
            (place / "address.json").unlink()
            os.mkfifo(place / "address.json")
            await stand_in.lines[-1].close()
        obeys(process)
        wait_for("its worker to end", lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)

    asyncio.run(scenario())


@pytest.mark.parametrize("by_batch_system", [True, False])
def test_the_controller_hears_at_once_that_the_batch_system_wants_the_node(
    place: Path, agent: Callable, by_batch_system: bool
) -> None:
    async def scenario() -> None:
        async with controller(place) as stand_in:
            process = agent()
            await stand_in.until("hello")
            await stand_in.send(launch(place, SLEEPS, mode="restart"))
            await stand_in.until("ready")
            if by_batch_system:
                process.send_signal(signal.SIGTERM)
            else:
                await stand_in.send(messages.ReleaseNode())
            await stand_in.until("exited")
            kinds = [message.kind for message in stand_in.heard]
            assert ("node_wanted" in kinds[: kinds.index("exited")]) == by_batch_system
            await asyncio.to_thread(process.wait, 60)

    asyncio.run(scenario())


STUCK = """
import subprocess, sys, threading
from offcut.agent.agent_exit_watchdog import ExitWatchdog
worker = subprocess.Popen(["sleep", "600"], start_new_session=True)
end = ExitWatchdog(0.2, lambda: None, lambda: [worker.pid])
end.listen()
print(worker.pid, flush=True)
open(sys.argv[1])
"""


def test_the_watchdog_ends_a_program_that_hangs(place: Path) -> None:
    os.mkfifo(place / "hangs")
    command = [sys.executable, "-c", STUCK, str(place / "hangs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        worker = psutil.Process(int(program.stdout.readline()))
        obeys(program)
        assert program.returncode == 0
    wait_for("its worker to end", lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)


def test_an_agent_with_workers_outlives_its_controller_for_as_long_as_it_is_told(place: Path, agent: Callable) -> None:
    async def scenario() -> None:
        async with controller(place) as stand_in:
            process = agent("--empty-limit-s", "60", "--orphan-limit-s", "2")
            await stand_in.until("hello")
            await stand_in.send(launch(place, SLEEPS, mode="restart"))
            await stand_in.until("ready")
            # It counts as connected after a while.
            await asyncio.sleep(1.3)
            (place / "address.json").unlink()
        before_s = time.monotonic()
        assert process.wait(60) == 0
        assert time.monotonic() - before_s > 1.5

    asyncio.run(scenario())


def test_a_note_of_any_length_costs_no_worker(place: Path, agent: Callable) -> None:
    script = (
        "import os, time\n"
        "from offcut.wire.worker_env import ENV_AGENT, ENV_WORKER\n"
        "from offcut.wire.worker_messages import Beat, WorkerHello, WorkerNote, connect\n"
        "agent = connect(os.environ[ENV_AGENT])\n"
        "agent.send(WorkerHello(worker=os.environ[ENV_WORKER]))\n"
        "agent.send(WorkerNote(text='long ' * 100_000))\n"
        "agent.send(WorkerNote(text='after it'))\n"
        "while True:\n"
        "    agent.send(Beat())\n"
        "    time.sleep(0.1)\n"
    )

    async def scenario() -> None:
        async with controller(place) as stand_in:
            process = agent()
            await stand_in.until("hello")
            await stand_in.send(launch(place, script))
            async with asyncio.timeout(60):
                while len(stand_in.said("note")) < 2:
                    assert not stand_in.said("exited"), stand_in.said("exited")
                    await asyncio.sleep(0.01)
            long, after = stand_in.said("note")
            assert long.text.endswith("(cut: it had 500,000 characters)")
            assert len(long.text) < 5000
            assert after.text == "after it"
            obeys(process)

    asyncio.run(scenario())


def test_a_line_that_cannot_be_read_ends_its_connection_and_is_logged_in_one_sentence(
    place: Path, agent: Callable
) -> None:
    script = (
        "import os, socket, sys\n"
        "from offcut.wire.worker_env import ENV_AGENT, ENV_WORKER\n"
        "from offcut.wire.worker_messages import WorkerHello, encode\n"
        "agent = socket.socket(socket.AF_UNIX)\n"
        "agent.connect(os.environ[ENV_AGENT])\n"
        "agent.sendall(encode(WorkerHello(worker=os.environ[ENV_WORKER])))\n"
        'agent.sendall(b\'{"kind":"beat","step":"x"}\\n\')\n'
        "agent.recv(1)\n"
        "sys.exit('the agent has closed the connection')\n"
    )

    async def scenario() -> None:
        async with controller(place) as stand_in:
            process = agent()
            await stand_in.until("hello")
            await stand_in.send(launch(place, script))
            exited = await stand_in.until("exited")
            assert exited.outcome == "failed"
            assert exited.detail == "the agent has closed the connection"
            obeys(process)

    asyncio.run(scenario())
    log = (place / "agent.log").read_text()
    assert "A message from a worker cannot be read: beat.step: Extra inputs are not permitted." in log
    assert "Traceback" not in log
