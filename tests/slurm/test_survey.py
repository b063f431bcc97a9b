"""What doctor and --dry-run say about a real Slurm."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from slurmed import MARKS

pytestmark = MARKS


def offcut(slurm, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offcut", *arguments]
    return subprocess.run(command, env=slurm.env, capture_output=True, text=True, check=False)


def test_a_site_with_a_preemptible_partition(private_slurm: Callable, state_dir: Path) -> None:
    slurm = private_slurm(2, grace_s=120, lines={"MessageTimeout": "2"}, idle_options="AllowQos=normal")
    told = offcut(slurm, "doctor", "--cluster", "slurm", "--json")
    assert told.returncode == 0, told.stderr
    facts = {fact["what"]: fact for fact in json.loads(told.stdout)}
    assert facts["advice"]["found"] == "mode 'preemptible' in partition 'idle'"
    assert facts["partition main"]["next_step"] == "mode backfill"
    assert "grace 120 s" in facts["partition idle"]["found"]
    assert "QOS normal" in facts["partition idle"]["found"]
    slurm.run("scontrol", "update", "NodeName=n02", "State=DRAIN", "Reason=test")
    shown = offcut(slurm, "up", "--cluster", "slurm", "--partition", "idle", "--dry-run", "--json")
    assert shown.returncode == 0, shown.stderr
    assert {item["node"]: item["claim"] for item in json.loads(shown.stdout)} == {"n01": True, "n02": False}
    assert slurm.run("squeue", "--noheader") == "", "a dry run submits nothing"
    slurm.stop_controller()
    told = offcut(slurm, "doctor", "--cluster", "slurm")
    assert told.returncode == 1
    assert "slurmctld" in told.stdout
    assert "Traceback" not in told.stderr


def test_a_site_without_preemption(private_slurm: Callable) -> None:
    told = offcut(private_slurm(1, preempt_mode="OFF"), "doctor", "--cluster", "slurm", "--json")
    facts = {fact["what"]: fact for fact in json.loads(told.stdout)}
    assert facts["preemption"]["verdict"] == "note"
    assert facts["advice"]["found"] == "mode 'backfill' in partition 'main'"
