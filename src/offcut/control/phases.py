"""The phases of nodes, workers and jobs, and every change from one to another that may happen, with its cause.

The tests of `control` record each change that happens: it must be in these tables, and each change in the tables must
happen in some test. `docs/architecture.md` shows them as `drawing` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from offcut.control.state import JobPhase, NodePhase, WorkerPhase

Phase = NodePhase | WorkerPhase | JobPhase
#: The phases before and after a change, and its cause. None: the controller does not know the node, or the job.
Changes = Mapping[tuple[Phase | None, Phase | None], str]

NODE: Changes = {
    (None, "idle"): "the queue has it idle",
    ("idle", "claimed"): "an allocation gives it to a job",
    ("idle", "up"): "an agent of an earlier claim answers",
    ("idle", None): "wanted by the queue, or lost",
    ("claimed", "up"): "its agent answers",
    ("claimed", None): "wanted, lost, refused, or not booted in time",
    ("up", "leaving"): "its worker left by itself: the queue will want the node",
    ("up", None): "wanted, lost, or released",
    ("leaving", "up"): "the queue has not wanted it after all",
    ("leaving", None): "wanted, lost, or released",
}

#: The workers of a node's job on that node.
WORKER: Changes = {
    (None, "none"): "the node is new",
    ("none", "starting"): "the node is up and has a job",
    ("starting", "ready"): "all its ranks have booted",
    ("starting", "stopped"): "it failed, or was not ready in time",
    ("starting", "none"): "the node is no longer the job's",
    ("ready", "member"): "a generation includes it",
    ("ready", "starting"): "its agent came back without it, or with a later one",
    ("ready", "stopped"): "it failed",
    ("ready", "none"): "the node is no longer the job's",
    ("member", "leaving"): "mode `restart`: its generation ends",
    ("member", "starting"): "its agent came back without it; mode `restart`: it failed",
    ("member", "stopped"): "it failed",
    ("member", "none"): "it left, it finished, or the node is no longer the job's",
    ("stopped", "starting"): "the wait after its failure is over",
    ("stopped", "ready"): "its agent came back with a later one that the journal had forgotten",
    ("stopped", "none"): "the node is no longer the job's",
    ("leaving", "starting"): "mode `restart`: it has ended, and its successor starts",
    ("leaving", "none"): "the node is no longer the job's",
}

JOB: Changes = {
    (None, "waiting"): "submitted",
    ("waiting", "running"): "its first generation, or the next one, is set",
    ("waiting", "paused"): "paused by its user",
    ("waiting", "cancelled"): "cancelled by its user",
    ("waiting", "failed"): "it failed more often than it may",
    ("running", "waiting"): "it has no members: they left, or it is launched again",
    ("running", "finishing"): "its training is done; its script runs to its end",
    ("running", "paused"): "paused by its user",
    ("running", "cancelled"): "cancelled by its user",
    ("running", "failed"): "it failed more often than it may",
    ("paused", "waiting"): "resumed by its user",
    ("paused", "cancelled"): "cancelled by its user",
    ("finishing", "finished"): "its script has come to its end",
    ("finishing", "waiting"): "a member that the end needs was lost: the end is run again",
    ("finishing", "cancelled"): "cancelled by its user",
    ("finishing", "failed"): "its script failed after the training, or took too long",
}

TABLES: Mapping[Literal["node", "worker", "job"], Changes] = {"node": NODE, "worker": WORKER, "job": JOB}


def drawing(who: Literal["node", "worker", "job"]) -> str:
    """Return the changes of one table as text, one arrow per line."""
    lines = []
    before: str | None = ""
    for (old, new), cause in TABLES[who].items():
        shown = "" if old == before else old or "·"
        before = old
        lines.append(f"{shown:<10}──► {new or '·':<10} {cause}")
    return "\n".join(lines)
