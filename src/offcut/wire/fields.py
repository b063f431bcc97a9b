"""Types of text that comes in from outside, and sentences about faults in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from offcut.plaintext import visible

#: The kernel's limit on one argument or one variable of a process's environment, less the terminating zero.
ARGUMENT_BYTES = 131_071
#: At most this much of a refused value is shown.
_SHOWN = 80


def _clean(text: str) -> str:
    if "\0" in text:
        raise ValueError("it holds a NUL character, which no process can be given")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("it holds half of a surrogate pair, so it is not Unicode text") from None
    if size > ARGUMENT_BYTES:
        raise ValueError(f"it is {size:,} bytes long; a process is given at most {ARGUMENT_BYTES:,} at a time")
    return text


#: Text that can be stored and given to a process.
PlainText = Annotated[str, AfterValidator(_clean)]
NodeName = Annotated[PlainText, Field(min_length=1, max_length=255)]


def fault(errors: Sequence[Mapping[str, Any]]) -> str:
    """Return the first of pydantic's errors in one sentence: the field, what is wrong with it, what was given."""
    first = errors[0]
    field = visible(".".join(str(part) for part in first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"unknown key '{field}'."
    text = visible(first["msg"].removeprefix("Value error, ").rstrip("."))
    given = ""
    if first["type"] not in ("missing", "value_error", "json_invalid"):
        shown = ascii(first["input"]) if isinstance(first["input"], str) else repr(first["input"])
        given = f" (given: {visible(shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '...')})"
    return f"{field + ': ' if field and not text.startswith(field) else ''}{text}{given}."
