"""Pages are one file that fetches nothing, and text in them is text."""

from __future__ import annotations

import re

from matplotlib.figure import Figure

from offcut.report.html import Section, page, paragraph, svg, table

HOSTILE = '<script>alert(1)</script> & "quoted" \x1b[31m'


def test_text_is_escaped_wherever_it_stands() -> None:
    document = page(HOSTILE, [Section(HOSTILE, paragraph(HOSTILE) + table([HOSTILE], [(HOSTILE,)]))])
    assert "<script>" not in document
    assert "\x1b" not in document
    # Twice the title, then the heading of the section, the paragraph, and two cells of the table.
    assert document.count("&lt;script&gt;alert(1)&lt;/script&gt; &amp;") == 6


def test_a_page_with_a_figure_fetches_nothing() -> None:
    figure = Figure()
    figure.add_subplot().plot([1, 2], [3, 4])
    document = page("A page", [Section("A figure", svg(figure))])
    assert document.startswith("<!doctype html>")
    assert document.count("<svg") == document.count("</svg>") == 1
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#)""", document)
    assert not re.search(r"@import|url\((?!#|'#)", document)


def test_a_table_has_a_cell_for_each_value() -> None:
    document = table(("job", "steps"), [("a", 12), ("b", 0)])
    assert re.findall(r"<t[hd]>(.*?)</t[hd]>", document) == ["job", "steps", "a", "12", "b", "0"]
