"""Makes an HTML page that is one file: text, tables and figures, with nothing to fetch."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from offcut.plaintext import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
table { border-collapse: collapse; } th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; } svg { max-width: 100%; height: auto; }
.held { color: #17692b; } .broken { color: #b00020; font-weight: bold; } p.note { color: #555; }
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and ready-made HTML below it."""

    title: str
    body: str


def page(title: str, sections: Sequence[Section]) -> str:
    """Return the whole document."""
    parts = [f"<section><h2>{_escaped(s.title)}</h2>{s.body}</section>" for s in sections]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_escaped(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{_escaped(title)}</h1>{''.join(parts)}</body></html>\n"
    )


def paragraph(text: str, css: str = "") -> str:
    return f'<p class="{css}">{_escaped(text)}</p>' if css else f"<p>{_escaped(text)}</p>"


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table of plain values; the first column is text."""
    head = "".join(f"<th>{_escaped(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{_escaped(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _escaped(text: str) -> str:
    return html.escape(visible(text))


def svg(figure: Figure) -> str:
    """Return the figure as SVG to be put into a page."""
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight")
    text = out.getvalue()
    return text[text.index("<svg") :]
