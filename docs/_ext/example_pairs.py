"""The directive `example-pairs`: each plain example and what its elastic version changes, from the files themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: Lines around a change that are shown.
_AROUND = 2


class ExamplePairs(SphinxDirective):
    """A section for each pair: the first lines of the script, and the difference."""

    def run(self) -> list[nodes.Node]:
        for path in sorted(EXAMPLES.glob("*/*.py")):
            self.env.note_dependency(str(path))
        text = "\n".join(line for name in names() for line in section(name))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def names() -> list[str]:
    """Return the names of the elastic examples, the simplest first."""
    return sorted(
        (path.name for path in (EXAMPLES / "elastic").glob("*.py")), key=lambda name: (name != "digits.py", name)
    )


def section(name: str) -> Iterator[str]:
    """Yield the lines of an example's section, in Markdown.

    Args:
        name: the name of both files.
    """
    plain, elastic = ((EXAMPLES / kind / name).read_text() for kind in ("plain", "elastic"))
    changes = list(difference(plain.splitlines(), elastic.splitlines()))
    added = sum(line.startswith("+") and line[1:].strip() != "" for line in changes)
    yield f"## {name}"
    yield ""
    yield ast.get_docstring(ast.parse(plain)) or ""
    yield ""
    yield f"`examples/elastic/{name}` adds {added} {'line' if added == 1 else 'lines'}:"
    yield ""
    yield "```diff"
    yield from changes
    yield "```"
    yield ""


def difference(before: list[str], after: list[str]) -> Iterator[str]:
    """Yield the difference between two texts, as `diff -w` shows it: a change of indentation alone is none.

    Args:
        before: the lines of the first text.
        after: the lines of the second one.
    """
    words = ["".join(line.split()) for line in before], ["".join(line.split()) for line in after]
    for i, group in enumerate(SequenceMatcher(None, *words, autojunk=False).get_grouped_opcodes(_AROUND)):
        if i:
            yield " …"
        for kind, begin, end, begin_after, end_after in group:
            if kind == "equal":
                yield from (f" {line}".rstrip() for line in after[begin_after:end_after])
            else:
                yield from (f"-{line}" for line in before[begin:end])
                yield from (f"+{line}" for line in after[begin_after:end_after])


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("example-pairs", ExamplePairs)
    return {"parallel_read_safe": True}
