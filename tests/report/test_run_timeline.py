"""The timeline of a run, from the journal alone: each node's job and condition."""

from __future__ import annotations

from pathlib import Path

import pytest

from offcut.control import Settings, step
from offcut.model import Allocation, Job, Sizes
from offcut.model import events as ev
from offcut.report.run_timeline import timeline
from offcut.service.paths import StatePaths
from offcut.store import Journal


def test_a_decision_is_replayed_under_the_settings_of_its_time(tmp_path: Path) -> None:
    """Under the second ones a measurement asks for a new allocation, which the first ones would have ignored."""
    path = tmp_path / "journal.sqlite"
    for settings in (Settings(profiler="oracle"), Settings(profiler="gp")):
        journal = Journal(path)
        state = journal.load(settings)

        def send(event: ev.Event, journal: Journal = journal, state=state) -> None:
            journal.append(state.event_id + 1, event)
            step(state, event)

        if settings.profiler == "oracle":
            send(ev.JobNoted(time_s=0.0, job="-", text="x"))
            journal.close()
            continue
        send(ev.JobSubmitted(time_s=1.0, job=Job(id="a", name="a", command=("x",), sizes=Sizes((1, 2, 3, 4)))))
        send(ev.NodesChanged(time_s=2.0, offered=tuple(ev.Offer(f"n{i}") for i in range(3))))
        send(ev.Solved(time_s=2.1, version=state.version, allocation=Allocation(nodes={"a": 1})))
        (node,) = state.jobs["a"].nodes
        send(ev.NodesBooted(time_s=3.0, nodes=(node,)))
        send(ev.WorkersReady(time_s=4.0, job="a", members=(state.nodes[node].member,)))
        send(ev.GenerationFormed(time_s=4.1, job="a", generation=1, took_s=0.1, step=1))
        send(ev.JobMeasured(time_s=5.0, job="a", generation=1, size=1, rate=10.0))
        send(ev.NodesChanged(time_s=7.0, offered=(ev.Offer("n9"),)))
        send(ev.Solved(time_s=8.0, version=state.version, allocation=Allocation(nodes={"a": 3})))
        send(ev.JobNoted(time_s=100.0, job="a", text="end"))
    assert len(state.jobs["a"].nodes) == 3
    told = timeline(journal.replay())
    # The first node from 2.1 s on, the others from 8 s on.
    assert told.node_seconds("boots", "trains") == pytest.approx(97.9 + 2 * 92.0)


def test_a_node_is_idle_then_boots_then_trains_then_is_lost(short_run: StatePaths) -> None:
    journal = Journal(short_run.journal)
    told = timeline(journal.replay())
    journal.close()
    (trained,) = {span.node for span in told.spans if span.condition == "trains"}
    spans = [(s.condition, s.start_s, s.end_s) for s in told.spans if s.node == trained]
    assert spans == [("idle", 1000.0, 1001.0), ("boots", 1001.0, 1004.0), ("trains", 1004.0, 1014.0)]
    (other,) = [(s.condition, s.start_s, s.end_s) for s in told.spans if s.node != trained]
    assert other == ("idle", 1000.0, 1020.0)
    assert told.sizes == {"a-1": [(1000.0, 0), (1004.0, 1), (1014.0, 0)]}
    assert told.formed == [(1004.2, "a-1", 0.2)]


def test_an_empty_journal_has_an_empty_timeline() -> None:
    told = timeline([])
    assert (told.spans, told.sizes, told.node_seconds("trains")) == ([], {}, 0)
