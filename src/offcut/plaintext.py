"""Makes untrusted text safe to print: control characters are shown instead of being sent to the terminal."""

from __future__ import annotations

import unicodedata


def visible(text: str) -> str:
    r"""Return the text with its control characters written out.

    An escape character becomes `\x1b`, a reversal of the writing direction `\u202e`, half of a surrogate pair `\ud800`.
    Line ends, tabs and spaces of every kind stay.
    """
    if text.isprintable():
        return text
    return "".join(char if _harmless(char) else char.encode("unicode_escape").decode() for char in text)


def in_figure(text: str) -> str:
    """Return the text as matplotlib shows it unchanged.

    Dollar signs are escaped, so that they do not begin a formula.
    """
    return visible(text).replace("$", r"\$")


def _harmless(char: str) -> bool:
    return char.isprintable() or char in "\n\t" or unicodedata.category(char) == "Zs"
