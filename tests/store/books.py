"""Journals for tests: filled with what a small cluster does."""

from __future__ import annotations

from pathlib import Path

from offcut.control import Settings, State, step
from offcut.model import Allocation, Job, Sizes
from offcut.model import events as ev
from offcut.store import Journal

JOB = Job(id="a-1", name="a", command=("train.py",), sizes=Sizes((1, 2, 4)))


def life(nodes: int = 4) -> list[ev.Event]:
    """A job is submitted, gets nodes, and trains; nodes that come and go make it long enough to be worth a snapshot."""
    names = [f"n{i}" for i in range(nodes)]
    events: list[ev.Event] = [
        ev.JobSubmitted(time_s=1.0, job=JOB),
        ev.NodesChanged(time_s=2.0, offered=tuple(ev.Offer(name) for name in names)),
        ev.Solved(time_s=2.1, version=2, allocation=Allocation(nodes={"a-1": 2})),
    ]
    for i in range(8):
        events.append(ev.NodesChanged(time_s=3.0 + i, lost=(names[-1],) if i % 2 else (), offered=(ev.Offer(f"x{i}"),)))
        events.append(ev.JobNoted(time_s=3.5 + i, job="a-1", text=f"note {i}"))
    return events


def written(path: Path, events: list[ev.Event], *, snapshot_at: int = 0) -> State:
    """Write a journal at `path` with these events. Return the state that they lead to."""
    book = Journal(path)
    state = book.load(Settings())
    for event in events:
        book.append(state.event_id + 1, event)
        step(state, event)
        if state.event_id == snapshot_at:
            book.snapshot(state)
    book.close()
    return state
