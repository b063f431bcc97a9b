"""The output of every command. Data is printed as plain text: markup and control characters in it have no effect.

The strings come from jobs, nodes, files and the queue, so brackets and `:smile:` are printed as they are, and control
characters are written out (`plaintext.visible`). Only the command sets styles. `offcut logs` is the one exception: it
copies the bytes that a job wrote.
"""

from __future__ import annotations

import json
import math
import sys
from contextlib import suppress
from typing import Any

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from offcut.plaintext import visible

console = Console(markup=False, emoji=False, highlight=False)

#: The largest width of a table, in columns.
_WIDEST = 1000


def text(data: object, style: str = "") -> Text:
    """Return data as rich text in a style of the command, without reading markup in it."""
    return Text(visible(str(data)), style=style)


def line(*parts: object, indent: str = "", style: str = "") -> None:
    """Print the parts side by side, as `sentence` joins them."""
    console.print(sentence(*parts, indent=indent, style=style), soft_wrap=not console.is_terminal)


def sentence(*parts: object, indent: str = "", style: str = "") -> Text:
    """Return the parts side by side; parts with a style are made by `text`.

    Further lines of a part are indented more than the first, so that data cannot imitate a line of the command.
    """
    whole = Text(indent, style=style)
    for part in parts:
        whole.append_text(part if isinstance(part, Text) else text(part))
    if "\n" in whole.plain:
        whole = Text(f"\n{indent}    ").join(whole.split("\n", allow_blank=True))
        whole.style = style
    return whole


class Sheet(Table):
    """A table whose strings are data; long words are folded instead of cut."""

    def __init__(
        self, *headings: str, right: tuple[str, ...] = (), title: str | None = None, show_header: bool = True
    ) -> None:
        super().__init__(title=None if title is None else text(title), title_justify="left", show_header=show_header)
        for heading in headings:
            self.add_column(text(heading), justify="right" if heading in right else "left", overflow="fold")

    def add_row(self, *renderables: RenderableType | None, style: Any = None, end_section: bool = False) -> None:
        cells = [text(cell) if isinstance(cell, str) else cell for cell in renderables]
        super().add_row(*cells, style=style, end_section=end_section)


def fits(sheet: Sheet) -> bool:
    """Return whether no cell of the table has to be folded; true where the output is not a terminal."""
    return not console.is_terminal or _full_width(sheet) <= console.width


def _full_width(sheet: Sheet) -> int:
    options = console.options.update(width=_WIDEST, max_width=_WIDEST)
    return Measurement.get(console, options, sheet).maximum


def print_table(sheet: Sheet) -> None:
    """Print a table as wide as it needs, or as wide as the terminal."""
    if console.is_terminal:
        console.print(sheet)
        return
    sheet.width = _full_width(sheet)
    console.print(sheet, width=sheet.width, crop=False, soft_wrap=True)


def remark(words: str) -> None:
    """Print a sentence on standard error that is not part of the result."""
    with suppress(OSError):  # the terminal may have been closed
        sys.stderr.write(visible(words) + "\n")


def print_json(document: Any) -> None:
    """Print one JSON document on standard output."""
    try:
        written = json.dumps(document, indent=2, allow_nan=False, default=str)
    except ValueError:
        written = json.dumps(_finite(document), indent=2, allow_nan=False, default=str)
    sys.stdout.write(written + "\n")


def _finite(item: Any) -> Any:
    """Replace infinite and undefined numbers by null, because JSON has neither."""
    if isinstance(item, float):
        return item if math.isfinite(item) else None
    if isinstance(item, dict):
        return {key: _finite(value) for key, value in item.items()}
    return [_finite(value) for value in item] if isinstance(item, list | tuple) else item
