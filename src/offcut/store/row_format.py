"""The format of events, states and settings in the journal, and the checksum that shows a damaged row."""

from __future__ import annotations

import zlib
from dataclasses import fields
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, TypeAdapter
from pydantic_core import to_json

from offcut.control import Settings, State
from offcut.model.ended_job import EndedJob
from offcut.model.events import Event, Timer

EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
_TIMERS: TypeAdapter[list[tuple[Timer, float]]] = TypeAdapter(list[tuple[Timer, float]])


def _with_timers(state: Any) -> Any:
    """Return a state as JSON has it, with its timers by name, because keys in JSON are text."""
    if isinstance(state, dict) and isinstance(state.get("timers"), list):
        state = {**state, "timers": dict(_TIMERS.validate_python(state["timers"]))}
    return state


STATE: TypeAdapter[State] = TypeAdapter(Annotated[State, BeforeValidator(_with_timers)])
SETTINGS: TypeAdapter[Settings] = TypeAdapter(Settings)

Item = TypeVar("Item")


def encode(item: Event | State | Settings | EndedJob) -> str:
    """Return the item as JSON."""
    # A loss may be NaN and a window's end infinite; null, as JSON usually writes them, would lose that.
    plain: object = item
    if isinstance(item, State):
        whole = {each.name: getattr(item, each.name) for each in fields(item)}
        plain = {**whole, "timers": list(item.timers.items())}
    return to_json(plain, inf_nan_mode="constants", fallback=_range).decode()


def _range(item: object) -> str:
    """Return a job's sizes, evenly spaced ones as `Sizes` reads them: a million take as little room as two."""
    if isinstance(item, range):
        return f"{item[0]}:{item[-1]}:{item.step}"
    raise TypeError(f"{type(item).__name__} cannot be stored in a journal")


def checksum(number: int, data: str) -> int:
    """Return the CRC-32 of a row's number and data. With the number, a row in the place of another is noticed too."""
    return zlib.crc32(f"{number} {data}".encode("utf-8", "surrogatepass"))
