"""No file uses a word that the glossary forbids, neither in prose nor as a part of a name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "glossary.md"
NEWLINE = "\n"
#: Where old words may stand: the page that forbids them, what happened, and what reads old files.
EXEMPT = ("docs/glossary.md", "CHANGELOG.md", "src/offcut/store/migrations/", "tests/docs/test_glossary.py")
SEARCHED = (
    *("src", "tests", "benchmarks", "docs", "examples", "sites", "scripts"),
    *("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml"),
)


def forbidden() -> list[str]:
    """Return what stands in backticks in the columns that are headed `forbidden`."""
    words: set[str] = set()
    column = 0
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if "forbidden" in cells:
            column = cells.index("forbidden")
        elif line.startswith("| ") and column < len(cells):
            words |= set(re.findall(r"`([^`]+)`", cells[column]))
    return sorted(words)


def kept() -> list[str]:
    """Return the names that the page says still work although a part of them is forbidden."""
    return re.findall(r"`(\w+)`", PAGE.read_text().partition("## Old names that still work")[2])


def plain(text: str) -> str:
    """Return the text in lower case, with names like `hand_back` and `HandBack` taken apart; lines stay."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return re.sub(r"[_\-]", " ", text).lower()


def files() -> list[str]:
    """Return the text files of the repository that are searched."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *SEARCHED]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    # What is not text is a figure or an archive.
    suffixes = {".py", ".md", ".toml", ".sh", ".css", ".html", ".js", ""}
    return [
        name
        for name in names
        if Path(name).suffix in suffixes and not name.startswith(EXEMPT) and (ROOT / name).is_file()
    ]


def test_the_page_forbids_what_was_decided() -> None:
    assert {"hole", "manners", "crew", "seat", "hand back", "give back", "membership epoch"} <= set(forbidden())
    assert {"rider", "leftovers", "suspects", "learnt", "anew", "whoever"} <= set(forbidden())


def test_a_forbidden_word_is_found_in_prose_and_in_names() -> None:
    for text in ("hand_back", "HandBack", "a hand-back", "self._hand_back()", "They hand back nodes"):
        assert re.search(pattern("hand back"), plain(text))
    assert not re.search(pattern("hole"), plain("the whole layer of a wormhole"))


def pattern(word: str) -> str:
    """Return the regular expression of a whole word or of several in a row, singular or plural."""
    return rf"\b{word.removesuffix('s').replace(' ', chr(92) + 's+')}s?\b"


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """The plain text of each file, with its path in front and without the names that are kept."""
    found = {}
    for name in files():
        text = f"{name} {(ROOT / name).read_text(errors='replace')}"
        for old in kept():
            text = text.replace(old, "")
        found[name] = plain(text)
    return found


#: "is no table"; what remains is right: "there is no table", "is no longer", "is no faster", "is no other".
IS_NO = re.compile(
    r"(?<!there )(?<!there\n)\b(?:is|are|was|were) no (?!longer\b|more\b|other\b|\w+er\b)(\w+)", re.IGNORECASE
)


def test_a_thing_that_is_no_table_is_found() -> None:
    assert IS_NO.search("'slurm' is no table")
    assert not IS_NO.search("there is no table; there are no tables; it is no longer one; this is no slower")


def test_nothing_is_no_thing(texts: dict[str, str]) -> None:
    found = [
        f"{name}:{text.count(NEWLINE, 0, hit.start()) + 1}: {hit.group()}"
        for name, text in texts.items()
        for hit in IS_NO.finditer(text)
    ]
    assert found == [], "write 'is not a ...' (docs/glossary.md)"


@pytest.mark.parametrize("word", forbidden())
def test_no_file_uses_a_forbidden_word(word: str, texts: dict[str, str]) -> None:
    found = [
        f"{name}:{text.count(NEWLINE, 0, hit.start()) + 1}"
        for name, text in texts.items()
        for hit in re.finditer(pattern(word), text)
    ]
    assert found == [], f"'{word}' is forbidden by docs/glossary.md"
