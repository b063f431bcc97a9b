"""Reads what Slurm's commands print as JSON: the plugin of 22.05 and before, and data_parser of 23.02 and later.

The two differ in three ways that matter here. A state is a word with a list of flags beside it, or one list with the
word first; a number is plain, or `{"set": …, "infinite": …, "number": …}`; only the later one gives a job's planned
nodes.
Every function takes the whole text and raises ClusterError for what is truncated or of another shape.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from offcut.cluster.slurm.records import JobRow, NodeRow
from offcut.cluster.slurm.text import count_tasks
from offcut.errors import ClusterError

T = TypeVar("T")

#: The words among a node's states; everything else in the list is a flag.
_BASE_STATES = frozenset({"unknown", "down", "idle", "allocated", "error", "mixed", "future"})
#: A job's state may carry flags beside its word: RUNNING+COMPLETING has to count as COMPLETING.
_JOB_FLAGS = ("COMPLETING", "CONFIGURING")
#: 22.05 writes an unknown start or end as 0; later versions write `set: false`.
_NO_TIME = (None, 0.0)


def read_nodes(text: str) -> dict[str, NodeRow]:
    """Read the output of `sinfo --json` (22.05) or `scontrol show nodes --json` (23.02 and later)."""
    rows, _ = _rows(text, "nodes", _node)
    return {row.name: row for row in rows}


def read_jobs(text: str) -> tuple[list[JobRow], int]:
    """Read the output of `squeue --json`. Return the jobs, and how many could not be read."""
    return _rows(text, "jobs", _job)


def _rows(text: str, key: str, make: Callable[[dict[str, Any]], T]) -> tuple[list[T], int]:
    """Convert every row that can be read.

    ClusterError if there are rows and none can be read: the schema is unknown.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ClusterError(
            f"Slurm's JSON ends or breaks off: {error}.", next_step="Try reading = 'text' in the site's file."
        ) from None
    if not isinstance(document, dict) or not isinstance(document.get(key), list):
        found = ", ".join(list(document)[:5]) if isinstance(document, dict) else type(document).__name__
        raise ClusterError(
            f"Slurm's JSON is of an unknown schema: no list '{key}' (found: {found}).",
            next_step="Set reading = 'text' in the site's file.",
        )
    rows: list[T] = []
    wrong = ""
    for row in document[key]:
        try:
            rows.append(make(row))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            wrong = f"{type(error).__name__}: {error}"
    if wrong and not rows:
        raise ClusterError(
            f"Slurm's JSON is of an unknown schema: {key}: {wrong}.",
            next_step="Set reading = 'text' in the site's file.",
        )
    return rows, len(document[key]) - len(rows)


def _node(row: dict[str, Any]) -> NodeRow:
    state = row["state"]
    words = [state, *row.get("state_flags", [])] if isinstance(state, str) else list(state)
    base = next((word.lower() for word in words if word.lower() in _BASE_STATES), "unknown")
    flags = frozenset(word.upper() for word in words if word.lower() not in _BASE_STATES)
    return NodeRow(name=row["name"], state=base, flags=flags)


def _job(row: dict[str, Any]) -> JobRow:
    state = row["job_state"]
    words: Sequence[str] = [state] if isinstance(state, str) else state
    planned = row.get("scheduled_nodes", "")
    return JobRow(
        id=str(row["job_id"]),
        state=next((flag for flag in _JOB_FLAGS if flag in words), words[0]),
        user=row["user_name"],
        name=row["name"],
        account=row.get("account") or "",
        qos=row.get("qos") or "",
        partitions=tuple(row["partition"].split(",")),
        node_count=int(_number(row["node_count"]) or 0),
        tasks=count_tasks(row.get("array_task_string") or "") if "PENDING" in words else 1,
        nice=int(_number(row.get("nice")) or 0),
        nodes=row["nodes"] or "",
        required=row.get("required_nodes") or "",
        scheduled=planned or "",
        start_s=_time(row["start_time"]),
        end_s=_time(row["end_time"]),
        preempt_s=_time(row.get("preempt_time")),
        reason=row["state_reason"],
    )


def _number(value: Any) -> float | None:
    """Return a plain or wrapped number; None for unset and infinite."""
    if isinstance(value, dict):
        return float(value["number"]) if value["set"] and not value.get("infinite") else None
    return None if value is None else float(value)


def _time(value: Any) -> float | None:
    number = _number(value)
    return None if number in _NO_TIME else number
