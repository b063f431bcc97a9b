"""Events about nodes and their agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Offer:
    """An idle node that may be claimed; `until_s` is the known end of its window, None where it is not known."""

    node: str
    until_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesChanged:
    """Nodes became idle, were wanted back by the queue, or vanished."""

    time_s: float
    offered: tuple[Offer, ...] = ()
    wanted: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    kind: Literal["nodes_changed"] = "nodes_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesHeld:
    """All nodes that the batch system holds for offcut, as a controller finds them when it starts."""

    time_s: float
    nodes: tuple[str, ...] = ()
    kind: Literal["nodes_held"] = "nodes_held"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRefused:
    """The batch system did not give us these nodes."""

    time_s: float
    nodes: tuple[str, ...]
    reason: str
    kind: Literal["claim_refused"] = "claim_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesBooted:
    """The agents of these claimed nodes answer, and run no worker yet."""

    time_s: float
    nodes: tuple[str, ...]
    kind: Literal["nodes_booted"] = "nodes_booted"


@dataclass(frozen=True, slots=True)
class RunningWorker:
    """A job's workers that an agent says it runs."""

    job: str
    incarnation: int
    ready: bool
    #: The newest generation of the job that it has heard of; 0: of none.
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReported:
    """An agent came back after its connection had been cut, and says what it runs."""

    time_s: float
    node: str
    workers: tuple[RunningWorker, ...]
    #: The highest that the agent has ever started.
    incarnation: int = 0
    kind: Literal["agent_reported"] = "agent_reported"
