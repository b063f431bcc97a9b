"""Limits on what connections from the network may use of the controller's process."""

from __future__ import annotations

import resource
from dataclasses import dataclass

#: Descriptors that connections from the network never get: the owner's socket, the journal, logs, the batch system's
#: commands and the solver need them.
_LEAST_RESERVE = 64
_LARGEST_RESERVE = 256
#: More agents than this are not expected of one event loop.
_MOST_CONNECTIONS = 16_384
#: A TLS handshake takes tens of KiB; those that come all at once take turns.
_MOST_PENDING = 512
#: Connections of browsers.
_MOST_OF_PAGE = 320
#: A report that is written to the journal counts as this many, because it costs more than others.
JOURNALLED = 20

#: A body of a command of the owner.
BODY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLimits:
    """Limits of the listener that agents dial. Times in seconds."""

    #: Open connections, whatever their state; those above wait in the kernel's queue.
    connections: int
    #: Of these, connections that have not yet shown a credential.
    pending: int
    #: From the first byte to the agent's first message.
    greeting_s: float = 10.0
    #: When `pending` is reached, the oldest connection is closed for a new one once it is this old.
    displace_s: float = 1.0
    #: A whole request line with its headers.
    header_bytes: int = 16 << 10
    #: One message of an agent.
    message_bytes: int = 1 << 20
    #: What an agent may send on average; a connection that sends more is read more slowly.
    messages_per_s: float = 1_000.0
    bytes_per_s: float = float(4 << 20)
    #: Bytes that may wait for an agent that does not read; with more it is cut off, and connects again.
    unsent_bytes: int = 16 << 20


def raise_descriptor_limit() -> int:
    """Raise this process's limit of open files to what the administrator allows, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20


def network_limits(descriptors: int) -> NetworkLimits:
    """Return the limits of a process that may open `descriptors` files."""
    connections = max(8, min(_MOST_CONNECTIONS, descriptors - _reserve(descriptors) - page_connections(descriptors)))
    return NetworkLimits(connections=connections, pending=max(4, min(_MOST_PENDING, connections // 4)))


def owner_connections(descriptors: int) -> int:
    """Return how many commands of the owner may be answered at once."""
    return _reserve(descriptors) // 2


def page_connections(descriptors: int) -> int:
    """Return how many connections browsers may have at once, in a process that may open `descriptors` files."""
    return max(24, min(_MOST_OF_PAGE, descriptors // 16))


def _reserve(descriptors: int) -> int:
    return max(_LEAST_RESERVE, min(_LARGEST_RESERVE, descriptors // 8))
