"""Idle windows: the table, the file `node,start_s,end_s`, the nodes with most of them.

A file may have a fourth column `expected_end_s`: the end that the batch queue expected when the window began (empty: it
expected none). Columns may be in any order; other columns are ignored.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import polars as pl

from offcut.errors import InputError
from offcut.model import Window
from offcut.traces.text_file import read_text, write_text

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

COLUMNS = ("node", "start_s", "end_s")
EXPECTED = "expected_end_s"


@dataclass(frozen=True, slots=True, eq=False)
class Windows(Sequence[Window]):
    """A table of windows, one array per column, ordered by start and then by node name; a sequence of `Window` too.

    `names` are the node names, sorted; `node[i]` is the index of window i's node in them. `expected_end_s` is the
    end that the queue expected when the window began, NaN if it expected none; None if no ends were recorded.
    Build one with `Windows.from_windows` or `Windows.from_columns`, which sort and check the rows.
    """

    names: tuple[str, ...]
    node: Ints
    start_s: Floats
    end_s: Floats
    expected_end_s: Floats | None = None

    @classmethod
    def from_windows(cls, windows: Iterable[Window]) -> Windows:
        """Make a table of windows; raises InputError if a window is empty or overlaps another one of its node."""
        if isinstance(windows, Windows):
            return windows
        rows = list(windows)
        return cls.from_columns([w.node for w in rows], [w.start_s for w in rows], [w.end_s for w in rows])

    @classmethod
    def from_columns(
        cls,
        nodes: Sequence[str] | pl.Series,
        start_s: npt.ArrayLike,
        end_s: npt.ArrayLike,
        expected_end_s: npt.ArrayLike | None = None,
    ) -> Windows:
        """Make a table of columns in any order of rows; raises InputError if they are not valid windows."""
        column = nodes if isinstance(nodes, pl.Series) else pl.Series("node", nodes, dtype=pl.String)
        names = column.unique().sort()
        # Rank by binary search: as quick as a categorical and independent of its version.
        index = names.search_sorted(column).to_numpy().astype(np.int64) if len(column) else np.zeros(0, np.int64)
        return cls.from_indices(tuple(names.to_list()), index, start_s, end_s, expected_end_s)

    @classmethod
    def from_indices(
        cls,
        names: tuple[str, ...],
        node: npt.ArrayLike,
        start_s: npt.ArrayLike,
        end_s: npt.ArrayLike,
        expected_end_s: npt.ArrayLike | None = None,
    ) -> Windows:
        """Make a table as `from_columns` does, with nodes as indices into the sorted `names`.

        A name may have no window.
        """
        index = np.asarray(node, np.int64)
        start = np.asarray(start_s, np.float64)
        order = np.lexsort((index, start))
        table = cls(
            names=names,
            node=index[order],
            start_s=start[order],
            end_s=np.asarray(end_s, np.float64)[order],
            expected_end_s=None if expected_end_s is None else np.asarray(expected_end_s, np.float64)[order],
        )
        table._check()
        return table

    def _check(self) -> None:
        bad = ~(np.isfinite(self.start_s) & np.isfinite(self.end_s) & (self.end_s > self.start_s))
        if bad.any():
            w = self[int(np.argmax(bad))]
            raise InputError(
                f"windows: node {w.node} is idle from {w.start_s:g} to {w.end_s:g} s, not a finite interval above 0.",
                next_step="A window ends after it starts.",
            )
        pair = self.first_overlap()
        if pair is not None:
            a, b = self[pair[0]], self[pair[1]]
            raise InputError(
                f"windows: node {a.node} has overlapping windows {_span(a)} and {_span(b)}.",
                next_step="Merge them or drop one.",
            )

    def first_overlap(self) -> tuple[int, int] | None:
        """Return the indices of two windows of one node that overlap, or None."""
        order = np.lexsort((self.start_s, self.node))
        node, start, end = self.node[order], self.start_s[order], self.end_s[order]
        bad = (node[1:] == node[:-1]) & (start[1:] < end[:-1])
        if not bad.any():
            return None
        i = int(np.argmax(bad))
        return int(order[i]), int(order[i + 1])

    def __len__(self) -> int:
        return len(self.node)

    @overload
    def __getitem__(self, index: int) -> Window: ...
    @overload
    def __getitem__(self, index: slice) -> Windows: ...
    def __getitem__(self, index: int | slice) -> Window | Windows:
        if isinstance(index, slice):
            return self._rows(np.arange(len(self))[index])
        return Window(self.names[self.node[index]], float(self.start_s[index]), float(self.end_s[index]))

    def __iter__(self) -> Iterator[Window]:
        columns = zip(self.node.tolist(), self.start_s.tolist(), self.end_s.tolist(), strict=True)
        for node, start, end in columns:
            yield Window(self.names[node], start, end)

    def _rows(self, rows: npt.NDArray[Any]) -> Windows:
        """Return some rows (indices, or a mask), with the same names."""
        expected = None if self.expected_end_s is None else self.expected_end_s[rows]
        return Windows(self.names, self.node[rows], self.start_s[rows], self.end_s[rows], expected)

    @property
    def length_s(self) -> Floats:
        return self.end_s - self.start_s

    @property
    def span_s(self) -> tuple[float, float]:
        """First start and last end, in seconds; (0, 0) if there are no windows."""
        return (float(self.start_s[0]), float(self.end_s.max())) if len(self) else (0.0, 0.0)

    def of_named_nodes(self, names: Iterable[str]) -> Windows:
        """Return the windows of the nodes `names` alone; raises InputError if one of them has no window."""
        wanted = sorted(set(names))
        unknown = set(wanted) - set(self.names)
        if unknown:
            raise InputError(f"windows: no window of node {min(unknown)}.", next_step="Check the node's name.")
        index = np.searchsorted(np.array(self.names), np.array(wanted))
        new_index = np.full(len(self.names), -1, np.int64)
        new_index[index] = np.arange(len(wanted))
        part = self._rows(new_index[self.node] >= 0)
        return Windows(tuple(wanted), new_index[part.node], part.start_s, part.end_s, part.expected_end_s)

    def sample(self, count: int, seed: int) -> Windows:
        """Return the windows of `count` nodes drawn at random; raises InputError if the trace has fewer."""
        if not 1 <= count <= len(self.names):
            raise InputError(
                f"windows: {count} nodes were asked for, but the trace has {len(self.names)}.",
                next_step=f"Ask for 1 to {len(self.names)} nodes.",
            )
        drawn = np.random.default_rng(seed).choice(len(self.names), count, replace=False)
        return self.of_named_nodes(self.names[i] for i in drawn.tolist())

    def between(self, start_s: float, end_s: float) -> Windows:
        """Return the parts of the windows that lie in `[start_s, end_s)`, on the same clock."""
        part = self._rows((self.end_s > start_s) & (self.start_s < end_s))
        start = np.maximum(part.start_s, start_s)
        order = np.lexsort((part.node, start))
        cut = Windows(part.names, part.node, start, np.minimum(part.end_s, end_s), part.expected_end_s)
        return cut._rows(order)

    def idle_count(self, origin_s: float | None = None) -> tuple[Floats, Ints]:
        """Return the times at which the number of idle nodes may change, and the number from each time on.

        `origin_s` adds a first row at that time, for a trace that begins before its first window.
        """
        starts, ends = np.sort(self.start_s), np.sort(self.end_s)
        times = np.unique(np.concatenate((starts, ends, [] if origin_s is None else [origin_s])))
        count = np.searchsorted(starts, times, "right") - np.searchsorted(ends, times, "right")
        return times, count.astype(np.int64)


def node_names(nodes: int) -> tuple[str, ...]:
    """Return default node names: `n0000`, `n0001`, ..., padded so that they sort."""
    width = max(4, len(str(nodes - 1)))
    return tuple(f"n{i:0{width}d}" for i in range(nodes))


def busiest_nodes(windows: Iterable[Window], count: int, start_s: float, end_s: float) -> list[str]:
    """Return the `count` nodes with most windows that touch `[start_s, end_s)`, most first, ties by name.

    Raises InputError where fewer nodes than that have any window there.
    """
    table = Windows.from_windows(windows).between(start_s, end_s)
    per_node = np.bincount(table.node, minlength=len(table.names))
    ranked = sorted(np.flatnonzero(per_node).tolist(), key=lambda i: (-per_node[i], table.names[i]))
    if count > len(ranked):
        raise InputError(
            f"windows: {count} nodes were asked for, but {len(ranked)} have a window from {start_s:g} to {end_s:g} s.",
            next_step="Ask for fewer nodes or for a longer time.",
        )
    return [table.names[i] for i in ranked[:count]]


def read_windows(path: str | Path) -> Windows:
    """Read a windows file, gzipped or not; raises InputError with file, line and field if it is not valid."""
    text = read_text(path)
    header = text.partition("\n")[0].strip().split(",")
    missing = [column for column in COLUMNS if column not in header]
    if missing:
        raise InputError(
            f"{path}, line 1: the header has no column {', '.join(missing)}; it reads '{','.join(header)[:80]}'.",
            next_step=f"The first line is '{','.join(COLUMNS)}'.",
        )
    wanted = [*COLUMNS, EXPECTED] if EXPECTED in header else [*COLUMNS]
    try:
        rows = pl.read_csv(text.encode(), infer_schema=False, columns=wanted)
        values = rows.select(
            "node", *(pl.col(name).str.strip_chars().cast(pl.Float64, strict=False) for name in wanted[1:])
        )
        sound = all(values[name].is_finite().fill_null(value=False).all() for name in ("start_s", "end_s"))
        sound = sound and values["node"].null_count() == 0 and bool((values["end_s"] > values["start_s"]).all())
    except pl.exceptions.PolarsError:
        sound = False
    if sound and len(wanted) > len(COLUMNS):
        sound = values[EXPECTED].null_count() == rows[EXPECTED].null_count()
    if not sound:
        return _read_slowly(path, text, header)
    expected = values[EXPECTED].fill_null(math.nan).to_numpy() if EXPECTED in wanted else None
    try:
        return Windows.from_columns(values["node"], values["start_s"].to_numpy(), values["end_s"].to_numpy(), expected)
    except InputError:
        return _read_slowly(path, text, header)


def _read_slowly(path: str | Path, text: str, header: list[str]) -> Windows:
    """Read line by line after the fast reader failed: find the line at fault, or accept an unusual form."""
    place = {name: header.index(name) for name in (*COLUMNS, EXPECTED) if name in header}
    nodes: list[str] = []
    times: dict[str, list[float]] = {name: [] for name in place if name != "node"}
    lines: list[int] = []
    reader = csv.reader(io.StringIO(text))
    next(reader)
    for row in reader:
        where = f"{path}, line {reader.line_num}"
        if not row:
            continue
        if len(row) != len(header):
            raise InputError(
                f"{where}: {len(row)} fields, but the header has {len(header)}.",
                next_step="Each line has one field per column.",
            )
        if not row[place["node"]]:
            raise InputError(f"{where}, field node: empty.", next_step="Name the node.")
        nodes.append(row[place["node"]])
        lines.append(reader.line_num)
        for name, column in times.items():
            column.append(_number(row[place[name]], f"{where}, field {name}", optional=name == EXPECTED))
        if times["end_s"][-1] <= times["start_s"][-1]:
            raise InputError(
                f"{where}, field end_s: the window ends at {row[place['end_s']]}, "
                f"not after its start {row[place['start_s']]}.",
                next_step="A window ends after it starts.",
            )
    _check_overlap(path, nodes, times, lines)
    return Windows.from_columns(nodes, times["start_s"], times["end_s"], times.get(EXPECTED))


def _check_overlap(path: str | Path, nodes: list[str], times: dict[str, list[float]], lines: list[int]) -> None:
    order = sorted(range(len(nodes)), key=lambda i: (nodes[i], times["start_s"][i]))
    for a, b in pairwise(order):
        if nodes[a] == nodes[b] and times["start_s"][b] < times["end_s"][a]:
            raise InputError(
                f"{path}, line {lines[b]}, field start_s: node {nodes[b]} becomes idle at {times['start_s'][b]:g} s, "
                f"but the window in line {lines[a]} lasts until {times['end_s'][a]:g} s.",
                next_step="Merge the overlapping windows or drop one.",
            )


def _number(text: str, where: str, *, optional: bool) -> float:
    if optional and not text.strip():
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{where}: '{text[:40]}' is not a number of seconds.", next_step="Write for example 2396.5.")
    return value


def write_windows(path: str | Path, windows: Iterable[Window]) -> None:
    """Write `windows` to `path`, gzipped if the name ends in `.gz`; whole seconds without a decimal point."""
    table = Windows.from_windows(windows)
    columns = {"node": pl.Series(table.names, dtype=pl.String).gather(table.node)}
    times = {"start_s": table.start_s, "end_s": table.end_s}
    if table.expected_end_s is not None:
        times[EXPECTED] = table.expected_end_s
    for name, values in times.items():
        column = pl.Series(name, values).fill_nan(None)
        whole = bool((column.drop_nulls() % 1 == 0).all())
        columns[name] = column.cast(pl.Int64) if whole else column
    write_text(path, pl.DataFrame(columns).write_csv(float_scientific=False))


def _span(window: Window) -> str:
    return f"[{window.start_s:g}, {window.end_s:g})"
