"""A short run of one job on two nodes, as a controller's journal tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from offcut.control import Settings, step
from offcut.model import Allocation, Job, Sizes
from offcut.model import events as ev
from offcut.service.paths import StatePaths
from offcut.store import Journal


@pytest.fixture
def short_run(tmp_path: Path) -> StatePaths:
    """Two nodes are idle from 1000 s on. The job trains on n1 from 1004 s on; at 1014 s the queue wants n1; the end is
    at 1020 s."""
    paths = StatePaths(tmp_path)
    journal = Journal(paths.journal)
    state = journal.load(Settings(profiler="oracle"))

    def send(event: ev.Event) -> None:
        journal.append(state.event_id + 1, event)
        step(state, event)

    send(ev.NodesChanged(time_s=1000.0, offered=(ev.Offer("n1"), ev.Offer("n2"))))
    send(ev.JobSubmitted(time_s=1000.0, job=Job(id="a-1", name="a", command=("x",), sizes=Sizes((1, 2)))))
    send(ev.Solved(time_s=1001.0, version=state.version, allocation=Allocation(nodes={"a-1": 1})))
    (node,) = state.jobs["a-1"].nodes
    send(ev.NodesBooted(time_s=1002.0, nodes=(node,)))
    send(ev.WorkersReady(time_s=1004.0, job="a-1", members=(state.nodes[node].member,)))
    send(ev.GenerationFormed(time_s=1004.2, job="a-1", generation=1, took_s=0.2, step=1))
    send(ev.NodesChanged(time_s=1014.0, wanted=(node,)))
    send(ev.JobNoted(time_s=1020.0, job="a-1", text="end"))
    journal.close()
    return paths
