"""A script that defines `trial(params)` is loaded once; its trials are forks that share nothing."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from offcut.agent import trial_scripts
from offcut.agent.launch import Launcher
from offcut.agent.trial_scripts import defines_trial
from offcut.agent.worker_process import WorkerProcess

GUARDED = "if __name__ == '__main__':\n    trial({})\n"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def trial(params):\n    pass\n", True),
        (f"def trial(params, *, debug=False):\n    pass\n{GUARDED}", True),
        ("def train(x):\n    trial(x)\ndef trial(params):\n    pass\n", True),
        ("def trial():\n    pass\n", False),
        ("def trial(params, other):\n    pass\n", False),
        ("class A:\n    def trial(params):\n        pass\n", False),
        ("def objective(trial):\n    pass\n", False),
        ("def trial(params):\n    pass\ntrial({})\n", False),
        ("def trial(params):\n    pass\nfor lr in (1, 2):\n    value = trial({'lr': lr})\n", False),
        ("def trial(params:\n", False),
        ("\0", False),
    ],
)
def test_which_scripts_define_a_trial(source: str, found: bool) -> None:
    assert defines_trial(source) == found


#: In place of `offcut.torch.programs.run_trial`, which imports torch: it writes down that it has loaded the script.
PROGRAM = """
import json, os, sys
from pathlib import Path
from offcut.process.fork_server import ForkServer
arguments = sys.argv[1:]
serve = arguments[0] == "--serve"
script = arguments[2] if serve else arguments[0]
with open("loads", "a") as file:
    file.write("served" if serve else "alone")
    file.write(f" {os.environ.get('COLOUR')} {os.environ.get('OFFCUT_PARAMETERS')}\\n")
names = {}
exec(Path(script).read_text(), names)
def run(argv):
    names["trial"](json.loads(os.environ["OFFCUT_PARAMETERS"]))
    return 0
if not serve:
    sys.exit(run(arguments))
if "threads" in names:
    sys.exit(1)
ForkServer(Path(arguments[1]), run).serve()
"""
SCRIPT = """
import os, sys
seen = []
def trial(params):
    seen.append(params["lr"])
    os.environ["LEFT"] = "over"
    print(seen, os.getcwd())
    sys.stdout.flush()
    if params["lr"] == 3:
        os.abort()
"""


class Node:
    """Starts trials as an agent does, one after another."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.launcher = Launcher(None, directory / "agent.sock")
        self.script = directory / "script.py"
        self.script.write_text(SCRIPT)

    def process(self, lr: float, **more: Any) -> WorkerProcess:
        env = {**os.environ, "COLOUR": "red"}
        return WorkerProcess(
            command=(str(self.script), f"--lr={lr}"),
            env={**env, "OFFCUT_PARAMETERS": json.dumps({"lr": lr})},
            workdir=str(self.directory),
            log=self.directory / f"{lr}.log",
            load_env=env,
            **more,
        )

    async def run(self, process: WorkerProcess) -> int:
        return await (await self.launcher.start(process)).wait()

    def loads(self) -> list[str]:
        return [line.split()[0] for line in (self.directory / "loads").read_text().splitlines()]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setattr(trial_scripts, "PROGRAM", str(program))
    return Node(tmp_path)


def run(node: Node, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario, then end the server that is left: an agent's ends with the agent."""

    async def within_limit() -> None:
        async with asyncio.timeout(120):
            await scenario()
            server = node.launcher._trials._server
            if server is not None:
                await server.end()

    asyncio.run(within_limit())


def test_a_script_is_loaded_once_and_its_trials_share_nothing(node: Node) -> None:
    async def scenario() -> None:
        assert [await node.run(node.process(lr)) for lr in (1, 2)] == [0, 0]
        assert await node.run(node.process(3)) < 0, "it aborts"
        assert await node.run(node.process(4)) == 0

    run(node, scenario)
    assert node.loads() == ["served"]
    assert (node.directory / "loads").read_text() == "served red None\n", "it is loaded without any trial's parameters"
    assert (node.directory / "4.log").read_text() == f"[4] {node.directory}\n"


def test_a_script_is_loaded_again_when_it_or_its_environment_has_changed(node: Node) -> None:
    async def scenario() -> None:
        await node.run(node.process(1))
        node.script.write_text(SCRIPT + "\n# changed\n")
        await node.run(node.process(2))
        other = node.process(4)
        await node.run(replace(other, load_env={**(other.load_env or {}), "COLOUR": "blue"}))

    run(node, scenario)
    assert node.loads() == ["served", "served", "served"]


def test_a_loaded_script_ends_before_another_job_starts_on_the_node(node: Node) -> None:
    async def scenario() -> None:
        await node.run(node.process(1))
        server = node.launcher._trials._server
        assert server is not None
        await node.run(replace(node.process(2), load_env=None))
        assert server.exit.done()

    run(node, scenario)
    assert node.loads() == ["served"], "a job that is not a trial runs its script"


@pytest.mark.parametrize("change", ["a script that starts threads", "a job with setup lines"])
def test_where_it_cannot_be_forked_every_trial_loads_the_script(node: Node, change: str) -> None:
    setup = ""
    if change == "a job with setup lines":
        setup = f'python() {{ {sys.executable} "$@"; }}'
    else:
        node.script.write_text(SCRIPT + "\nthreads = True\n")

    async def scenario() -> None:
        assert [await node.run(node.process(lr, setup=setup)) for lr in (1, 2)] == [0, 0]

    run(node, scenario)
    assert node.loads() == (["alone", "alone"] if setup else ["served", "alone", "alone"])
    assert (node.directory / "2.log").read_text() == f"[2] {node.directory}\n"


def test_a_server_that_died_is_replaced(node: Node) -> None:
    async def scenario() -> None:
        await node.run(node.process(1))
        server = node.launcher._trials._server
        assert server is not None
        server._running.kill()
        await asyncio.wait([server.exit])
        assert await node.run(node.process(2)) == 0

    run(node, scenario)
    assert node.loads() == ["served", "served"]


def test_a_trial_may_be_given_up_while_its_script_is_loaded(node: Node) -> None:
    node.script.write_text(f"import time\ntime.sleep(600)\n{SCRIPT}")

    async def scenario() -> None:
        starting = asyncio.create_task(node.launcher.start(node.process(1)))
        while not (node.directory / "loads").exists():
            await asyncio.sleep(0.02)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        node.script.write_text(SCRIPT)
        assert await node.run(node.process(2)) == 0

    run(node, scenario)
    assert node.loads() == ["served", "served"]
