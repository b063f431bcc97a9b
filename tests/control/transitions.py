"""Records every change of a phase that happens while the controller answers an event of a `World`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from offcut.control import phases
from offcut.control.state import JobState, NodeState, State

#: Of what, from, to. None: not there.
Transition = tuple[str, str | None, str | None]

ALLOWED: frozenset[Transition] = frozenset(
    (what, old, new) for what, table in phases.TABLES.items() for old, new in table
)
_FIELDS = {(NodeState, "phase"): "node", (NodeState, "worker"): "worker", (JobState, "phase"): "job"}

#: All that have happened in this process.
observed: set[Transition] = set()
#: Not empty while an event is answered.
_answering: list[State] = []


def _record(kind: type) -> None:
    plain = kind.__setattr__

    def set_and_record(self: Any, name: str, value: Any) -> None:
        what = _FIELDS.get((kind, name)) if _answering else None
        if what is not None and (before := getattr(self, name, None)) != value:
            observed.add((what, before, value))
            assert (what, before, value) in ALLOWED, "every change of a phase is in the tables of control.phases"
        plain(self, name, value)

    kind.__setattr__ = set_and_record  # type: ignore[method-assign,assignment]


_record(NodeState)
_record(JobState)


@contextmanager
def recorded(state: State) -> Iterator[None]:
    """Record the changes within the block."""
    before = dict(state.nodes)
    _answering.append(state)
    try:
        yield
    finally:
        _answering.pop()
    for name, node in before.items():
        if state.nodes.get(name) is not node:
            observed.add(("node", node.phase, None))
            assert ("node", node.phase, None) in ALLOWED
