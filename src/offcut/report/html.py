"""Makes an HTML page that is one file: text, tables and figures, with nothing to fetch."""

from __future__ import annotations

import html
import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from offcut.plaintext import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Nothing is fetched and nothing is executed, whatever a name contains; matplotlib's figures have styles of their own.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

_STYLE = """
:root { color-scheme: light dark; --text: #222; --page: #fff; --rule: #ddd; --soft: #555; --ink: #1f3a5f;
  --held: #17692b; --broken: #b00020; }
@media (prefers-color-scheme: dark) { :root { --text: #e3e3e3; --page: #16181c; --rule: #3a3d44; --soft: #a5a9b2;
  --ink: #4d82c4; --held: #6fce86; --broken: #ff7d8d; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: var(--text);
  background: var(--page); overflow-wrap: break-word; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; overflow-wrap: normal; }
th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid var(--rule); vertical-align: top; }
th:first-child, td:first-child, .text { text-align: left; } .long { min-width: 14rem; }
svg { max-width: 100%; height: auto; fill: currentColor; min-width: min(100%, 40rem); }
.held { color: var(--held); } .broken { color: var(--broken); font-weight: bold; } p.note { color: var(--soft); }
@media (max-width: 48rem) { body { margin: 1rem auto; } .wide svg { min-width: 40rem; }
  th, td { padding: .3rem .5rem; } }
"""
#: What matplotlib draws in these colours follows the page's, so that figures can be read on a dark page too.
_PAGE_COLOURS = {"#000000": "currentColor", "#1f3a5f": "var(--ink)", "#fefefe": "var(--page)"}
#: A text of more characters than this gets a column of several words' width.
_LONG = 24


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
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>{_escaped(title)}</h1>{''.join(parts)}</body></html>\n"
    )


def paragraph(text: str, css: str = "") -> str:
    return f'<p class="{css}">{_escaped(text)}</p>' if css else f"<p>{_escaped(text)}</p>"


def table(headings: Sequence[str], rows: Sequence[Sequence[object]], *, texts: Collection[str] = ()) -> str:
    """Return a table of plain values; the first column is text, and so are those with these headings."""
    left = [heading in texts for heading in headings]
    head = "".join(_cell("th", heading, text) for heading, text in zip(headings, left, strict=True))
    body = "".join(
        "<tr>" + "".join(_cell("td", str(cell), text) for cell, text in zip(row, left, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(tag: str, content: str, text: bool) -> str:
    css = (' class="text long"' if len(content) > _LONG else ' class="text"') if text else ""
    return f"<{tag}{css}>{_escaped(content)}</{tag}>"


def _escaped(text: str) -> str:
    return html.escape(visible(text))


def svg(figure: Figure, label: str = "") -> str:
    """Return the figure as SVG to be put into a page: without a background, black in the page's colour of text.

    Args:
        figure: the figure.
        label: what it shows, for people who do not see it.
    """
    out = io.StringIO()
    for axes in figure.axes:
        legend = axes.get_legend()
        if legend is not None:
            legend.get_frame().set_alpha(0.0)
    figure.savefig(out, format="svg", bbox_inches="tight", transparent=True)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    for colour, own in _PAGE_COLOURS.items():
        text = text.replace(f": {colour}", f": {own}")
    if label:
        text = text.replace("<svg ", f'<svg role="img" aria-label="{_escaped(label)}" ', 1)
    return f'<div class="wide">{text}</div>'
