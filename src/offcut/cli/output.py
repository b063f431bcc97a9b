"""How every command prints: what it was told is text, and nothing in it is obeyed.

Jobs, nodes, files and the queue choose the strings that are shown here. A bracket is a bracket, `:smile:` is no
picture, and control characters are written out (`plaintext.visible`). Style comes from the command alone. `offcut logs`
is the one exception: it copies the bytes that a job wrote.
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

#: No table is wider than this, wherever it goes.
_WIDEST = 1000


def text(data: object, style: str = "") -> Text:
    """Data as rich shows it: in a style of ours, with no markup in it."""
    return Text(visible(str(data)), style=style)


def line(*parts: object, indent: str = "", style: str = "") -> None:
    """Print the parts side by side; what has a style of its own is made by `text`. Further lines of a part are indented
    more than the first, so that no data can look like a line of ours."""
    whole = Text(indent, style=style)
    for part in parts:
        whole.append_text(part if isinstance(part, Text) else text(part))
    if "\n" in whole.plain:
        whole = Text(f"\n{indent}    ").join(whole.split("\n", allow_blank=True))
        whole.style = style
    console.print(whole, soft_wrap=not console.is_terminal)


class Sheet(Table):
    """A table whose strings are data, and whose long words are folded instead of cut."""

    def __init__(
        self, *headings: str, right: tuple[str, ...] = (), title: str | None = None, show_header: bool = True
    ) -> None:
        super().__init__(title=None if title is None else text(title), title_justify="left", show_header=show_header)
        for heading in headings:
            self.add_column(text(heading), justify="right" if heading in right else "left", overflow="fold")

    def add_row(self, *renderables: RenderableType | None, style: Any = None, end_section: bool = False) -> None:
        cells = [text(cell) if isinstance(cell, str) else cell for cell in renderables]
        super().add_row(*cells, style=style, end_section=end_section)


def print_table(sheet: Sheet) -> None:
    """Print a table: as wide as it needs to be, unless a screen is its limit."""
    if console.is_terminal:
        console.print(sheet)
        return
    options = console.options.update(width=_WIDEST, max_width=_WIDEST)
    sheet.width = Measurement.get(console, options, sheet).maximum
    console.print(sheet, width=sheet.width, crop=False, soft_wrap=True)


def remark(sentence: str) -> None:
    """Say something on standard error, which is no part of what was asked for."""
    with suppress(OSError):  # the terminal may have been closed
        sys.stderr.write(visible(sentence) + "\n")


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    try:
        written = json.dumps(document, indent=2, allow_nan=False, default=str)
    except ValueError:
        written = json.dumps(_finite(document), indent=2, allow_nan=False, default=str)
    sys.stdout.write(written + "\n")


def _finite(item: Any) -> Any:
    """JSON has no infinity: null where there is no figure."""
    if isinstance(item, float):
        return item if math.isfinite(item) else None
    if isinstance(item, dict):
        return {key: _finite(value) for key, value in item.items()}
    return [_finite(value) for value in item] if isinstance(item, list | tuple) else item
