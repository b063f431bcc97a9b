"""What the controller measures of itself, and how Prometheus reads it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from controlled import Controlled
from httpx import ASGITransport, AsyncClient
from prometheus_client.parser import text_string_to_metric_families

from offcut.cluster.slurm.commands import CommandError, Commands
from offcut.control import JobState, State
from offcut.control.state import NodeState
from offcut.errors import StoreError
from offcut.histogram import Histogram
from offcut.model import Job, Sizes
from offcut.model import events as ev
from offcut.service import app
from offcut.service.agents import AgentConnection
from offcut.service.metrics.event_metrics import EventMetrics
from offcut.service.metrics.job_metrics import Metrics
from offcut.service.metrics.node_use import NodeUse
from offcut.service.metrics.prometheus import PrometheusMetrics
from offcut.store import Journal

PAGE = Path(__file__).resolve().parents[2] / "docs" / "monitoring.md"


class Measured(Controlled):
    """A controller whose metrics are read."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch)
        self.commands = Commands(5.0)
        self.cluster.command_figures = lambda: self.commands.figures  # type: ignore[attr-defined]
        self.prometheus = PrometheusMetrics(self.controller, self.journal)

    def samples(self) -> dict[str, float]:
        """Return every sample by its name with its labels, as `name{label}` of the one label, or `name`."""
        text, media_type = self.prometheus.encoded("")
        assert media_type.startswith("text/plain; version=")
        return {
            sample.name + (f"{{{','.join(sample.labels.values())}}}" if sample.labels else ""): sample.value
            for family in text_string_to_metric_families(text.decode())
            for sample in family.samples
        }


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: Callable[[Measured], Any]) -> None:
    async def in_loop() -> None:
        await scenario(Measured(tmp_path, monkeypatch))

    asyncio.run(in_loop())


def test_a_histogram_counts_values_up_to_each_bound() -> None:
    histogram = Histogram((0.5, 1.0))
    for value in (0.1, 0.5, 0.7, 1.0, 99.0):
        histogram.observe(value)
    assert histogram.buckets() == [("0.5", 2), ("1", 4), ("+Inf", 5)]
    assert (histogram.count, histogram.sum) == (5, pytest.approx(101.3))


def test_node_seconds_are_those_of_the_state_between_events() -> None:
    state, use = State(), NodeUse(100.0)
    use.advance(state, 110.0)
    state.nodes = {name: NodeState(name, "idle", 0.0) for name in "abc"}
    use.advance(state, 114.0)
    state.nodes["a"].phase = "claimed"
    use.advance(state, 114.02)  # within a moment of the last count: it waits for the next
    use.advance(state, 116.0)
    assert (use.idle_node_s, use.held_node_s) == (pytest.approx(12 + 4), pytest.approx(2))
    use.advance(state, 110.0)
    use.advance(state, 116.01, at_once=True)
    assert use.held_node_s == pytest.approx(2.01)
    assert use.claimed_node_s(1.5) == pytest.approx(0.51)
    assert use.claimed_node_s(1.9) == pytest.approx(0.51), "a counter does not fall"


def test_a_release_takes_from_the_first_word_that_the_node_is_wanted_to_its_end() -> None:
    state = State()
    metrics = EventMetrics(state, 0.0)
    state.nodes = {name: NodeState(name, "up", 0.0) for name in ("a", "b", "c", "d")}
    state.nodes["idle"] = NodeState("idle", "idle", 0.0)
    metrics.before(ev.NodesChanged(time_s=10.0, wanted=("a", "b", "idle", "unknown")))
    for name in ("a", "b"):
        del state.nodes[name]
    metrics.before(ev.NodesChanged(time_s=10.4, wanted=("a",)))  # the batch system's own word comes later
    assert (metrics.releases.waiting(), metrics.releases.longest_s(13.0)) == (2, 3.0)
    metrics.agent_left("a", 10.5)
    metrics.before(ev.NodesChanged(time_s=10.6, lost=("a",)))
    gathered = (ev.NodesChanged(time_s=12.0, lost=("b", "c")), ev.NodesChanged(time_s=12.0, wanted=("d",)))
    metrics.before(ev.EventsGathered(time_s=12.0, events=gathered))
    metrics.agent_left("c", 12.0)
    seconds = metrics.releases.seconds
    assert (seconds.count, seconds.sum) == (2, pytest.approx(0.5 + 2.0))
    assert metrics.lost_nodes == 1, "c was not wanted"
    assert metrics.releases.waiting() == 1
    metrics.before(ev.NodesChanged(time_s=13.0, offered=(ev.Offer("d"),)))
    assert (metrics.releases.waiting(), metrics.releases.longest_s(99.0)) == (0, 0.0)


