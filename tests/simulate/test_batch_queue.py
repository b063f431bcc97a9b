"""The batch-queue simulator against an independent one that steps second by second, and against its own promises."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from offcut.errors import InputError
from offcut.simulate.batch_queue import measure, recorded_metrics, simulate_queue
from offcut.traces.batch_log import BatchJob, BatchLog, make_log
from offcut.traces.read_log import read_log

MACHINE = 6
SCHEDULERS = ("fcfs", "easy", "conservative")


@st.composite
def logs(draw: st.DrawFn, exact: bool = False) -> BatchLog:
    """Up to twelve small jobs; with `exact`, every job runs as long as it asked for."""
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 12), st.integers(1, MACHINE), st.integers(1, 9), st.integers(0, 6)),
            min_size=1,
            max_size=12,
        )
    )
    return make_log(
        "test",
        [
            BatchJob(
                id=str(i),
                submit_s=float(submit),
                nodes=nodes,
                run_s=float(run),
                requested_s=float(run + (0 if exact else more)),
            )
            for i, (submit, nodes, run, more) in enumerate(rows)
        ],
    )


def step_by_step(log: BatchLog, scheduler: str) -> list[float]:
    """Starts by a simulator with no event, no profile and no shadow time: each second it applies the definition."""
    jobs = log.jobs
    asked = [job.requested_s or 0.0 for job in jobs]
    starts: dict[int, int] = {}
    reserved: dict[int, int] = {}
    queue: list[int] = []

    def fits(job: int, at: int, now: int, plan: dict[int, int]) -> bool:
        """Return whether `job` could run from `at` for its requested time, beside what runs and what `plan` holds."""
        for t in range(at, at + int(asked[job])):
            used = sum(jobs[j].nodes for j, s in starts.items() if s <= t < s + asked[j] and (s + jobs[j].run_s > now))
            used += sum(jobs[j].nodes for j, s in plan.items() if j != job and s <= t < s + asked[j])
            if used + jobs[job].nodes > MACHINE:
                return False
        return True

    def first_fit(job: int, now: int, plan: dict[int, int]) -> int:
        at = now
        while not fits(job, at, now, plan):
            at += 1
        return at

    now = 0
    while len(starts) < len(jobs):
        ended_early = any(s + jobs[j].run_s == now < s + asked[j] for j, s in starts.items())
        if scheduler == "conservative" and ended_early:
            for job in queue:
                del reserved[job]
                # Its old place comes after `now`, so the dictionary's order need not be kept: `queue` has it.
                reserved[job] = first_fit(job, now, reserved)
        for job in range(len(jobs)):
            if jobs[job].submit_s == now:
                queue.append(job)
                if scheduler == "conservative":
                    reserved[job] = first_fit(job, now, reserved)
        if scheduler == "conservative":
            for job in [job for job in queue if reserved[job] == now]:
                starts[job] = reserved.pop(job)
                queue.remove(job)
        else:
            while queue and first_fit(queue[0], now, {}) == now:
                starts[queue.pop(0)] = now
            for job in queue[1:] if scheduler == "easy" else []:
                if first_fit(job, now, {}) == now:
                    head_before = first_fit(queue[0], now, {})
                    starts[job] = now
                    if first_fit(queue[0], now, {}) > head_before:
                        del starts[job]
            queue = [job for job in queue if job not in starts]
        now += 1
    return [float(starts[i]) for i in range(len(jobs))]


def rigid(*rows: tuple[int, int, int]) -> BatchLog:
    """Jobs (nodes, run, requested), all submitted at 0."""
    return make_log(
        "test",
        [
            BatchJob(id=str(i), submit_s=0.0, nodes=nodes, run_s=float(run), requested_s=float(requested))
            for i, (nodes, run, requested) in enumerate(rows)
        ],
    )


#: Compression leaves a reservation for a time at which nothing ends and nothing runs.
IDLE_BEFORE_A_RESERVATION = rigid((1, 1, 1), (1, 1, 1), (3, 1, 1), (3, 1, 3), (2, 2, 2), (5, 1, 1), (2, 1, 1))


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@given(log=logs())
@example(log=IDLE_BEFORE_A_RESERVATION)
@settings(max_examples=120, deadline=None)
def test_starts_equal_the_definition_second_by_second(scheduler, log):
    assert list(simulate_queue(log, MACHINE, scheduler).start_s) == step_by_step(log, scheduler)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@given(log=logs())
@settings(max_examples=60, deadline=None)
def test_no_node_runs_two_jobs_and_windows_are_what_is_left(scheduler, log):
    result = simulate_queue(log, MACHINE, scheduler)
    submit = np.array([job.submit_s for job in log.jobs])
    width = np.array([job.nodes for job in log.jobs])
    end = result.start_s + np.array([job.run_s for job in log.jobs])
    assert (result.start_s >= submit).all()
    for t in np.unique(np.concatenate((result.start_s, end))):
        busy = width[(result.start_s <= t) & (t < end)].sum()
        assert busy <= MACHINE
        if submit[0] <= t < submit[-1]:
            # Windows of one node never overlap (the table refuses them), so this counts nodes.
            assert busy + sum(w.start_s <= t < w.end_s for w in result.windows) == MACHINE


@given(log=logs())
@settings(max_examples=60, deadline=None)
def test_first_come_first_served_starts_in_order(log):
    starts = simulate_queue(log, MACHINE, "fcfs").start_s
    assert (np.diff(starts) >= 0).all()


@given(log=logs(exact=True))
@settings(max_examples=60, deadline=None)
def test_with_exact_requests_conservative_backfilling_delays_no_job(log):
    fcfs, conservative = (simulate_queue(log, MACHINE, s).start_s for s in ("fcfs", "conservative"))
    assert (conservative <= fcfs).all()


def job(name: str, submit: float, nodes: int, run: float, requested: float | None = None) -> BatchJob:
    return BatchJob(id=name, submit_s=submit, nodes=nodes, run_s=run, requested_s=requested)


def test_a_schedule_worked_out_by_hand():
    """Four nodes. b waits for a; c fits beside b's reservation, d does not, e fits because it ends in time."""
    log = make_log(
        "hand",
        [
            job("a", 0, 3, 10, 12),
            job("b", 1, 3, 5, 5),
            job("c", 2, 1, 20, 20),
            job("d", 3, 2, 4, 4),
            job("e", 4, 1, 3, 3),
        ],
    )
    starts = {s: dict(zip("abcde", simulate_queue(log, 4, s).start_s.tolist(), strict=True)) for s in SCHEDULERS}
    # a ends at 10, two seconds early; b and c follow at once, d waits for b's nodes, e for order only.
    assert starts["fcfs"] == {"a": 0, "b": 10, "c": 10, "d": 15, "e": 15}
    # c takes the node that b leaves free at 12, for good.
    assert starts["easy"] == {"a": 0, "b": 10, "c": 2, "d": 15, "e": 15}
    assert starts["conservative"] == {"a": 0, "b": 10, "c": 2, "d": 15, "e": 15}


