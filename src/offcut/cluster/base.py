"""What the controller needs of a batch system, and what it may rely on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from offcut.model.events import ClaimRefused, NodesChanged

ClusterEvent = NodesChanged | ClaimRefused


class Cluster(Protocol):
    """A batch system seen from our side. One task of the controller uses it.

    Promises, checked by the conformance suite for every implementation:

    - `observe` begins with what is idle now, and misses nothing from then on: a node is offered before it can be
      claimed, and every claimed node is in the end reported lost, however it went (released, taken, broken).
    - A node is never claimed twice at once: a claim that cannot be had is answered by ClaimRefused.
    - `release` is idempotent and safe for nodes that are not ours.
    - A wanted node is reported once, and is not offered again before it has been reported lost (if it was claimed).
    - After `close` nothing of ours is left on any node.
    """

    def observe(self) -> AsyncIterator[ClusterEvent]:
        """Node events, as they come. Ends when the batch system has gone for good (ClusterError) or after `close`."""
        ...

    async def claim(self, nodes: Sequence[str], until_s: float | None) -> None:
        """Take idle nodes through the queue and start an agent on each; `until_s` (seconds since 1970) is the earliest
        known end of their windows. Returns at once; an agent that boots dials in by itself."""
        ...

    async def release(self, nodes: Sequence[str]) -> None:
        """Hand nodes back: their agents are told, let workers leave, and exit. Returns at once."""
        ...

    async def claimed(self) -> frozenset[str]:
        """The nodes that we hold now, as the batch system sees it."""
        ...

    def pilot(self, node: str) -> str | None:
        """Names our present hold on the node, among all that there ever were; None where we hold it not (yet). The
        node's agent has a credential for this one."""
        ...

    def describe(self) -> dict[str, Any]:
        """What `offcut status` shows of it: `kind`, and whatever else helps to see what it does and why it does not."""
        ...

    async def statistics(self) -> dict[str, Any]:
        """`idle_node_s`: node-seconds left idle so far; `hand_backs`: node, wanted_s, took_s, killed of each."""
        ...

    async def close(self) -> None:
        """Hand everything back, and leave nothing behind."""
        ...
