"""The process group of one generation, which a member can abandon at any time.

It has two transports. Over the *control* transport, which is gloo, go votes, flags, losses, and states. Over the *data*
transport go the gradients of models that are large enough for it to pay; it forms in the background of the first step.
A transport of its own also lets gradients be summed during the backward pass, in which other exchanges may come between
them in another order on each member.

A group is built in a thread of its own, while the previous generation trains. Operations are waited for on a condition
that a newer generation notifies too. A group that is abandoned with operations pending is kept until these end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from offcut.errors import ResizeError
from offcut.membership.generation import Generation
from offcut.torch.membership.reachable_address import Unreachable, reachable_address
from offcut.torch.membership.rendezvous_store import RendezvousStore
from offcut.torch.transport.abort import abort_or_exit
from offcut.torch.transport.choice import MakeTransport, data_transport
from offcut.torch.transport.gloo import FORMING, GlooTransport
from offcut.torch.transport.protocol import Transport, TransportError
from offcut.wire.worker_env import ENV_GLOO_INTERFACE

_left_behind: list[Group] = []


class Abandoned(ResizeError):
    """The generation cannot go on: a newer one has come, or a peer has died. Go on under the next generation.

    `unreachable`: the nodes of the members to which this one cannot connect.
    """

    def __init__(self, what: str, unreachable: tuple[str, ...] = ()) -> None:
        super().__init__(what)
        self.unreachable = unreachable


class Pending:
    """An operation that was started on `transport`; None: in a group of one, where nothing is to be done."""

    def __init__(self, transport: Transport | None = None, operation: Any = None) -> None:
        self.transport = transport
        # Referenced until it is done, because it writes into its tensor.
        self._operation = operation

    @property
    def done(self) -> bool:
        """Whether it has ended on this member. Raises TransportError if it failed."""
        return self.transport is None or self.transport.done(self._operation)

    @property
    def ended(self) -> bool:
        """Whether it has ended, or failed."""
        try:
            return self.done
        except TransportError:
            return True


class Forming:
    """The members of a generation find each other, in a thread of its own; `changed` is notified when that has
    ended.
    """

    def __init__(
        self,
        membership: Generation,
        rank: int,
        changed: threading.Condition,
        address: str | None = None,
        make: MakeTransport = GlooTransport,
    ) -> None:
        self.membership = membership
        self._make = make
        #: Where the other members connect to this one; found out unless it is known. None: as gloo's own settings say.
        self.address = address
        self._rank = rank
        self._changed = changed
        self._outcome: Transport | Exception | None = None
        #: Referenced for as long as the group, because torch may use it again.
        self.store: RendezvousStore | None = None
        threading.Thread(target=self._form, name="offcut-form", daemon=True).start()

    def _form(self) -> None:
        membership = self.membership
        try:
            # A connection of its own: a get that waits for a dead peer holds the connection's lock.
            self.store = RendezvousStore(
                membership.store, membership.job, membership.generation, membership.secret, FORMING
            )
            store = dist.PrefixStore(membership.group, self.store)
            if self.address is None and not os.environ.get(ENV_GLOO_INTERFACE):
                self.address = reachable_address(membership, self._rank, store)
            transport = self._make(self._wake)
            transport.form(store, self._rank, membership.world, self.address)
            self._outcome = transport
        except Exception as error:  # any error of the store or the transport ends this attempt, and nothing else
            self._outcome = error
        self._wake()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    @property
    def formed(self) -> bool:
        """Whether the members have found each other."""
        return self._outcome is not None and not isinstance(self._outcome, Exception)

    def wait(self, stale: Callable[[], bool]) -> Transport:
        """Return the transport when all members have found each other.

        Raises Abandoned if they do not, or once it is `stale`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._outcome is not None or stale())
        if self._outcome is None:
            self.give_up()
            raise Abandoned("a newer generation came while this one was forming")
        if isinstance(self._outcome, Exception):
            unreachable = self._outcome.nodes if isinstance(self._outcome, Unreachable) else ()
            raise Abandoned(f"the members did not find each other: {self._outcome}", unreachable)
        return self._outcome

    def give_up(self) -> None:
        """Let the thread end soon: it need not wait for keys that no member will store."""
        if self._outcome is None and self.store is not None:
            self.store.close()


