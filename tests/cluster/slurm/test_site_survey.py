"""What doctor and --dry-run say about a real Slurm."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from offcut.cli import main
from slurmed import MARKS

pytestmark = MARKS


@pytest.fixture
def offcut(monkeypatch, capsys) -> Iterator[Callable[..., tuple[int, str]]]:
    """`offcut(slurm, …)` runs a command against it: its exit code and what it printed."""

    def run(slurm, *arguments: str, stream: str = "out") -> tuple[int, str]:
        monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
        monkeypatch.setattr("sys.argv", ["offcut", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = getattr(capsys.readouterr(), stream)
        return int(ended.value.code or 0), said if stream == "out" else " ".join(said.split())

    yield run
    structlog.reset_defaults()


def test_a_site_with_a_preemptible_partition(private_slurm: Callable, offcut: Callable) -> None:
    slurm = private_slurm(2, grace_s=120, lines={"MessageTimeout": "2"}, idle_options="AllowQos=normal")
    code, told = offcut(slurm, "doctor", "--cluster", "slurm", "--json")
    assert code == 0
    facts = {fact["what"]: fact for fact in json.loads(told)}
    assert facts["advice"]["found"] == "mode 'preemptible' in partition 'idle'"
    assert facts["partition main"]["next_step"] == "mode backfill"
    assert "grace 120 s" in facts["partition idle"]["found"]
    assert "QOS normal" in facts["partition idle"]["found"]
    slurm.run("scontrol", "update", "NodeName=n02", "State=DRAIN", "Reason=test")
    code, told = offcut(slurm, "up", "--cluster", "slurm", "--partition", "idle", "--dry-run", "--json")
    assert code == 0
    assert {item["node"]: item["claim"] for item in json.loads(told)} == {"n01": True, "n02": False}
    assert slurm.run("squeue", "--noheader") == "", "a dry run submits nothing"
    slurm.stop_controller()
    code, told = offcut(slurm, "doctor", "--cluster", "slurm", "--json")
    assert code == 1
    assert json.loads(told)[0]["next_step"] == "Is slurmctld up? Try: scontrol ping"


def test_a_site_without_preemption(private_slurm: Callable, offcut: Callable, tmp_path: Path) -> None:
    slurm = private_slurm(1, preempt_mode="OFF")
    _, told = offcut(slurm, "doctor", "--cluster", "slurm", "--json")
    facts = {fact["what"]: fact for fact in json.loads(told)}
    assert facts["preemption"]["verdict"] == "note"
    assert facts["advice"]["found"] == "mode 'backfill' in partition 'main'"
    up = ("up", "--cluster", "slurm", "--partition", "idle", "--state", str(tmp_path / "state"))
    code, told = offcut(slurm, *up, "--dry-run", "--json")
    assert code == 0
    (candidate,) = json.loads(told)
    assert candidate["limit_s"] == 1800, "without a mode it is backfill, whose pilots are short"
    for ending in ((), ("--dry-run",)):
        code, said = offcut(slurm, *up, "--mode", "preemptible", *ending, stream="err")
        assert code == 2
        assert "With mode 'preemptible', main jobs would wait for the end of pilots" in said
        assert "PreemptType=preempt/none" in said
        assert "Set mode = 'backfill'" in said
    assert slurm.run("squeue", "--noheader") == "", "nothing was submitted"