def test_jobs_are_counted_once_when_they_end_whatever_leaves_the_state() -> None:
    job = Job(id="a", name="a", command=("x",), sizes=Sizes.parse("1"))
    state = State(jobs={"old": JobState(job, "failed", 0.0)}, ended={"old": None})
    metrics = EventMetrics(state, 0.0)
    metrics.after(0.01, True)
    assert sum(metrics.ended.values()) == 0
    for name in ("a", "b"):
        state.jobs[name] = JobState(job, "finished", 0.0)
        state.ended[name] = None
    metrics.after(0.01, True)
    del state.ended["b"]
    metrics.after(0.01, True)
    state.jobs["c"] = JobState(job, "cancelled", 0.0)
    state.ended["c"] = None
    metrics.after(0.01, False)
    assert dict(metrics.ended) == {"finished": 2, "failed": 0, "cancelled": 1}
    assert dict(metrics.events) == {"answered": 3, "skipped": 1}


def test_nodes_that_an_earlier_controller_started_count_as_training() -> None:
    metrics = Metrics()
    metrics.training_already(10.0, {"a": 3})
    assert metrics.used_by(12.0) == 6.0
    metrics.generation_set(12.0, "a", 2, 2, 3)
    assert metrics.used_by(13.0) == 8.0


def test_what_happens_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(it: Measured) -> None:
        await it.begin()
        await it.commands.run(("true",))
        with pytest.raises(CommandError):
            await it.commands.run(("false",))
        it.submit("a")
        it.submit("b")
        it.train("a", "n1", "n2")
        connection = it.dial("n3")
        agents = it.controller.agents
        before = it.samples()
        assert before["offcut_nodes{training}"] == 2
        assert before["offcut_jobs{running}"] == before["offcut_jobs{waiting}"] == 1
        assert before["offcut_jobs_submitted_total"] == 2
        assert before["offcut_agents{connected}"] == 1
        assert before["offcut_cluster_command_seconds_count{true}"] == 1
        assert before["offcut_cluster_command_failures_total{false}"] == 1
        assert before["offcut_journal_events_total"] == before["offcut_events_total{answered}"] > 5
        assert before["offcut_journal_event_bytes_total"] > 500
        assert before["offcut_journal_size_bytes"] > 4096
        assert before["offcut_claiming"] == 1
        assert before["process_cpu_seconds_total"] > 0

        it.send(ev.NodesChanged, wanted=("n1",))
        assert it.samples()["offcut_nodes_wanted"] == 1
        agent = AgentConnection("n1", "p", connection._socket)
        agents.connected(agent)
        agents.disconnected(agent, cut=False)
        it.send(ev.JobCancelled, job="b")
        after = it.samples()
        assert after["offcut_release_seconds_count"] == after["offcut_release_seconds_bucket{+Inf}"] == 1
        assert after["offcut_jobs_ended_total{cancelled}"] == 1
        assert all(after[name] >= value for name, value in before.items() if name.endswith("_total"))

    run(tmp_path, monkeypatch, scenario)


def test_every_metric_is_defined_on_its_page_and_none_has_a_label_per_node_or_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(it: Measured) -> None:
        it.submit("a")
        few = len(it.samples())
        for i in range(30):
            it.submit(f"j{i}")
            it.state.nodes[f"m{i}"] = NodeState(f"m{i}", "up", 0.0)
        assert len(it.samples()) == few < 300
        told = {metric["name"] for metric in it.prometheus.as_json() if metric["name"].startswith("offcut_")}
        suffixed = {
            metric["name"] + {"counter": "_total", "info": "_info"}.get(metric["type"], "")
            for metric in it.prometheus.as_json()
            if metric["name"] in told
        }
        assert set(re.findall(r"^\| `(offcut_\w+)", PAGE.read_text(), re.MULTILINE)) == suffixed

    run(tmp_path, monkeypatch, scenario)


def test_the_owners_api_has_them_as_text_and_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(it: Measured) -> None:
        api = app.build(it.controller, it.journal, it.cluster, it.paths)  # type: ignore[arg-type]
        async with AsyncClient(transport=ASGITransport(app=api), base_url="http://offcut") as client:
            text = await client.get("/metrics")
            assert text.headers["content-type"].startswith("text/plain; version=")
            assert "# TYPE offcut_release_seconds histogram" in text.text
            open_metrics = await client.get("/metrics", headers={"Accept": "application/openmetrics-text"})
            assert open_metrics.text.endswith("# EOF\n")
            shown = {metric["name"]: metric for metric in (await client.get("/v1/metrics")).json()}
            assert shown["offcut_nodes"]["samples"][0]["labels"] == {"state": "idle"}

    run(tmp_path, monkeypatch, scenario)


def test_what_the_journal_cannot_write_is_counted(tmp_path: Path) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    journal = Journal(tmp_path / "j.sqlite", fsync=full)
    journal.append(1, ev.ClaimingResumed(time_s=1.0))
    with pytest.raises(StoreError):
        journal.sync()
    assert (journal.figures.events, journal.figures.failures["sync"]) == (1, 1)
    journal.close()