class Group:
    """Collectives among the members of one generation. All calls raise Abandoned when the generation cannot go on."""

    def __init__(
        self,
        membership: Generation,
        rank: int,
        changed: threading.Condition,
        stale: Callable[[], bool],
        forming: Forming | None = None,
    ) -> None:
        """Join the other members, if need be beginning now; returns when all have found each other."""
        self.membership = membership
        self.rank = rank
        self.world = membership.world
        #: Whether all members compute the same to the last bit.
        self.exact = True
        self._changed = changed
        #: Returns whether to stop waiting; `Member` replaces it once the generation has formed.
        self.stale = stale
        self._pending: list[Pending] = []
        self._within: list[Group] = []
        self._control: Transport | None = None
        self._forming = forming
        #: The forming of the data transport, and the data transport.
        self._data_forming: Forming | None = None
        self._data: Transport | None = None
        self._address: str | None = None
        if self.world > 1:
            self._forming = forming or Forming(membership, rank, changed)
            self._control = self._forming.wait(stale)
            self._address = self._forming.address

    def _start(self, transport: Transport | None, start: Callable[[Transport], Any]) -> Pending:
        if transport is None:
            return Pending()
        try:
            pending = Pending(transport, start(transport))
        except TransportError as error:
            raise Abandoned(str(error)) from None
        self._pending.append(pending)
        return pending

    def wait(self, pending: Pending) -> None:
        """Wait until `pending` is done. Raises Abandoned if a peer is gone, or a newer generation has come."""
        if pending.transport is None or pending not in self._pending:
            return
        poll_s = pending.transport.poll_s
        with self._changed:
            while not pending.ended and not self.stale():
                self._changed.wait(poll_s)
        if not pending.ended:
            raise Abandoned("a newer generation came")
        self._pending.remove(pending)
        try:
            _ = pending.done
        except TransportError as error:
            raise Abandoned(str(error)) from None

    def start_all_reduce(self, tensor: torch.Tensor) -> Pending:
        """Start summing `tensor` over the members, in place; every member gets the same bits."""
        release_left_behind()
        return self._start(self._control, lambda control: control.reduce(tensor))

    def gather(self, values: list[int]) -> list[list[int]]:
        """Return every member's `values` (the same number on each), by rank."""
        table = torch.zeros(self.world, len(values), dtype=torch.int64, device="cpu")
        table[self.rank] = torch.tensor(values, dtype=torch.int64, device="cpu")
        self.wait(self.start_all_reduce(table))
        rows: list[list[int]] = table.tolist()
        return rows

    def send(self, tensor: torch.Tensor, to: int, tag: int = 0) -> Pending:
        """Start sending a contiguous tensor; `wait` for it before changing the tensor."""
        if self._control is None:
            raise ResizeError("a group of one has no other member to send to")
        return self._start(self._control, lambda control: control.send(tensor, to, tag))

    def start_receive(self, tensor: torch.Tensor, source: int, tag: int = 0) -> Pending:
        """Start filling `tensor` with what `source` sends under the same tag."""
        if self._control is None:
            raise ResizeError("a group of one has no other member to receive from")
        return self._start(self._control, lambda control: control.receive(tensor, source, tag))

    def receive(self, tensor: torch.Tensor, source: int) -> None:
        """Fill `tensor` with what `source` sends."""
        self.wait(self.start_receive(tensor, source))

    # -- the data transport -------------------------------------------------------------------------------------------

    def begin_data(self) -> None:
        """Begin to form the data transport, in the background; all members call it. Later calls do nothing."""
        if self.world > 1 and self._data_forming is None:
            data = replace(self.membership, group=f"{self.membership.group}/data")
            self._data_forming = Forming(data, self.rank, self._changed, self._address, data_transport())

    @property
    def data_formed(self) -> bool:
        """Whether buckets can be started without waiting for other members."""
        return self._data_forming is not None and self._data_forming.formed

    def start_bucket(self, bucket: torch.Tensor) -> Pending:
        """Start summing a bucket of gradients over the members, in place, by the data transport.

        All members start the same buckets in the same order, whatever else they exchange in between. Waits until the
        data transport is formed, which `begin_data` has begun.
        """
        if self._data is None and self.world > 1:
            self.begin_data()
            assert self._data_forming is not None
            self._data = self._data_forming.wait(self.stale)
        return self._start(self._data, lambda data: data.reduce(bucket))

    # -- groups within it, and its end --------------------------------------------------------------------------------

    def among(self, ranks: Sequence[int], name: str) -> Group:
        """Return a group of some of the members, this one included: all of `ranks` call it, with the same `name`.

        It ends with this one.
        """
        mine = self.membership
        part = replace(mine, workers=tuple(mine.workers[rank] for rank in ranks), group=f"{mine.group}/{name}")

        def stale() -> bool:
            return self.stale()  # which changes once the generation has formed

        rank = list(ranks).index(self.rank)
        forming = Forming(part, rank, self._changed, self._address) if part.world > 1 else None
        self._within.append(Group(part, rank, self._changed, stale, forming))
        return self._within[-1]

    def leave(self) -> None:
        """Close this group now, or when its pending operations have ended."""
        for part in self._within:
            part.leave()
        self._within.clear()
        if self._data_forming is not None:
            self._data_forming.give_up()
        for transport in {id(p.transport): p.transport for p in self._pending if not p.ended}.values():
            if transport is not None:
                abort_or_exit(transport, self.rank)
        _left_behind.append(self)
        release_left_behind()

    def _release(self) -> bool:
        """Release the transports if no operation is under way; return whether that is so."""
        self._pending = [pending for pending in self._pending if not pending.ended]
        if self._pending:
            return False
        for transport in (self._control, self._data):
            if transport is not None:
                transport.leave()
        self._control = self._data = self._forming = self._data_forming = None
        return True


def release_left_behind() -> None:
    """Release the groups that were left while operations were under way, with their tensors, as far as these ended."""
    for group in list(_left_behind):
        if group._release():
            _left_behind.remove(group)
