"""Frameworks as a world of one: what they must not see of a job, and that no script pays for those it does not use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from offcut.torch.integrations.world_of_one import hide_launcher
from offcut.wire.worker_env import ENV_AGENT


@pytest.mark.parametrize(("agent", "hidden"), [("/run/agent", True), ("", False)])
def test_torchrun_s_variables_are_hidden_in_a_job_only(
    agent: str, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENV_AGENT, agent)
    for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "1")
    hide_launcher()
    assert [name in os.environ for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE")] == [not hidden] * 3


def test_importing_offcut_torch_imports_no_framework() -> None:
    code = "import sys, offcut.torch; print({'transformers', 'accelerate', 'peft', 'lightning'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"
