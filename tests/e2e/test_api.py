"""Access to the API: tokens, versions, and the commands about live jobs and nodes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from golden import SCRIPT
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from live import Running, prepare_nodes, wait_for
from offcut.errors import InputError
from offcut.wire import messages
from offcut.wire.credentials import Credentials, Identity

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-1")]


def offcut(running, *arguments: str) -> Any:
    """Return what a command prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "offcut", *arguments, "--json", "--state", str(running.paths.root)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def refusal(address: str, token: str, hello: str) -> messages.Refused:
    with connect(address, additional_headers={"Authorization": f"Bearer {token}"}) as socket:
        socket.send(hello)
        message = messages.to_agent(socket.recv(timeout=60))
    assert isinstance(message, messages.Refused)
    return message


def test_tokens_and_versions(running: Running) -> None:
    prepare_nodes(running, ["n01"])
    address = json.loads(running.paths.address.read_text())["agents"]
    credentials = Credentials.load(running.paths.agent_key, running.paths.credentials)
    token = credentials.of_identity(Identity("n01", "p"))
    hello = messages.Hello(node="n01", pilot="p").model_dump_json()

    for headers in ({}, {"Authorization": "Bearer guessed"}, {"Authorization": token}):
        with pytest.raises(InvalidStatus) as refused:
            connect(address, additional_headers=headers)
        assert refused.value.response.status_code == 401
    old = refusal(address, token, hello.replace(f'"version":{messages.VERSION}', '"version":0'))
    assert old.fatal
    assert "message version 0" in old.reason
    assert refusal(address, token, '{"kind":"nonsense"}').fatal
    assert "is over" in refusal(address, token, hello).reason

    # Commands are not served there, whatever is shown.
    http = address.replace("ws://", "http://").replace("/v1/agents", "")
    for path in ("/v1/status", "/v1/jobs", "/docs", "/openapi.json", "/v1/agents"):
        for headers in ({}, {"Authorization": f"Bearer {token}"}):
            assert httpx.get(http + path, headers=headers).status_code in (401, 426)
    assert running.paths.agent_key.stat().st_mode & 0o077 == 0
    assert running.paths.socket.stat().st_mode & 0o077 == 0

    too_large = [sys.executable, "-m", "offcut", "submit", str(SCRIPT), "--state", str(running.paths.root), "--"]
    done = subprocess.run([*too_large, *["x" * 100_000] * 12], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "larger than 1 MiB" in done.stderr
    assert "Traceback" not in done.stderr


def test_commands_about_a_live_job(up: Callable[..., Running]) -> None:
    running = up(3)  # of its own: it looks at all that was recorded
    job = running.submit(SCRIPT, "--epochs", "2000", "--pace", "0.05", name="long", sizes="1:3")
    running.until(job, "three nodes", lambda shown: shown["size"] == 3 and shown["steps"] > 10)

    told = offcut(running, "why", "long")
    assert told["decision"]["nodes"] == 3
    assert told["decision"]["cause"] == "bound"
    assert any("largest size" in line for line in told["words"])

    assert offcut(running, "change", "long", "--sizes", "1:2", "--weight", "3")["sizes"] == "1:2"
    shrunk = running.until(job, "two nodes", lambda shown: shown["size"] == 2)
    running.client.post("/v1/nodes/want", {"nodes": shrunk["nodes"][:1]})
    wait_for("its release", lambda: sample(offcut(running, "metrics"), "offcut_release_seconds_count") == 1)
    running.client.post("/v1/nodes/offer", {"nodes": shrunk["nodes"][:1]})
    running.until(job, "two nodes again", lambda shown: shown["size"] == 2)

    offcut(running, "pause", "long")
    paused = running.until(job, "no node", lambda shown: shown["state"] == "paused" and shown["size"] == 0)
    offcut(running, "resume", "long")
    resumed = running.until(job, "going on", lambda shown: shown["size"] == 2 and shown["steps"] > paused["steps"] + 5)
    assert resumed["steps_redone"] == 0

    offcut(running, "release", "--all")
    running.until(job, "no node", lambda shown: shown["size"] == 0)
    status = offcut(running, "status")
    assert not status["claiming"]
    assert any("released by hand" in line for line in offcut(running, "why", "long")["words"])
    offcut(running, "release", "--undo")
    running.until(job, "going on", lambda shown: shown["size"] == 2)

    assert offcut(running, "logs", "long")
    offcut(running, "cancel", "long")
    assert running.job(job)["state"] == "cancelled"

    recorded = [(entry["status"], *entry["events"]) for entry in offcut(running, "audit")]
    kinds = [event["kind"] for _, *caused in recorded for event in caused]
    assert kinds == [
        *("job_submitted", "job_changed", "job_paused", "job_resumed"),
        *("release_asked", "claiming_resumed", "job_cancelled"),
    ]

    with pytest.raises(InputError, match="no job called short"):
        running.client.get("/v1/jobs/short")
    with pytest.raises(InputError, match="No node is called n99"):
        running.client.post("/v1/nodes/want", {"nodes": ["n99"]})
    with pytest.raises(InputError, match="ended already"):
        running.client.post(f"/v1/jobs/{job}/pause")


def sample(metrics: list[dict[str, Any]], name: str) -> float:
    (found,) = [sample["value"] for metric in metrics for sample in metric["samples"] if sample["name"] == name]
    return float(found)


def test_commands_that_wait_for_a_job_end_with_its_exit_code(running: Running, tmp_path: Path) -> None:
    prepare_nodes(running, ["n01", "n02"])
    bad = tmp_path / "bad.py"
    bad.write_text("import sys\nprint('before')\nprint('OSError: no data', flush=True)\nsys.exit(3)\n")
    state = ("--state", str(running.paths.root))
    submit = ["submit", str(bad), "--mode", "restart", "--max-failures", "0", "--sizes", "1", "--follow", *state]
    done = subprocess.run([sys.executable, "-m", "offcut", *submit], capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stdout.splitlines()[1:] == ["before", "OSError: no data"]
    assert re.fullmatch(r"bad-\d+ has failed with exit code 3: OSError: no data", done.stderr.splitlines()[-1])

    steps = 20 * -(-500 // 48)
    job = running.submit(SCRIPT, "--epochs", "20", "--pace", "0.02", name="good", sizes="1:2")
    seen = running.until(job, "how long it will be", lambda shown: shown["time_left_s"] is not None)
    assert seen["total_steps"] == steps
    waited = [sys.executable, "-m", "offcut", "wait", "good", *state]
    assert subprocess.run(waited, capture_output=True, text=True, check=True).stdout == f"{job} is finished.\n"
    points = wait_for("the last loss", lambda: at_step(offcut(running, "loss", "good")["points"], steps))
    assert points["step"] == sorted(set(points["step"]))
    assert points["loss"][-1] == running.job(job)["loss"]


def at_step(points: dict[str, Any], step: int) -> dict[str, Any] | None:
    return points if points["step"] and points["step"][-1] == step else None
