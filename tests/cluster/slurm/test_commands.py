"""How Slurm's commands are run."""

from __future__ import annotations

import asyncio
import resource

import pytest

from offcut.cluster.slurm.commands import Commands


def test_a_job_in_which_the_controller_runs_changes_no_pilot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    for name in ("SLURM_JOB_ID", "SLURM_MEM_PER_CPU", "SBATCH_PARTITION", "SRUN_CPU_BIND"):
        monkeypatch.setenv(name, "4")
    shown = asyncio.run(Commands(20.0).run(("env",)))
    given = {line.partition("=")[0] for line in shown.splitlines() if line.startswith(("SLURM_", "SBATCH_", "SRUN_"))}
    assert given == {"SLURM_CONF", "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN"}


def test_commands_have_the_user_s_own_limit_of_open_files() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        own = min(256, before[1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (own, before[1]))
        commands = Commands(20.0)
        assert asyncio.run(commands.run(["sh", "-c", "ulimit -S -n"])).strip() == str(own)
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
        assert asyncio.run(commands.run(["sh", "-c", "ulimit -S -n; cat"], "a script")).split() == [
            str(own),
            "a",
            "script",
        ]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
