"""Pilots leave for jobs that pend on a limit of an account or user, enforced by a real slurmdbd, that pilots use up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_accounting import accounting, require_accounting
from slurmed import MARKS
from watched_slurm import connected, run

pytestmark = [*MARKS, pytest.mark.ci]


@pytest.mark.parametrize("reading", ["text", "json"])
def test_pilots_leave_for_jobs_that_pend_on_a_limit(private_slurm: Callable, state_dir: Path, reading: str) -> None:
    require_accounting()
    database = state_dir / "db"
    database.mkdir()
    with accounting(database) as lines:
        slurm = private_slurm(nodes=3, lines=lines)
        slurm.directory.chmod(0o755)  # the colleague's job reads its script there
        for asked in (
            "add account physics GrpTRES=node=2",
            "add user root account=physics",
            "add user games account=physics",
        ):
            slurm.run("sacctmgr", "--immediate", *asked.split())

        async def scenario() -> None:
            async with connected(slurm, state_dir, account="physics", max_nodes=2, reading=reading) as watched:
                await watched.until("offers", lambda: len(watched.offers) == 2)
                first, second = sorted(watched.offers)
                await watched.claim(first, second)
                # One node is idle, and preemption would not help: the account may have two.
                options = ("--partition=main", "--account=physics", "--exclusive")
                colleague = slurm.submit("exec sleep 60", *options, "--nodes=1", "--uid=games")
                await watched.until("a colleague's job", lambda: slurm.state(colleague) == "RUNNING")
                await watched.until("the loss", lambda: len(watched.lost) == 1)
                slurm.run("scancel", str(colleague))
                slurm.run("sacctmgr", "--immediate", "modify", "user", "root", "set", "MaxJobs=1")
                own = slurm.submit("exec sleep 60", *options, "--nodes=1")
                await watched.until("our own job", lambda: slurm.state(own) == "RUNNING")
                await watched.until("the other loss", lambda: len(watched.lost) == 2)

        run(scenario)


def test_pilots_leave_for_jobs_that_pend_on_a_limit_of_an_account_above(
    private_slurm: Callable, state_dir: Path
) -> None:
    require_accounting()
    database = state_dir / "db"
    database.mkdir()
    with accounting(database) as lines:
        slurm = private_slurm(nodes=3, lines=lines)
        slurm.directory.chmod(0o755)
        for asked in (
            "add account lab GrpTRES=node=2",
            "add account physics parent=lab",
            "add account chemistry parent=lab",
            "add user root account=physics",
            "add user games account=chemistry",
            "modify qos normal set MaxSubmitJobsPerUser=4 MaxWall=20",
        ):
            slurm.run("sacctmgr", "--immediate", *asked.split())
        slurm.run("sacctmgr", "--immediate", "modify", "user", "root", "set", "DefaultQOS=normal")

        async def scenario() -> None:
            async with connected(slurm, state_dir, account="physics") as watched:
                await watched.until("offers", lambda: len(watched.offers) == 2)  # half of four
                await watched.claim(*sorted(watched.offers))
                assert set(watched.pilots("%l")) == {"20:00"}
                warnings = " ".join(watched.cluster.describe()["warnings"])
                assert "those of the account 'lab'" in warnings
                assert "the QOS 'normal' (MaxSubmitJobsPerUser) limits submitted jobs to 4" in warnings
                options = ("--partition=main", "--account=chemistry", "--exclusive", "--nodes=1", "--uid=games")
                colleague = slurm.submit("exec sleep 60", *options)
                await watched.until("a colleague's job", lambda: slurm.state(colleague) == "RUNNING")

        run(scenario)
