"""Rows of what Slurm shows, independent of the command and version they came from. Times are seconds since 1970."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from offcut.errors import ClusterError

#: States of a job that has ended.
ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)

#: Flags of a node that runs no new job.
OUT_OF_SERVICE = frozenset({"DRAIN", "FAIL", "MAINTENANCE", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN"})


class HostLists:
    """Expands host lists, and keeps those that were asked for last: plans and reservations stay the same for long.

    Args:
        most_names: How many names the kept lists have in all. On a large machine one list may have thousands.
    """

    def __init__(self, most_names: int) -> None:
        self._most_names = most_names
        #: The list that was asked for last comes last.
        self._kept: dict[str, tuple[str, ...]] = {}
        self._names = 0

    def expand(self, hosts: str) -> tuple[str, ...]:
        """Return the nodes of a host list such as `n[01-04,7],login1`; of an empty one, none. Raises ClusterError."""
        if not hosts or hosts in ("(null)", "None"):
            return ()
        found = self._kept.pop(hosts, None)
        if found is None:
            found = _expanded(hosts)
            self._names += len(found)
        self._kept[hosts] = found
        while self._names > self._most_names:
            self._names -= len(self._kept.pop(next(iter(self._kept))))
        return found


def _expanded(hosts: str) -> tuple[str, ...]:
    try:
        # Interned: a name takes its room once, in however many lists it is.
        return tuple(map(sys.intern, NodeSet(hosts, resolver=RESOLVER_NOGROUP)))
    except NodeSetException as error:
        raise ClusterError(f"Slurm named nodes as '{hosts[:80]}', which cannot be read: {error}.") from None


#: A million names in lists take 8 MB.
expand = HostLists(most_names=1_000_000).expand


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node; `state` in lower case (`idle`, `allocated`, …), `flags` in upper case (`PLANNED`, `DRAIN`, …)."""

    name: str
    state: str
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job. Host lists are stored as Slurm wrote them, because most are never expanded."""

    id: str
    state: str
    user: str
    #: Empty where squeue's text was read without marks between its rows: a name may hold line feeds.
    name: str = ""
    account: str = ""
    qos: str = ""
    partitions: tuple[str, ...]
    #: Nodes of each of its tasks.
    node_count: int
    #: Tasks of a job array that may start now; 1 for any other job.
    tasks: int = 1
    #: Its nice value: how far its user lowered its priority.
    nice: int = 0
    #: Where it runs, where it has to run, where the scheduler plans to run it.
    nodes: str = ""
    required: str = ""
    scheduled: str = ""
    #: When the scheduler plans to start it, if it waits.
    start_s: float | None = None
    end_s: float | None = None
    #: Slurm has decided to preempt it.
    preempt_s: float | None = None
    reason: str = ""

    @property
    def limit_s(self) -> float | None:
        """Its time limit, where the scheduler has planned when it starts and ends."""
        return None if self.start_s is None or self.end_s is None else self.end_s - self.start_s

    @property
    def is_ending(self) -> bool:
        """Whether Slurm is ending it or has ended it."""
        return self.state == "COMPLETING" or self.state in ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRow:
    name: str
    nodes: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    name: str
    up: bool
    nodes: str
    #: None: no limit.
    max_time_s: float | None
    preempt_mode: str
    grace_s: float
    priority_tier: int
    allow_accounts: str = "ALL"
    allow_qos: str = "ALL"
    #: The QOS whose limits hold for all its jobs; empty for none.
    qos: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSetup:
    """What slurm.conf says of a node."""

    #: Started by the site when a job needs it, and paid for.
    cloud: bool = False
    #: Accelerators, e.g. `gpu:a100:4`; empty for none.
    gres: str = ""
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class QosRow:
    name: str
    #: QOS whose jobs its jobs preempt.
    preempts: frozenset[str] = frozenset()
    #: For its own jobs; `cluster` means the PreemptMode of slurm.conf.
    preempt_mode: str = "cluster"
    #: Its jobs are not preempted before they have run for this long. None: what slurm.conf says.
    exempt_s: float | None = None
    #: The longest time limit of its jobs. None: no limit.
    max_wall_s: float | None = None
    #: How many of its jobs one user, one account, and all together may have submitted at once. None: no limit.
    max_submit_jobs: tuple[int | None, int | None, int | None] = (None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRow:
    """An account: its place in the tree of accounts, and what limits all its users together."""

    name: str
    #: Empty for the root of the tree.
    parent: str = ""
    #: It has any limit on what its users have together (GrpTRES, GrpJobs and such).
    limited: bool = False
    max_submit_jobs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssociationRow:
    """What a user may do with one account, on all partitions or on one."""

    account: str
    partition: str = ""
    default_qos: str = ""
    max_jobs: int | None = None
    max_submit_jobs: int | None = None
    #: E.g. `node=6`; empty for no limit.
    group_tres: str = ""
    max_wall_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A snapshot of the queue.

    `time_s` is when the query began, in seconds since 1970; `clock_s` is the same by the monotonic clock.
    """

    time_s: float
    nodes: Mapping[str, NodeRow]
    #: Jobs of others that wait, the ones of the highest priority first.
    waiting: tuple[JobRow, ...]
    #: Our pilots, ended ones too while Slurm remembers them, by job id.
    own: Mapping[str, JobRow]
    #: Pilots of other controllers, and what these ask for.
    others: tuple[JobRow, ...] = ()
    reservations: tuple[ReservationRow, ...] = ()
    partition: PartitionRow
    #: All partitions that Slurm shows us, by name.
    partitions: Mapping[str, PartitionRow] = field(default_factory=dict)
    #: Jobs that Slurm showed in a form that could not be read.
    unreadable: int = 0
    clock_s: float = field(default=0.0, compare=False)
    took_s: float = field(default=0.0, compare=False)
