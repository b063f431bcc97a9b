"""Draws a curve with characters, each of two by two dots; with stars in a terminal that has no block characters."""

from __future__ import annotations

import math
from collections.abc import Sequence

#: Block characters by which quarters are filled: 1 upper left, 2 upper right, 4 lower left, 8 lower right.
_BLOCKS = " ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█"
#: What is larger is drawn as this: sums of it are finite.
_LARGEST = 1e300


def draw(x: Sequence[float], y: Sequence[float], *, width: int, height: int, blocks: bool = True) -> list[str]:
    """Return the lines of a picture of y against x, without axes; between the points lies a straight line.

    Points that share a column are drawn as their mean.

    Args:
        x: in rising order; finite.
        y: as many, finite.
        width: of the picture, in characters.
        height: of the picture, in characters.
        blocks: draw with block characters, else with stars.
    """
    scale = 2 if blocks else 1
    columns, rows = width * scale, height * scale
    means = _column_means(x, y, columns)
    low, high = min(y for y in means if y is not None), max(y for y in means if y is not None)
    heights = [_row(y, low, high, rows) for y in _filled(means)]
    dots = [[False] * columns for _ in range(rows)]
    for column, row in enumerate(heights):
        before = heights[column - 1] if column else row
        # A steep part is a line without gaps.
        for filled in range(min(row, before + 1), row + 1) if row >= before else range(row, before):
            dots[filled][column] = True
    return ["".join(_character(dots, i, j, scale) for j in range(width)).rstrip() for i in reversed(range(height))]


def _column_means(x: Sequence[float], y: Sequence[float], columns: int) -> list[float | None]:
    span = (x[-1] - x[0]) or 1.0
    sums, counts = [0.0] * columns, [0] * columns
    for at, value in zip(x, y, strict=True):
        column = min(columns - 1, int((at - x[0]) / span * columns))
        sums[column] += max(-_LARGEST, min(value, _LARGEST))
        counts[column] += 1
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def _filled(means: Sequence[float | None]) -> list[float]:
    """Return the columns with those between two known ones on the line through these; what follows the last stays."""
    known = [i for i, value in enumerate(means) if value is not None]
    found = []
    for i in range(len(means)):
        left = max((k for k in known if k <= i), default=known[0])
        right = min((k for k in known if k >= i), default=known[-1])
        first, last = means[left] or 0.0, means[right] or 0.0
        found.append(first if left >= right else first + (last - first) * (i - left) / (right - left))
    return found


def _row(value: float, low: float, high: float, rows: int) -> int:
    return rows // 2 if high == low else min(rows - 1, int((value - low) / (high - low) * rows))


def _character(dots: list[list[bool]], row: int, column: int, scale: int) -> str:
    if scale == 1:
        return "*" if dots[row][column] else " "
    upper, lower = dots[2 * row + 1], dots[2 * row]
    left, right = 2 * column, 2 * column + 1
    return _BLOCKS[upper[left] + 2 * upper[right] + 4 * lower[left] + 8 * lower[right]]


def with_axes(
    x: Sequence[float], y: Sequence[float], *, width: int, height: int, log: bool = False, blocks: bool = True
) -> list[str]:
    """Return the lines of a picture with labels at its left and its lower edge.

    Args:
        x: in rising order; finite.
        y: as many, finite; greater than 0 where `log` is given.
        width: of the whole, in characters.
        height: of the picture without the labels below it, in characters.
        log: whether the vertical axis is logarithmic.
        blocks: draw with block characters, else with stars.
    """
    low, high = min(y), max(y)
    middle = math.sqrt(low) * math.sqrt(high) if log else low / 2 + high / 2
    labels = {height // 2: f"{middle:.4g}"}
    if low < high:
        labels |= {0: f"{high:.4g}", height - 1: f"{low:.4g}"}
    margin = max(map(len, labels.values()))
    heights = [math.log(value) for value in y] if log else y
    wide = max(10, width - margin - 2)
    picture = draw(x, heights, width=wide, height=height, blocks=blocks)
    edge, corner, floor = ("│", "└", "─") if blocks else ("|", "+", "-")
    lines = [f"{labels.get(i, ''):>{margin}} {edge}{line}" for i, line in enumerate(picture)]
    first, last = f"{x[0]:,.0f}", f"{x[-1]:,.0f}"
    return [
        *lines,
        f"{'':>{margin}} {corner}{floor * wide}",
        f"{'':>{margin}}  {first}{'step':^{max(6, wide - len(first) - len(last))}}{last}",
    ]
