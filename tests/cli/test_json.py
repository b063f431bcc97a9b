"""Every command takes --json: standard output is one JSON document and nothing else, whether it succeeds or fails."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from fake_api import FakeClient

from live import PATIENCE_S, wait_for
from offcut.cli import app, commands
from offcut.control import Settings
from offcut.store import Journal

SWF = "; MaxNodes: 4\n" + "".join(f"{i} {i * 50} 0 100 2 -1 -1 2 200 -1 1 1 1 -1 -1 -1 -1 -1\n" for i in range(1, 5))
CURVE = {"nodes": [1, 2], "rate": [10.0, 19.0]}
PROBLEM = {"nodes": 2, "horizon_s": 120, "jobs": [{"id": "a", "curve": CURVE}]}
LISTED = {"id": "a", "curve": "c", "submit_s": 0, "min_nodes": 1, "max_nodes": 2, "samples": 100.0}
HARDWARE = '[[device]]\nkind = "gpu"\ncount = 2\nmemory_gb = 1\n[link]\nbandwidth_gbit_s = 10\n'
LAYER = (
    "node{0} -- Linear -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=4.0, parameter_size=8.0"
)
MODEL = """
from torch import nn, ones
def build():
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
def example_inputs(n):
    return ones(n, 4)
"""

SWEEP = """
[job]
command = ["train.py"]
[scheduler]
name = "asha"
max_budget = 9
[space]
lr = { type = "float", low = 0.1, high = 1 }
"""

#: What each command is run with. `demo` trains for longer than a test may take, and `up` has a test of its own.
RUN = {
    "submit": ["{}/train.py"],
    "wait": ["a"],
    "status": [],
    "why": ["a"],
    "curve": ["a"],
    "loss": ["a"],
    "change": ["a", "--weight", "2"],
    "pause": ["a"],
    "resume": ["a"],
    "cancel": ["a"],
    "sweep": ["{}/sweep.toml"],
    "sweeps": ["a"],
    "best": ["a"],
    "extend": ["a", "--trials", "20"],
    "report": ["--state", "{}/journal"],
    "logs": ["a"],
    "metrics": [],
    "audit": ["--state", "{}/state"],
    "page": ["--state", "{}/paged"],
    "forget": ["a"],
    "node want": ["n01"],
    "node offer": ["n01"],
    "node forgive": ["n01"],
    "release": ["n01"],
    "certificate": ["--host", "localhost", "--state", "{}/state"],
    "journal check": ["--state", "{}/journal"],
    "journal repair": ["--state", "{}/journal"],
    "doctor": ["--state", "/tmp/offcut-none"],
    "allocate": ["{}/problem.json", "--explain"],
    "windows": ["{}/w.csv"],
    "queue": ["{}/log.swf"],
    "replay": ["--windows", "{}/w.csv", "--jobs", "{}/jobs.json"],
    "estimate": ["{}/w.csv", "--jobs", "{}/jobs.json", "--out", "{}/e.html"],
    "profile": ["{}/model.py:build", "--repeats", "1"],
    "plan": ["{}/graph.txt", "--hardware", "{}/h.toml", "--measured-at", "4", "--devices", "1:2"],
}
NOT_RUN = {"demo", "up"}


def leaves(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*words, word))
        elif not command.hidden:
            yield " ".join((*words, word)), command


def every_command() -> dict[str, Any]:
    if not app.registered_commands:
        commands.register(app)
    return dict(leaves(typer.main.get_command(app)))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("json")
    (place / "train.py").write_text("")
    (place / "model.py").write_text(MODEL)
    (place / "problem.json").write_text(json.dumps(PROBLEM))
    (place / "jobs.json").write_text(json.dumps({"curves": {"c": CURVE}, "jobs": [LISTED]}))
    (place / "w.csv").write_text("node,start_s,end_s\nn1,0,1000\nn2,50,900\n")
    (place / "log.swf").write_text(SWF)
    (place / "h.toml").write_text(HARDWARE)
    (place / "graph.txt").write_text("\n".join([LAYER.format(0), LAYER.format(1), "\tnode0 -- node1"]))
    (place / "sweep.toml").write_text(SWEEP)
    (place / "journal").mkdir(mode=0o700)
    journal = Journal(place / "journal" / "journal.sqlite")
    journal.load(Settings())
    journal.close()
    (place / "paged").mkdir(mode=0o700)
    with socket.create_server(("127.0.0.1", 0)) as served:
        port = served.getsockname()[1]
        (place / "paged" / "page.json").write_text(json.dumps({"url": f"http://127.0.0.1:{port}/", "port": port}))
        yield place


def test_every_command_is_covered_by_the_json_tests() -> None:
    assert set(every_command()) == {*RUN, *NOT_RUN}


@pytest.mark.parametrize("name", every_command())
def test_every_command_takes_json(name: str) -> None:
    assert any("--json" in parameter.opts for parameter in every_command()[name].params)


@pytest.mark.parametrize("name", every_command())
def test_a_failure_is_one_document(offcut, name: str) -> None:
    code, out, error = offcut(*name.split(), "--json", "--no-such-option")
    assert (code, error) == (2, "")
    assert set(json.loads(out)) == {"error", "next_step"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.xdist_group("plan") if n == "plan" else ()) for n in RUN]
)
def test_a_success_is_one_document(offcut, monkeypatch, place: Path, name: str) -> None:
    monkeypatch.setattr("offcut.client.controller.Client", FakeClient)
    monkeypatch.setattr(FakeClient, "text", "finished")
    words = [word.format(place) for word in RUN[name]]
    code, out, error = offcut(*name.split(), *words, "--json")
    assert (code, error) == (0, "")
    json.loads(out)


def test_a_controller_that_does_not_come_up_says_so_in_a_document(offcut, tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("node,start_s,end_s\nn1,5,3\n")
    for detach in ([], ["--detach"]):
        words = ["up", "--json", *detach, "--windows", tmp_path / "w.csv", "--state", tmp_path / "s"]
        code, out, _ = offcut(*words)
        assert code == 2
        assert "line 2, field end_s" in json.loads(out)["error"]


@pytest.mark.live
def test_a_controller_that_ends_leaves_a_document(state_dir: Path) -> None:
    words = ["up", "--json", "--nodes", "1", "--state", str(state_dir)]
    with subprocess.Popen(
        [sys.executable, "-m", "offcut", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as up:
        try:
            wait_for("the controller", (state_dir / "control.sock").exists)
            up.send_signal(signal.SIGTERM)
            out, _ = up.communicate(timeout=PATIENCE_S)
        finally:
            up.kill()
    assert up.returncode == 0
    assert json.loads(out)["state"] == str(state_dir)
