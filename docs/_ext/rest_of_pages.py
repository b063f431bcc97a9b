"""In a toctree's body, the line `(the rest)` stands for every page that no toctree of the index names.

A new page then needs no line in the index to be found; giving it one puts it where it belongs.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx

_PLACE = "(the rest)"


def _fill(app: Sphinx, name: str, source: list[str]) -> None:
    if name != app.config.root_doc:
        return
    named = set(re.findall(r"^[\w/-]+$", source[0], re.MULTILINE)) | {name}
    rest = sorted(app.env.found_docs - named)
    source[0] = source[0].replace(_PLACE, "\n".join(rest))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True}
