"""The controller's metrics for Prometheus, read from the controller when they are asked for.

docs/monitoring.md defines each of them. No label has a value per node or per job: the ids of jobs are never used twice,
so such a label would have more values every day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from offcut import __version__
from offcut.cluster.base import MeasuresCommands
from offcut.control import NodeState
from offcut.histogram import Histogram
from offcut.service.controller import Controller
from offcut.store.journal import Journal

_NODE_STATES = ("idle", "booting", "unused", "starting", "training")
_PHASES = ("waiting", "running", "paused", "finishing")


class ControllerCollector(Collector):
    """Reads one controller. That takes time in proportion to the number of nodes and jobs."""

    def __init__(self, controller: Controller, journal: Journal) -> None:
        self._controller = controller
        self._journal = journal

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        version = InfoMetricFamily("offcut_build", "The version of offcut.")
        version.add_metric((), {"version": __version__})
        yield version
        yield from self._nodes()
        yield from self._releases()
        yield from self._jobs()
        yield from self._decisions()
        yield from self._parts()
        yield from self._journal_metrics()
        yield from self._commands()

    def _nodes(self) -> Iterator[Metric]:
        controller = self._controller
        state, now_s = controller.state, controller.clock.now()
        found = Counter(_node_state(node) for node in state.nodes.values())
        yield _gauge("offcut_nodes", "Nodes by state.", {name: found[name] for name in _NODE_STATES}, "state")
        yield _gauge("offcut_nodes_set_aside", "Nodes that are not claimed for a while.", len(state.set_aside))
        yield _gauge("offcut_claiming", "1 if idle nodes may be claimed, else 0.", int(state.may_claim))
        use, trained_s = controller.event_metrics.node_use, controller.metrics.used_by(now_s)
        use.advance(state, now_s, at_once=True)
        yield _counter(
            "offcut_node_seconds",
            "Node-seconds by use: idle (not held), claimed (held, without training), trained.",
            {"idle": use.idle_node_s, "claimed": use.claimed_node_s(trained_s), "trained": trained_s},
            "state",
        )

    def _releases(self) -> Iterator[Metric]:
        metrics, now_s = self._controller.event_metrics, self._controller.clock.now()
        releases = metrics.releases
        yield _histogram(
            "offcut_release_seconds", "From a node being wanted by the queue to its release.", releases.seconds
        )
        yield _gauge("offcut_nodes_wanted", "Nodes that the queue wants and that are still held.", releases.waiting())
        yield _gauge(
            "offcut_longest_wanted_seconds",
            "For how long the longest wanted of the nodes that are still held has been wanted.",
            releases.longest_s(now_s),
        )
        yield _counter("offcut_nodes_lost", "Held nodes that were lost without being wanted.", metrics.lost_nodes)
        yield _counter("offcut_claims_refused", "Claims that the batch system refused.", metrics.refused_claims)

    def _jobs(self) -> Iterator[Metric]:
        controller, metrics = self._controller, self._controller.event_metrics
        found: Counter[str] = Counter(job.phase for job in controller.state.jobs.values())
        yield _gauge("offcut_jobs", "Jobs that have not ended, by phase.", {p: found[p] for p in _PHASES}, "phase")
        yield _counter("offcut_jobs_submitted", "Jobs that were submitted.", metrics.submitted)
        yield _counter("offcut_jobs_ended", "Jobs that ended, by how.", metrics.ended, "outcome")
        yield _histogram(
            "offcut_resize_seconds",
            "From the decision to resize a job to its first step in the new generation.",
            controller.metrics.resize_seconds,
            "kind",
        )
        yield _counter("offcut_workers_ended", "Workers that ended, by how.", metrics.workers_ended, "outcome")
        yield _counter("offcut_steps_redone", "Training steps that were done again.", metrics.redone_steps)

    def _decisions(self) -> Iterator[Metric]:
        metrics, solver = self._controller.event_metrics, self._controller.solver
        yield _counter("offcut_events", "Events of the controller, by what became of them.", metrics.events, "result")
        yield _histogram(
            "offcut_event_seconds", "Time in which the controller answers one event.", metrics.event_seconds
        )
        yield _counter("offcut_solves", "Allocation problems, by their answer.", solver.answers, "answer")
        yield _histogram("offcut_solve_seconds", "From an allocation problem to its answer.", solver.seconds)

    def _parts(self) -> Iterator[Metric]:
        agents, tasks = self._controller.agents, self._controller.tasks.shown()
        missing = agents.missing()
        yield _gauge(
            "offcut_agents",
            "Agents of nodes: connected, or missing since a moment ago.",
            {"connected": agents.count() - missing, "missing": missing},
            "state",
        )
        up = {task["name"]: int(task["state"] == "running") for task in tasks}
        yield _gauge("offcut_task_up", "1 if a task of the controller runs, 0 if it has failed.", up, "task")
        failures = {task["name"]: task["failures"] for task in tasks}
        yield _counter("offcut_task_failures", "How often a task failed; it is started again.", failures, "task")

    def _journal_metrics(self) -> Iterator[Metric]:
        figures = self._journal.figures
        yield _counter("offcut_journal_events", "Events that were written to the journal.", figures.events)
        yield _counter("offcut_journal_event_bytes", "Bytes of these events.", figures.event_bytes)
        yield _counter("offcut_journal_failures", "What could not be written, by what.", figures.failures, "operation")
        yield _histogram("offcut_journal_sync_seconds", "Time until the disk has an event.", figures.sync_seconds)
        yield _gauge("offcut_journal_size_bytes", "Size of the journal on the disk.", self._journal.size_bytes())

    def _commands(self) -> Iterator[Metric]:
        cluster = self._controller.cluster
        figures = cluster.command_figures() if isinstance(cluster, MeasuresCommands) else {}
        yield _histogram(
            "offcut_cluster_command_seconds",
            "Time of each command of the batch system.",
            {name: each.seconds for name, each in figures.items()},
            "command",
        )
        failures = {name: each.failures for name, each in figures.items()}
        yield _counter("offcut_cluster_command_failures", "Commands that failed.", failures, "command")


class PrometheusMetrics:
    """The metrics of one controller and of its process."""

    def __init__(self, controller: Controller, journal: Journal) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(ControllerCollector(controller, journal))
        ProcessCollector(registry=self._registry)

    def encoded(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics as text, and the text's media type.

        Args:
            accept: the request's Accept header, which names the format that is wanted.
        """
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type

    def as_json(self) -> list[dict[str, Any]]:
        """Return the metrics as JSON: name, help, type and samples of each."""
        return [
            {
                "name": metric.name,
                "help": metric.documentation,
                "type": metric.type,
                "samples": [
                    {"name": sample.name, "labels": sample.labels, "value": sample.value} for sample in metric.samples
                ],
            }
            for metric in self._registry.collect()
        ]


