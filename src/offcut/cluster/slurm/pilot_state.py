"""The states of a pilot, and what a query of Slurm says about its next one. Pure: time comes in as an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from offcut.cluster.slurm.records import ENDED, JobRow
from offcut.cluster.slurm.waiting_jobs import waits_for_nodes

#: Ends that mean a fault of the pilot or its node, which the next pilot may meet again.
_FAILURES = frozenset({"FAILED", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"})
#: An agent that has not connected to its controller this long after its pilot began will not.
_AGENT_LIMIT_S = 15.0
#: Ends after which the node is not claimed for a while: a person cancelled the pilot, or the node broke.
_NODE_UNWELCOME = frozenset({"CANCELLED", "NODE_FAIL"})


class PilotState(Enum):
    """How far a pilot is, as this controller knows it."""

    #: sbatch has not answered yet.
    SUBMITTING = "submitting"
    #: Slurm has accepted it, and no query has shown it yet.
    SUBMITTED = "submitted"
    #: The last query showed it pending.
    PENDING = "pending"
    #: It holds its node.
    RUNNING = "running"
    #: It holds its node, and the controller has been told that the queue wants the node.
    WANTED = "wanted"
    #: Given up before it held its node. It is cancelled, again if need be, until Slurm shows that it has ended.
    WITHDRAWN = "withdrawn"
    #: Given up while it held its node; cancelled like a withdrawn one.
    RELEASED = "released"


_HOLDING = frozenset({PilotState.RUNNING, PilotState.WANTED, PilotState.RELEASED})
_GIVEN_UP = frozenset({PilotState.WITHDRAWN, PilotState.RELEASED})


@dataclass(slots=True)
class Pilot:
    """A pilot of ours. `job` is Slurm's number of it, None until sbatch has answered."""

    node: str
    state: PilotState
    #: When it was submitted, or when it was last found pending after it had run; by the monotonic clock.
    submitted_s: float
    job: str | None = None
    #: The end that Slurm showed when it began to run, seconds since 1970.
    first_end_s: float | None = None
    #: We have asked Slurm to cancel it, while it was pending or running.
    cancelled: bool = False
    #: When it was first found running, by the monotonic clock; None until then.
    running_since_s: float | None = None
    #: Its agent has connected to the controller.
    agent_came: bool = False

    @property
    def holds_node(self) -> bool:
        """Whether it was running when it was last seen."""
        return self.state in _HOLDING

    @property
    def given_up(self) -> bool:
        """Whether it has been withdrawn or released."""
        return self.state in _GIVEN_UP

    def give_up(self) -> None:
        """Withdraw or release it."""
        self.state = PilotState.RELEASED if self.holds_node else PilotState.WITHDRAWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a query says about one pilot: its next state, and what is to be done."""

    #: None: the pilot has ended.
    state: PilotState | None
    #: Tell the controller that the queue wants the node.
    wanted: bool = False
    #: Cancel the pilot's job.
    cancel: bool = False
    #: Do not claim the node for a while.
    set_aside: bool = False
    #: Tell the controller that the claim has failed, and why.
    refused: str = ""
    #: A fault that the next pilot may meet again.
    failure: str = ""


def observe(pilot: Pilot, row: JobRow | None, *, node_busy: bool, now_s: float, pending_limit_s: float) -> Observation:
    """Return what a query says about a pilot.

    Args:
        pilot: The pilot, as it was before the query.
        row: Slurm's row of its job; None where Slurm does not know the job any more.
        node_busy: Whether its node was not idle when the whole queue was last read.
        now_s: When the query began, by the monotonic clock.
        pending_limit_s: A pilot that stays pending for longer is withdrawn.
    """
    if row is None:
        return Observation(state=None)
    if row.state in ENDED:
        return _ended(pilot, row)
    if row.state == "PENDING":
        return _pending(pilot, row, node_busy=node_busy, overdue=now_s - pilot.submitted_s > pending_limit_s)
    if pilot.given_up:
        # A job that is already completing needs no other scancel.
        return Observation(state=PilotState.RELEASED, cancel=row.state == "RUNNING")
    return Observation(state=pilot.state if pilot.holds_node else PilotState.RUNNING)


def _ended(pilot: Pilot, row: JobRow) -> Observation:
    if row.state == "PREEMPTED":
        told = pilot.state is PilotState.WANTED or pilot.given_up
        return Observation(state=None, wanted=not told)
    if pilot.given_up:
        # Its agent had gone before we gave it up, so a person has cancelled it.
        return Observation(state=None, set_aside=row.state == "CANCELLED" and not pilot.cancelled)
    if row.state in _FAILURES:
        failure = f"pilot {row.id} on {pilot.node} ended as {row.state} ({row.reason})"
        return Observation(state=None, set_aside=True, failure=failure)
    return Observation(state=None, set_aside=row.state in _NODE_UNWELCOME)


def _pending(pilot: Pilot, row: JobRow, *, node_busy: bool, overdue: bool) -> Observation:
    if pilot.given_up:
        return Observation(state=PilotState.WITHDRAWN, cancel=True)
    if pilot.state is PilotState.PENDING and node_busy:
        # A job of the queue has got the node since: the pilot would wait until that job ends.
        return Observation(state=PilotState.WITHDRAWN, cancel=True, wanted=True)
    if overdue and not pilot.holds_node:
        refused = f"its pilot {row.id} stayed pending: {row.reason}"
        harmless = row.reason.startswith("ReqNodeNotAvail") or waits_for_nodes(row.reason)
        return Observation(
            state=PilotState.WITHDRAWN,
            cancel=True,
            set_aside=True,
            refused=refused,
            failure="" if harmless else refused,
        )
    return Observation(state=PilotState.PENDING)


def has_no_agent(pilot: Pilot, now_s: float) -> bool:
    """Return whether the pilot ran for long enough, and its agent never connected to the controller."""
    since_s = pilot.running_since_s
    return since_s is not None and not pilot.agent_came and now_s - since_s >= _AGENT_LIMIT_S


def stray_jobs(rows: Mapping[str, JobRow], pilots: Iterable[Pilot], requests: Iterable[str | None] = ()) -> list[str]:
    """Return the jobs of our name that are not in `pilots` or `requests` (None: one with a number not known yet).

    An sbatch that did not answer in time may have submitted its job all the same. Empty while an sbatch runs: its job
    may be in Slurm already.
    """
    known = {*(pilot.job for pilot in pilots), *requests}
    if None in known:
        return []
    return [row.id for row in rows.values() if row.state not in ENDED and row.id not in known]
