"""A member that was told to leave while it is in no generation saves its state before its limit."""

from __future__ import annotations

import os
import signal

import idiom_scripts as scripts
import pytest
from real_members import Cluster, alone, same

#: In one process of xdist, for each of them would start a server of its own.
pytestmark = pytest.mark.xdist_group("members")


def test_the_only_member_with_the_state_saves_it_while_its_next_generation_forms() -> None:
    """The other member of that generation never answers: its node was lost, or it is told to leave too."""
    with Cluster(scripts.schedule_per_epoch) as cluster:
        first, silent = cluster.start(2)
        cluster.form([first])
        with cluster.stopped(first, "step", 3):
            os.kill(cluster.pids()[1], signal.SIGSTOP)
            cluster.form([first, silent])
        cluster.leave(first, limit_s=2.0)
        cluster.until(lambda: "left" in cluster.said(first))
        cluster.kill(silent)
        second = cluster.start()
        cluster.form(second)
        same(cluster.results(), alone(scripts.schedule_per_epoch))
        # No step was done again.
        assert first_step(cluster, second[0]) > 3


def test_a_member_whose_generation_broke_saves_its_state_while_the_script_runs_its_own_code() -> None:
    fault = {"point": "before-reduce", "how": "break", "rank": 0, "step": 4}
    with Cluster(scripts.looks_at_each_step, faults=[fault]) as cluster:
        first = cluster.start(2)
        cluster.form(first)
        with cluster.stopped(first[0], "failed"):
            cluster.kill(first[1])
            cluster.leave(first[0], limit_s=2.0)
            cluster.until(lambda: "left" in cluster.said(first[0]))
        second = cluster.start()
        cluster.form(second)
        same(cluster.results(), alone(scripts.looks_at_each_step))
        assert first_step(cluster, second[0]) > 3


def first_step(cluster: Cluster, name: str) -> int:
    """Return which step of the training was the first that `name` did."""
    (step,) = (message["step"] for worker, message in cluster.heard if worker == name and message["kind"] == "formed")
    return int(step)
