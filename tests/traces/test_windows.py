"""Idle windows: the table, the file, the busiest nodes."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.errors import InputError
from offcut.model import Window
from offcut.traces.windows import Windows, busiest_nodes, read_windows, write_windows


@st.composite
def window_lists(draw: st.DrawFn) -> list[Window]:
    windows = []
    for node in draw(st.lists(st.sampled_from("abcdefg"), unique=True, max_size=5)):
        borders = sorted(draw(st.sets(st.integers(0, 60), max_size=8)))
        windows += [Window(node, float(a), float(b)) for a, b in zip(borders[::2], borders[1::2], strict=False)]
    return draw(st.permutations(windows))


@given(window_lists(), st.booleans(), st.sampled_from([1.0, 0.25, 1e-9]))
@settings(max_examples=60, deadline=None)
def test_windows_survive_a_round_trip_through_a_file(tmp_path_factory, windows, gz, scale):
    scaled = [Window(w.node, w.start_s * scale, w.end_s * scale) for w in windows]
    path = tmp_path_factory.mktemp("w") / ("w.csv.gz" if gz else "w.csv")
    write_windows(path, scaled)
    back = read_windows(path)
    assert sorted(back) == sorted(scaled)
    assert list(back) == sorted(scaled, key=lambda w: (w.start_s, w.node))


@given(window_lists())
@settings(max_examples=60, deadline=None)
def test_idle_count_equals_counting_one_by_one(windows):
    times, count = Windows.from_windows(windows).idle_count(origin_s=0)
    assert list(times) == sorted({0.0} | {w.start_s for w in windows} | {w.end_s for w in windows})
    for t, n in zip(times, count, strict=True):
        assert n == sum(w.start_s <= t < w.end_s for w in windows)


@given(window_lists(), st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_between_cuts_at_the_borders(windows, start, length):
    end = start + length
    cut = list(Windows.from_windows(windows).between(start, end))
    assert cut == sorted(
        (
            Window(w.node, max(w.start_s, start), min(w.end_s, end))
            for w in windows
            if w.start_s < end and w.end_s > start
        ),
        key=lambda w: (w.start_s, w.node),
    )


def test_busiest_nodes_counts_windows_in_the_interval_and_breaks_ties_by_name():
    windows = [Window("b", 0, 1), Window("b", 2, 3), Window("a", 5, 6), Window("a", 8, 9), Window("c", 0, 100)]
    assert busiest_nodes(windows, 3, 0, 10) == ["a", "b", "c"]
    assert busiest_nodes(windows, 1, 0, 4) == ["b"]
    with pytest.raises(InputError, match="3 nodes were asked for, but 2 have a window from 0 to 4 s"):
        busiest_nodes(windows, 3, 0, 4)


def test_windows_of_some_nodes():
    windows = Windows.from_windows([Window("b", 0, 1), Window("a", 2, 3), Window("c", 2, 4)])
    assert list(windows.of_named_nodes(["c", "b"])) == [Window("b", 0, 1), Window("c", 2, 4)]
    with pytest.raises(InputError, match="no window of node x"):
        windows.of_named_nodes(["x"])


def test_expected_ends_survive_a_round_trip_through_a_file(tmp_path: Path):
    path = tmp_path / "w.csv"
    path.write_text("node,start_s,end_s,expected_end_s\nn1,0,10,12.5\nn2,0,20,\n")
    windows = read_windows(path)
    assert windows.expected_end_s is not None
    assert windows.expected_end_s[0] == 12.5
    assert math.isnan(windows.expected_end_s[1])
    write_windows(tmp_path / "v.csv", windows)
    assert (tmp_path / "v.csv").read_text() == path.read_text()


def test_columns_in_any_order_blank_lines_and_a_byte_order_mark(tmp_path: Path):
    path = tmp_path / "w.csv"
    path.write_text("\ufeffend_s,rack,node,start_s\n10,r1,n1, 0.5\n\n20,r2,n0,15\n")
    assert list(read_windows(path)) == [Window("n1", 0.5, 10), Window("n0", 15, 20)]


HEADER = "node,start_s,end_s\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "line 1: the header has no column node, start_s, end_s"),
        ("n1,0,10\n", "line 1: the header has no column node, start_s, end_s"),
        ("node,start_s\nn1,0\n", "line 1: the header has no column end_s"),
        (HEADER + "n1,0,10\nn1,30,20\n", "line 3, field end_s: the window ends at 20, not after its start 30"),
        (HEADER + "n1,5,5\n", "line 2, field end_s: the window ends at 5, not after its start 5"),
        (HEADER + "n1,0,ten\n", "line 2, field end_s: 'ten' is not a number of seconds"),
        (HEADER + "n1,,10\n", "line 2, field start_s: '' is not a number of seconds"),
        (HEADER + "n1,nan,10\n", "line 2, field start_s: 'nan' is not a number of seconds"),
        (HEADER + "n1,0,inf\n", "line 2, field end_s: 'inf' is not a number of seconds"),
        (HEADER + "n1,0\n", "line 2: 2 fields, but the header has 3"),
        (HEADER + "n1,0,1\n\nn1,2,3,4\n", "line 4: 4 fields, but the header has 3"),
        (HEADER + ",0,1\n", "line 2, field node: empty"),
        (
            HEADER + "n1,0,10\nn2,5,7\nn1,9,12\n",
            "line 4, field start_s: node n1 becomes idle at 9 s, but the window in",
        ),
        ("node,start_s,end_s,expected_end_s\nn1,0,1,soon\n", "line 2, field expected_end_s: 'soon' is not a number"),
    ],
)
def test_bad_files_name_line_and_field(tmp_path: Path, text: str, sentence: str):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=r"bad\.csv, ") as error:
        read_windows(path)
    assert sentence in error.value.what
    assert error.value.next_step


def test_truncated_damaged_missing_and_binary_files(tmp_path: Path):
    whole = gzip.compress((HEADER + "".join(f"n{i},0,{i + 1}\n" for i in range(2000))).encode())
    path = tmp_path / "w.csv.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"w\.csv\.gz: the gzip file is truncated"):
        read_windows(path)
    path.write_bytes(whole[:40] + b"\xff\xff\xff\xff" + whole[44:])
    with pytest.raises(InputError, match=r"w\.csv\.gz: the gzip file is (damaged|truncated)"):
        read_windows(path)
    path.write_bytes(b"node,start_s,end_s\nn\xff,0,1\n")
    with pytest.raises(InputError, match="line 2: not UTF-8"):
        read_windows(path)
    with pytest.raises(InputError, match="No such file"):
        read_windows(tmp_path / "nowhere.csv")


def test_adjacent_windows_are_accepted_and_overlapping_ones_refused():
    Windows.from_windows([Window("a", 0, 1), Window("a", 1, 2)])
    with pytest.raises(InputError, match=r"node a has overlapping windows \[0, 2\) and \[1, 3\)"):
        Windows.from_windows([Window("a", 1, 3), Window("a", 0, 2)])
    with pytest.raises(InputError, match="idle from 3 to 3 s, not a finite interval above 0"):
        Windows.from_windows([Window("a", 3, 3)])


def test_idle_count_of_summit_equals_the_record(shared: Path):
    windows = read_windows(shared / "data/summit/windows.csv.gz")
    record = pl.read_csv(shared / "data/summit/idle-count.csv.gz")
    assert len(windows) == 423_502
    assert len(windows.names) == 4_680
    times, count = windows.idle_count(origin_s=0)
    assert len(times) == 23_883
    np.testing.assert_array_equal(times, record["t"].to_numpy())
    np.testing.assert_array_equal(count[:-1], record["idle_nodes"].to_numpy()[:-1])
    # At the very last event the record ends and cuts every window: the windows file cannot say which of them went on.
    assert count[-1] == 0
    assert record["idle_nodes"][-1] <= np.sum(windows.end_s == times[-1])