def test_windows_record_the_ends_that_the_queue_expected():
    """Of four nodes a holds three until 10 at most; c leaves the fourth at 2, when b already waits for all four."""
    log = make_log("hand", [job("a", 0, 3, 8, 10), job("c", 0, 1, 2), job("b", 1, 4, 5), job("late", 30, 1, 1)])
    windows = simulate_queue(log, 4, "easy").windows
    rows = [(w.node, w.start_s, w.end_s) for w in windows]
    assert rows[0] == ("n0003", 2, 8)
    assert windows.expected_end_s is not None
    assert windows.expected_end_s[0] == 10
    # After b, from 13 on, nobody waits: nothing is expected.
    assert {row[1:] for row in rows[1:]} == {(13.0, 30.0)}
    assert np.isnan(windows.expected_end_s[1:]).all()


def test_nodes_that_a_reservation_leaves_free_are_expected_to_stay_idle():
    log = make_log("hand", [job("a", 0, 3, 10, 10), job("c", 0, 3, 2), job("b", 1, 4, 5), job("late", 30, 1, 1)])
    windows = simulate_queue(log, 6, "easy").windows
    first = {w.node: expected for w, expected in zip(windows, windows.expected_end_s, strict=True) if w.start_s == 2}
    # At 10 six nodes are free and b takes four: of the three idle ones the lowest is needed, two are left.
    assert first["n0003"] == 10
    assert math.isnan(first["n0004"])
    assert math.isnan(first["n0005"])


def test_metrics_by_hand():
    log = make_log("hand", [job("a", 0, 2, 4), job("b", 0, 2, 100)])
    metrics = measure(log, 2, np.array([0.0, 4.0]))
    assert metrics.mean_wait_s == 2
    assert metrics.max_wait_s == 4
    # The first job ran for less than 10 s and did not wait: 1. The second waited 4 s for 100.
    assert metrics.mean_bounded_slowdown == pytest.approx((1 + 1.04) / 2)
    assert metrics.utilisation == 1
    assert metrics.makespan_s == 104


def test_a_job_wider_than_the_machine_is_named():
    log = make_log("hand.swf", [job("7", 0, 5, 1)])
    with pytest.raises(InputError, match=r"hand\.swf: job 7 needs 5 nodes, but the machine has 4"):
        simulate_queue(log, 4)


def test_requested_times_are_raised_to_the_run_time_with_a_note():
    log = make_log("hand", [job("a", 0, 1, 10, 5), job("b", 0, 1, 10)])
    notes = simulate_queue(log, 1).notes
    assert any("ran longer than they asked for" in note and note.endswith(": 1.") for note in notes)
    assert any("without a requested time" in note and note.endswith(": 1.") for note in notes)


def test_easy_on_kth(shared: Path):
    """28,481 jobs on 100 processors."""
    log = read_log(shared / "data/logs/KTH-SP2-1996-2-filtered28481.swf.gz")
    metrics = simulate_queue(log, 100, "easy").metrics
    assert metrics.jobs == 28_481
    assert metrics.mean_wait_s == pytest.approx(6_887.65, abs=0.01)
    assert metrics.mean_bounded_slowdown == pytest.approx(92.788, abs=0.001)
    recorded = recorded_metrics(log, 100)
    assert recorded is not None
    assert recorded.mean_wait_s == pytest.approx(15_385.26, abs=0.01)


@pytest.mark.ci
def test_easy_on_theta(shared: Path):
    """23,911 jobs on 4,360 nodes."""
    log = read_log(shared / "data/logs/alcf-theta_2022.swf.gz")
    result = simulate_queue(log, 4_360, "easy")
    assert result.metrics.mean_wait_s == pytest.approx(44_663.78, abs=0.01)
    assert result.metrics.mean_bounded_slowdown == pytest.approx(116.966, abs=0.001)
    assert any(note.endswith(": 6,264.") for note in result.notes)