def _node_state(node: NodeState) -> str:
    """Return as what a node is counted."""
    if node.phase == "idle":
        return "idle"
    if node.phase == "claimed":
        return "booting"
    if node.job is None:
        return "unused"
    return "training" if node.worker == "member" else "starting"


def _gauge(name: str, text: str, values: Mapping[str, float] | float, label: str = "") -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=[label] if label else []), values)


def _counter(name: str, text: str, values: Mapping[str, float] | float, label: str = "") -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=[label] if label else []), values)


def _filled(family: Any, values: Mapping[str, float] | float) -> Metric:
    """Return the family with its values: one, or one for each value of its label."""
    for label, value in values.items() if isinstance(values, Mapping) else [(None, values)]:
        family.add_metric([] if label is None else [label], value)
    filled: Metric = family
    return filled


def _histogram(name: str, text: str, values: Mapping[str, Histogram] | Histogram, label: str = "") -> Metric:
    family = HistogramMetricFamily(name, text, labels=[label] if label else [])
    pairs: Iterable[tuple[str | None, Histogram]]
    pairs = values.items() if isinstance(values, Mapping) else [(None, values)]
    for of_label, histogram in pairs:
        family.add_metric([] if of_label is None else [of_label], histogram.buckets(), histogram.sum)
    return family
