"""What is loaded when a command, a controller or an agent starts: large packages only where they are used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_HEAVY = {"polars", "matplotlib", "numba", "highspy", "torch", "scipy", "cryptography", "ClusterShell"}


@pytest.mark.parametrize(
    "what",
    [
        "import offcut.cli.up",
        "import offcut.service.run",
        "import offcut.agent.agent, offcut.agent.controller_link",
        "import offcut.service.rendezvous_server",
    ],
)
def test_it_starts_without_large_packages(what: str) -> None:
    code = f"import sys; {what}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert _HEAVY.isdisjoint(loaded), sorted(_HEAVY & set(loaded))


#: What the commands that ask a controller do without. They start in a fifth of a second; each of these takes a quarter
#: of that, or more.
_NOT_FOR_A_QUESTION = _HEAVY | {
    "numpy",
    "fastapi",
    "starlette",
    "uvicorn",
    "httpx",
    "websockets",
    "structlog",
    "asyncio",
}
_PACKAGES = ("allocate", "control", "store", "agent", "cluster", "traces", "report", "simulate", "torch", "cli.demo")
_RUN = """
import sys
import offcut.cli, offcut.client.controller, fake_api
offcut.client.controller.Client = fake_api.FakeClient
sys.argv[0] = "offcut"
try:
    offcut.cli.main()
except SystemExit as ended:
    assert ended.code in (0, None, 124), ended.code
print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words",
    [
        "status",
        "status a",
        "why a",
        "curve a",
        "loss a",
        "wait a --timeout 0",
        "cancel a",
        "release n01",
        "status --help",
    ],
)
def test_a_question_to_the_controller_loads_no_other_part(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *words.split()],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stderr.split())
    unwanted = _NOT_FOR_A_QUESTION | {f"offcut.{package}" for package in _PACKAGES}
    assert unwanted.isdisjoint(loaded), sorted(unwanted & loaded)
