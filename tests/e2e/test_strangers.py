"""Another user of the machine, and an agent that lies, against a controller that trains."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from golden import SCRIPT
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

import live
from attacks import (
    hold_idle,
    look_at,
    outcome,
    send_large,
    submission,
    submit_and_reset,
    submit_and_reset_in_the_handshake,
)
from offcut.wire import certificate, messages, tokens
from strangers import NOBODY, stranger

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-3")]

#: The usual limit of a login node, which cannot be raised here.
FEW_FILES = 'ulimit -n 1024 && exec "$@"'


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = live.Running.launch
    monkeypatch.setattr(
        live.Running, "launch", lambda self, *program: launch(self, "/bin/sh", "-c", FEW_FILES, "sh", *program)
    )


def port_of(running: live.Running) -> int:
    return int(json.loads(running.paths.address.read_text())["agents"].partition("://")[2].split("/")[0].split(":")[1])


def train(running: live.Running, name: str, sizes: str) -> str:
    job = running.submit(SCRIPT, "--epochs", "9000", "--pace", "0.05", name=name, sizes=sizes)
    running.until(job, "training", lambda shown: shown["state"] == "running" and shown["steps"] > 3)
    return job


def assert_only(running: live.Running, *jobs: str) -> None:
    assert [job["id"] for job in running.client.get("/v1/status")["jobs"]] == list(jobs)


def test_another_user_gets_nothing_and_stops_nothing(few_files: None, up: Callable, tmp_path: Path) -> None:
    running = up(3)
    first = train(running, "first", "1")
    port, process = port_of(running), psutil.Process(running.process.pid)
    marker = Path("/tmp") / f"{running.paths.root.name}-evil"

    private = [
        running.paths.socket,
        running.paths.agent_key,
        running.paths.journal,
        *running.paths.credentials.iterdir(),
    ]
    assert outcome(look_at, [str(path) for path in private]) == []

    assert outcome(submit_and_reset, port, submission(marker), 40) == NOBODY
    assert_only(running, first)

    before = process.memory_info().rss
    with stranger(send_large, port, 100) as one, stranger(send_large, port, 100) as other:
        assert max(one.recv(), other.recv()) < 100
    assert process.memory_info().rss - before < 30 << 20

    few = process.num_fds()
    with stranger(hold_idle, port, 1200) as crowd:
        assert crowd.recv() > 1000
        assert process.num_fds() < 1000
        # Commands are answered, nodes' agents get in, and a membership of two forms.
        train(running, "second", "2")
        assert_only(running, first, "second-2")
        live.wait_for("the crowd to be sent away", lambda: process.num_fds() < few + 9)
        crowd.send("that is enough")
        assert crowd.recv() < 9

    running.client.post("/v1/jobs/second-2/cancel")
    train(running, "third", "2")
    assert_only(running, first, "second-2", "third-3")
    assert not marker.exists()
    log = (running.paths.root / "controller.log").read_text()
    assert "Traceback" not in log
    assert len(log) < 100_000


@pytest.mark.ci
def test_another_user_gets_nothing_through_tls(state_dir: Path, up: Callable) -> None:
    certificate.create(state_dir / "tls", ["localhost"])
    running = up(1, "--listen", "localhost")
    marker = Path("/tmp") / f"{running.paths.root.name}-evil"
    assert outcome(submit_and_reset_in_the_handshake, port_of(running), submission(marker), 40) == NOBODY
    first = train(running, "first", "1")
    assert_only(running, first)
    assert not marker.exists()
    assert "Traceback" not in (running.paths.root / "controller.log").read_text()


def test_an_agent_that_lies_is_not_believed(up: Callable) -> None:
    """With the true credential of a node that trains something else, or nothing of the sort."""
    running = up(2)
    victim, other = train(running, "victim", "1"), train(running, "other", "1")
    (node,) = running.job(other)["nodes"]
    (file,) = running.paths.credentials.glob(f"{node}-*.token")
    generation = running.job(victim)["generation"]
    true = messages.Hello(node=node, pilot=file.stem)
    address = json.loads(running.paths.address.read_text())["agents"]
    header = {"Authorization": f"Bearer {tokens.read(file)}"}

    async def say(
        hello: messages.Hello | str, *said: messages.Message | str | bytes, quiet_s: float = 0.2
    ) -> list[messages.ToAgent]:
        """What the controller answers until it closes the connection, or has said nothing for `quiet_s`."""
        heard: list[messages.ToAgent] = []
        async with asyncio.timeout(180), connect(address, additional_headers=header, proxy=None, max_size=None) as line:
            with suppress(ConnectionClosed):
                for item in (hello, *said):
                    await line.send(item if isinstance(item, str | bytes) else item.model_dump_json())
                await (await line.ping())
            with suppress(ConnectionClosed, TimeoutError):
                while True:
                    heard.append(messages.to_agent(await asyncio.wait_for(line.recv(), quiet_s)))
        return heard

    def refusal(*said: messages.Message | str | bytes, hello: messages.Hello | str = true) -> str:
        (last,) = [item for item in asyncio.run(say(hello, *said, quiet_s=90.0)) if isinstance(item, messages.Refused)]
        return last.reason

    (its_node,) = running.job(victim)["nodes"]
    for name in (its_node, "stranger"):
        stolen = messages.Hello(node=name, pilot=file.stem)
        assert "credential is for another" in refusal(hello=stolen)
    assert "at most 256 characters" in refusal(hello=true.model_dump_json().replace(node, "n" * 100_000))
    assert "binary" in refusal(b"\xff\x00")
    for absurd in ('"step":-1,"samples":1', '"step":1e30,"samples":1', f'"step":1,"samples":{"9" * 400}'):
        assert "cannot be read" in refusal(f'{{"kind":"progress","job":"{victim}","generation":{generation},{absurd}}}')
    asyncio.run(say(true.model_dump_json().replace(node, "n" * 15_000_000)))
    asyncio.run(
        say(
            true,
            messages.Progress(job=victim, generation=generation, step=10**15, samples=10**15),
            messages.Trained(job=victim, generation=generation, step=10**15),
            messages.Broken(job=victim, incarnation=1, generation=generation, detail="believe me"),
            messages.Exited(job=victim, incarnation=1, outcome="failed", detail="believe me"),
            messages.Note(job=victim, text="believe me"),
            messages.Note(job="nobody's", text="believe me"),
        )
    )
    steps = running.job(victim)["steps"]
    assert steps < 10**9
    shown = running.until(victim, "training on", lambda shown: shown["steps"] > steps + 5)
    assert (shown["state"], shown["generation"]) == ("running", generation)
    assert not any("believe me" in text for text in running.story(victim))
    # Its true agent has dialled in again, and the other job goes on.
    steps = running.job(other)["steps"]
    running.until(other, "training on", lambda shown: shown["steps"] > steps + 5)
    assert "Traceback" not in (running.paths.root / "controller.log").read_text()
