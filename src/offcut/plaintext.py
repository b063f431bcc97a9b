"""Text that others wrote, made safe to show: what a terminal would obey is shown instead."""

from __future__ import annotations

import unicodedata


def visible(text: str) -> str:
    r"""The text with its control characters written out: an escape character becomes `\x1b`, a reversal of the writing
    direction `\u202e`, half of a surrogate pair `\ud800`. Line ends, tabs and spaces of every kind stay."""
    if text.isprintable():
        return text
    return "".join(char if _harmless(char) else char.encode("unicode_escape").decode() for char in text)


def in_figure(text: str) -> str:
    """The text as matplotlib shows it unchanged: dollars are dollars, and begin no formula."""
    return visible(text).replace("$", r"\$")


def _harmless(char: str) -> bool:
    return char.isprintable() or char in "\n\t" or unicodedata.category(char) == "Zs"
