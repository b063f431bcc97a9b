"""The interface between the process group of a generation and what moves its tensors."""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.distributed as dist

from offcut.errors import ResizeError


class TransportError(ResizeError):
    """The members did not find each other, or an operation failed: usually because a member has died."""


class Transport(Protocol):
    """Moves tensors between the members of one generation, and is of no use once one of them has gone.

    `reduce`, `send` and `receive` start an operation and return it at once. Its tensor must not be read or written
    before `done` has returned True for it. A transport never blocks in them, in `done` or in `leave`: what waits for an
    operation must be able to stop waiting when a newer generation comes.

    An operation that is not done may have ended on other members, and the other way round. So what members do next they
    decide by what all of them know.
    """

    @property
    def poll_s(self) -> float | None:
        """How often to ask whether an operation is done, in seconds; None: the transport calls when one has ended."""
        ...

    def form(self, store: dist.Store, rank: int, world: int, address: str | None) -> None:
        """Find the other members. Blocks until all have found each other; called once, in a thread of its own.

        Args:
            store: where members leave what the others need to find them.
            rank: this member's number.
            world: how many members there are, at least 2.
            address: where the others can connect to this member; None: as the library's own settings say.

        Raises:
            Exception: the members did not find each other.
        """
        ...

    def reduce(self, bucket: torch.Tensor) -> Any:
        """Start summing a contiguous tensor over the members, in place. Every member gets the same bits.

        All members reduce tensors of the same sizes and types in the same order.

        Raises:
            TransportError: a member is known to be gone.
        """
        ...

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Any:
        """Start sending a contiguous tensor to a member, which calls `receive` with the same tag.

        Raises:
            TransportError: a member is known to be gone.
        """
        ...

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Any:
        """Start filling a contiguous tensor with what `source` sends under the tag.

        Raises:
            TransportError: a member is known to be gone.
        """
        ...

    def done(self, operation: Any) -> bool:
        """Return whether an operation has ended, so that its tensor can be used on this member.

        Raises:
            TransportError: it has failed. What is in its tensor means nothing.
        """
        ...

    def abort(self) -> None:
        """End what is under way, because the generation is over; what is in the tensors then means nothing.

        It may block for ever where a device or a driver is stuck: call `abort.abort_or_exit`, not this. A transport
        that cannot end operations returns at once; they may write into their tensors until they are done.
        """
        ...

    def leave(self) -> None:
        """Release connections and memory, once no operation is under way."""
        ...
