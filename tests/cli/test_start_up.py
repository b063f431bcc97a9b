"""What is loaded when a command, a controller or an agent starts: large packages only where they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

_HEAVY = {"polars", "matplotlib", "numba", "highspy", "torch", "scipy", "cryptography", "ClusterShell"}


@pytest.mark.parametrize(
    "what",
    [
        "import offcut.cli.commands, offcut.cli.up",
        "import offcut.service.run",
        "import offcut.agent.agent, offcut.agent.controller_link",
        "import offcut.service.rendezvous_server",
    ],
)
def test_it_starts_without_large_packages(what: str) -> None:
    code = f"import sys; {what}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert _HEAVY.isdisjoint(loaded), sorted(_HEAVY & set(loaded))
