"""Agents' reports about generations become events; unusable ones are logged once."""

from __future__ import annotations

from offcut.control import Settings, State, step
from offcut.model import Allocation, Job, Sizes
from offcut.model import events as ev
from offcut.service.throughput_reports import ThroughputReports
from offcut.wire import messages


def training(nodes: int = 3, **settings) -> State:
    """Let job `a` train on this many nodes, in generation 1."""
    state = State(settings=Settings(**settings))
    names = tuple(f"n{i}" for i in range(1, nodes + 1))
    job = Job(id="a", name="a", command=("train.py",), sizes=Sizes.parse(f"1:{nodes}"))
    step(state, ev.JobSubmitted(time_s=0.0, job=job))
    step(state, ev.NodesChanged(time_s=0.0, offered=tuple(ev.Offer(name) for name in names)))
    step(state, ev.Solved(time_s=0.0, version=state.version, allocation=Allocation(nodes={"a": nodes})))
    step(state, ev.NodesBooted(time_s=1.0, nodes=names))
    members = tuple(state.nodes[name].member for name in names)
    step(state, ev.WorkersReady(time_s=2.0, job="a", members=members))
    step(state, ev.GenerationFormed(time_s=2.0, job="a", generation=1, took_s=0.1, step=1))
    assert state.jobs["a"].size == nodes
    return state


def report(
    meters: ThroughputReports, count: int, *, pace_s: float = 0.2, samples: int = 32, generation: int = 1
) -> list[ev.Event]:
    return [
        event
        for i in range(count)
        for event in meters.progress(
            2.0 + i * pace_s,
            messages.Progress(job="a", generation=generation, step=i, samples=samples * i, clock_s=50.0 + i * pace_s),
        )
    ]


def test_a_steady_generation_is_measured():
    meters = ThroughputReports(training())
    (measured,) = report(meters, 40)
    assert isinstance(measured, ev.JobMeasured)
    assert (measured.generation, measured.size, round(measured.rate)) == (1, 3, 160)
    assert measured.slow_node == ""


def test_reports_of_another_generation_or_job_are_ignored():
    meters = ThroughputReports(training())
    assert report(meters, 40, generation=7) == []
    assert list(meters.progress(0.0, messages.Progress(job="b", generation=1, step=1, samples=1, clock_s=1.0))) == []


def test_without_learning_nothing_is_measured():
    assert report(ThroughputReports(training(profiler="amdahl")), 40) == []


def test_a_script_that_trains_no_samples_is_logged_once():
    found = report(ThroughputReports(training()), 80, samples=0)
    assert [event.text for event in found if isinstance(event, ev.JobNoted)] == [
        "its steps train no samples: its curve cannot be learned from that"
    ]
    assert len(found) == 1


def test_a_silent_job_is_logged_once():
    state = training()
    meters = ThroughputReports(state)
    assert list(meters.silent(10.0)) == []
    assert list(meters.silent(60.0)) == []
    found = [*meters.silent(80.0), *meters.silent(90.0)]
    assert [event.text for event in found] == ["it has reported no step for 60 s: its scaling cannot be measured"]


def test_a_slow_node_is_named_and_what_is_measured_meanwhile_says_so():
    meters = ThroughputReports(training())
    told = [
        event
        for i in range(4)
        for node, own_s in (("n1", 0.05), ("n2", 0.05), ("n3", 0.09))
        for event in meters.pace(3.0 + i, node, messages.Pace(job="a", incarnation=1, generation=1, own_step_s=own_s))
    ]
    assert [event.job for event in told] == ["a", "n3"]
    assert "n3 is slow: it works 1.8 times as long" in told[0].text
    (measured,) = report(meters, 40)
    assert measured.slow_node == "n3"


def halved(meters: ThroughputReports, *, slow_node: str = "") -> list[ev.JobMeasured]:
    """After 40 s at 160 samples/s the job goes on at 80; some seconds later `slow_node` is found to be why."""
    found: list[ev.Event] = []
    clock_s, samples = 0.0, 0
    for i in range(400):
        clock_s += 0.2 if i < 200 else 0.4
        samples += 32
        told = messages.Progress(job="a", generation=1, step=i, samples=samples, clock_s=clock_s)
        found += meters.progress(clock_s, told)
        for node in ("n1", "n2", "n3") if i > 200 and i % 5 == 0 else ():
            own_s = 0.3 if node == slow_node else 0.1
            found += meters.pace(clock_s, node, messages.Pace(job="a", incarnation=1, generation=1, own_step_s=own_s))
    return [event for event in found if isinstance(event, ev.JobMeasured)]


def test_a_change_of_speed_counts_for_the_job_unless_a_node_is_slow():
    (change,) = (event for event in halved(ThroughputReports(training())) if event.changed)
    assert (round(change.rate), change.slow_node) == (80, "")
    (change,) = (event for event in halved(ThroughputReports(training()), slow_node="n2") if event.changed)
    assert change.slow_node == "n2", "it was named after the alarm"
