"""Chooses the address at which the other members of a generation connect to this one.

A node may have several networks, and not each of them connects the nodes: on a management network a node often reaches
the login node only. So members try each other's addresses, and each takes an address at which others have reached it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: Members of a generation of at most this size all try each other. In a larger one each tries some others.
ALL_PAIRS = 16
#: How long a preferred address may take longer than another one at which this member has been reached, in seconds.
PREFERRED_WAIT_S = 0.1


def probed_ranks(rank: int, world: int) -> list[int]:
    """Return the members whose addresses the member `rank` tries: all others, or those 1, 2, 4, … ranks after it.

    The distances that double include neighbours and the other end of the list, so that islands are seen, and a
    generation of 1,000 members makes 10 connections per member and not 999.
    """
    if world <= ALL_PAIRS:
        return [other for other in range(world) if other != rank]
    return [(rank + distance) % world for distance in _distances(world)]


def probing_ranks(rank: int, world: int) -> list[int]:
    """Return the members that try the addresses of the member `rank`."""
    if world <= ALL_PAIRS:
        return probed_ranks(rank, world)
    return [(rank - distance) % world for distance in _distances(world)]


def _distances(world: int) -> list[int]:
    return [1 << power for power in range((world - 1).bit_length())]


@dataclass
class AddressChoice:
    """Which of this member's `addresses` (the preferred first) have been reached by which of its `peers`."""

    addresses: Sequence[str]
    #: The ranks that have to reach this member.
    peers: frozenset[int]
    _reached: dict[str, set[int]] = field(default_factory=dict)
    _complete_since_s: float | None = None

    def note_reached(self, address: str, rank: int, now_s: float) -> None:
        """Note that the member `rank` has reached this one at `address`, which counts if it is one of `addresses`."""
        if address not in self.addresses:
            return
        self._reached.setdefault(address, set()).add(rank)
        if self._complete_since_s is None and self._reached[address] >= self.peers:
            self._complete_since_s = now_s

    def chosen(self, now_s: float) -> str | None:
        """Return the address to use; None while that is not known."""
        if self._complete_since_s is None:
            return None
        complete = [address for address in self.addresses if self._reached.get(address, set()) >= self.peers]
        waited = now_s >= self._complete_since_s + PREFERRED_WAIT_S
        return complete[0] if waited or complete[0] == self.addresses[0] else None

    @property
    def missing_ranks(self) -> frozenset[int]:
        """The peers that have not reached this member at any address."""
        return self.peers.difference(*self._reached.values())

    def explain(self, names: Sequence[str]) -> str:
        """Return a sentence that says who has not reached this member; `names` are the nodes by rank."""
        missing = sorted({names[rank] for rank in self.missing_ranks})
        where = ", ".join(_shown(self.addresses))
        if missing:
            return f"{', '.join(missing)} cannot connect to this node at {where}"
        return f"not all members can connect to this node at one and the same of its addresses ({where})"


def explain_failures(name: str, failures: Mapping[str, str]) -> str:
    """Return a sentence that says why the node `name` could not be reached at any of its addresses."""
    tried = ", ".join(f"{address}: {failures[address]}" for address in _shown(list(failures)))
    return f"this node cannot connect to {name} ({tried})"


def _shown(addresses: Sequence[str]) -> Sequence[str]:
    """Return the addresses without loopback, by which only members on one machine could have met."""
    return [address for address in addresses if address != "127.0.0.1"] or addresses
