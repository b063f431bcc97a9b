"""Idle windows out of batch logs, and the free nodes that they are made of."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.errors import InputError
from offcut.model import Window
from offcut.traces.batch_log import BatchJob, make_log
from offcut.traces.free_nodes import FreeNodes
from offcut.traces.idle_from_log import idle_windows

rows = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8), st.integers(1, 9)), min_size=2, max_size=12)


@given(rows)
@settings(max_examples=80, deadline=None)
def test_from_counts_the_idle_count_is_the_machine_less_the_busy_nodes(jobs):
    log = make_log(
        "t", [BatchJob(id=str(i), submit_s=s, start_s=s, nodes=n, run_s=r) for i, (s, n, r) in enumerate(jobs)]
    )
    record = idle_windows(log, nodes=200, start_s=0, end_s=30)
    assert record.notes == ()
    for t in range(30):
        busy = sum(n for s, n, r in jobs if s <= t < s + r)
        assert sum(w.start_s <= t < w.end_s for w in record.windows) == 200 - busy


@given(
    st.lists(st.tuples(st.integers(0, 20), st.sets(st.sampled_from("abc"), min_size=1), st.integers(1, 9)), min_size=2)
)
@settings(max_examples=80, deadline=None)
def test_from_node_lists_a_node_is_idle_where_no_job_of_it_runs(jobs):
    """Nodes may be shared: jobs of one node overlap."""
    log = make_log(
        "t",
        [
            BatchJob(id=str(i), submit_s=s, start_s=s, nodes=len(n), run_s=r, node_list=tuple(sorted(n)))
            for i, (s, n, r) in enumerate(jobs)
        ],
    )
    record = idle_windows(log, start_s=2, end_s=25)
    assert record.rule == "the recorded node lists"
    names = {name for _, listed, _ in jobs for name in listed}
    for name in names:
        for t in range(2, 25):
            busy = any(name in listed and s <= t < s + r for s, listed, r in jobs)
            assert busy != any(w.node == name and w.start_s <= t < w.end_s for w in record.windows)
    assert all(2 <= w.start_s < w.end_s <= 25 for w in record.windows)


def test_lowest_numbered_nodes_first_and_ends_before_starts():
    jobs = [
        BatchJob(id="a", submit_s=0, start_s=0, nodes=2, run_s=5),
        BatchJob(id="b", submit_s=0, start_s=5, nodes=1, run_s=5),
        BatchJob(id="c", submit_s=0, start_s=10, nodes=1, run_s=1),
    ]
    record = idle_windows(make_log("t", jobs), nodes=3)
    assert (record.start_s, record.end_s) == (0, 10)
    assert list(record.windows) == [Window("n0002", 0, 10), Window("n0001", 5, 10)]


def test_the_clock_of_written_windows_starts_at_zero():
    jobs = [BatchJob(id=str(i), submit_s=s, start_s=s, nodes=1, run_s=5) for i, s in enumerate((1000, 1010))]
    assert list(idle_windows(make_log("t", jobs)).from_zero()) == [Window("n0000", 5, 10)]


def test_a_log_that_cannot_give_windows_is_refused():
    without = make_log("phil.csv", [BatchJob(id="a", submit_s=0, nodes=1, run_s=5)])
    with pytest.raises(InputError, match=r"phil\.csv: the log records no job's start"):
        idle_windows(without)
    listed = make_log(
        "s.txt",
        [BatchJob(id=str(i), submit_s=i, start_s=i, nodes=1, run_s=5, node_list=("n1",)) for i in range(2)],
    )
    with pytest.raises(InputError, match=r"s\.txt: 9 nodes were asked for, but the log names 1"):
        idle_windows(listed, nodes=9)
    with pytest.raises(InputError, match="the interval from 5 to 1 s is empty"):
        idle_windows(listed, start_s=5, end_s=1)
    crowded = make_log(
        "c.swf", [BatchJob(id=str(i), submit_s=i, start_s=i, nodes=2, run_s=5) for i in range(3)], machine=3
    )
    assert idle_windows(crowded, end_s=9).notes == ("Jobs that found fewer free nodes than they had in the log: 2.",)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=40))
@settings(max_examples=80, deadline=None)
def test_free_nodes_take_the_lowest_and_lose_none(steps):
    free = FreeNodes(10, 0.0)
    model = set(range(10))
    held = []
    for now, (give, count) in enumerate(steps, start=1):
        if give and held:
            ranges = held.pop(count % len(held))
            free.vacate(ranges, now)
            model |= {n for low, high in ranges for n in range(low, high)}
        elif count <= free.free:
            ranges = free.occupy(count, now)
            taken = [n for low, high in ranges for n in range(low, high)]
            assert taken == sorted(model)[:count]
            model -= set(taken)
            held.append(ranges)
        assert free.free == len(model)


@given(st.integers(1, 8), st.integers(0, 8), st.lists(st.integers(0, 12), max_size=5))
@settings(max_examples=80, deadline=None)
def test_expected_ends_follow_the_plan_node_by_node(new, old, left):
    """Of the free nodes, rank r is wanted once fewer than (free - r) are left: here counted one node at a time."""
    free = FreeNodes(16, 0.0)
    ranges = free.occupy(16, 0.0)
    assert ranges == [(0, 16)]
    free.vacate([(0, old)] if old else [], 1.0)
    free.vacate([(8, 8 + new)], 2.0)
    plan = [(10.0 + i, count) for i, count in enumerate(left)]
    free.set_expected_ends(plan, 2.0)
    windows = free.windows(3.0)
    assert windows.expected_end_s is not None
    expected = {w.node: e for w, e in zip(windows, windows.expected_end_s.tolist(), strict=True) if w.start_s == 2}
    for r in range(new):
        rank = old + r
        wanted = next((t for t, count in plan if free.free - count > rank), math.nan)
        np.testing.assert_equal(expected[f"n{8 + r:04d}"], wanted)
