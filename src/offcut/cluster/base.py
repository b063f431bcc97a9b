"""The interface between the controller and a batch system, with the promises that authors of clusters must hold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from offcut.histogram import Histogram
from offcut.model.events import ClaimRefused, NodesChanged

ClusterEvent = NodesChanged | ClaimRefused

_COMMAND_BOUNDS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


@dataclass(slots=True)
class CommandFigures:
    """How long one command of the batch system took, each time, and how often it failed."""

    seconds: Histogram = field(default_factory=lambda: Histogram(_COMMAND_BOUNDS_S))
    failures: int = 0


@runtime_checkable
class MeasuresCommands(Protocol):
    """What a cluster may offer beside `Cluster`: the figures of the commands that it runs, for `offcut metrics`."""

    def command_figures(self) -> Mapping[str, CommandFigures]:
        """Return the figures since the start, by the commands' names: a few names, whatever happens."""
        ...


class Cluster(Protocol):
    """A batch system as the controller sees it. One task of the controller calls its methods, one at a time.

    Promises, which `offcut.testing.ClusterConformance` checks for every implementation:

    - `observe` begins with what is idle now, and misses nothing from then on: a node is offered before it can be
      claimed, and every claimed node is in the end reported lost, whatever the reason (released, wanted, broken).
    - A node is never claimed twice at once: a claim that fails is answered by ClaimRefused.
    - `release` is idempotent and safe for nodes that are not claimed.
    - A wanted node is reported once, and is not offered again before it has been reported lost (if it was claimed).
    - After `close` nothing of ours is left on any node.
    """

    def observe(self) -> AsyncIterator[ClusterEvent]:
        """Yield node events as they come; end after `close`.

        They begin with offers of what is idle now. Times are seconds since 1970.

        Yields:
            `NodesChanged`, with the nodes that are offered, wanted by the queue, or lost, all changes of one instant in
            one event; and `ClaimRefused`, with claimed nodes that were not idle any more or that the batch system
            refused, and a reason that users can read.

        Raises:
            ClusterError: The batch system is gone for good. Do not raise if it only does not answer for a while.
        """
        ...

    async def claim(self, nodes: Sequence[str], until_s: float | None) -> None:
        """Claim idle nodes through the queue and start an agent on each. Return at once, before they are claimed.

        Nothing answers a claim that succeeds: the node's agent connects to the controller by itself. A claim that fails
        is answered by a ClaimRefused from `observe`.

        Args:
            nodes: Names of offered nodes. A node that is not offered any more is refused.
            until_s: The earliest known end of their windows, seconds since 1970; None where no end is known.

        Raises:
            ClusterError: The batch system is gone.
        """
        ...

    async def release(self, nodes: Sequence[str]) -> None:
        """Release nodes: tell their agents, which let workers leave and then exit. Return at once.

        A node counts as claimed until `observe` reports it lost. A claim that is still under way is withdrawn.

        Args:
            nodes: Names of nodes; those that are not claimed are ignored.

        Raises:
            ClusterError: The batch system is gone.
        """
        ...

    async def claimed(self) -> frozenset[str]:
        """Return the names of the nodes that are claimed now, as the batch system sees it.

        Nodes whose claim is under way count, and so do nodes that are being released. When a controller starts, these
        are the nodes that an earlier one left claimed.
        """
        ...

    def pilot(self, node: str) -> str | None:
        """Return the name of the present hold on a node.

        The node's agent has a credential that is bound to this name.

        Args:
            node: The node's name.

        Returns:
            A name that no other hold on any node ever has; None while the node is not held, or not held yet.
        """
        ...

    def agent_connected(self, node: str) -> None:
        """Note that the agent on a claimed node has connected to the controller; it may do so again and again.

        Args:
            node: The node's name.
        """
        ...

    def set_demand(self, nodes: int) -> None:
        """Note how many nodes the jobs could use in all, so that no more are asked for where others want them, too.

        Args:
            nodes: The sum of the largest sizes of all jobs that run or wait.
        """
        ...

    async def forgive(self, nodes: Sequence[str]) -> None:
        """Offer nodes again that this adapter leaves alone for a while because its claims on them have failed.

        Args:
            nodes: Names of nodes; empty for all. Those that are not left alone are ignored.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Return what `offcut status` shows of the cluster.

        Returns:
            JSON values: `kind` (the cluster's name), and whatever helps to see what it does, and why not more.
        """
        ...

    async def statistics(self) -> dict[str, Any]:
        """Return what has been measured since the start.

        Returns:
            JSON values: `idle_node_s`, the node-seconds that the queue left idle so far, claimed by us or not; and
            `hand_backs`, the reclaims of claimed nodes: for each `node`, `wanted_s` (seconds since 1970), `took_s`
            (seconds until the node was released) and `killed` (whether the agent had to be killed). Empty where the
            batch system does not tell.

        Raises:
            ClusterError: The batch system does not answer.
        """
        ...

    async def close(self) -> None:
        """Release every node, wait until nothing of ours is left on any, and end `observe`.

        Raises:
            ClusterError: The batch system did not end everything in time; the error says what the user can do. An
                adapter that goes on regardless logs it.
        """
        ...
