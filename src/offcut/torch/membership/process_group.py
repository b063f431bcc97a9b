"""The process group of one generation, which a member can abandon at any time.

Gloo notices a closed socket within some 30 ms, but a frozen peer only by its own time-out, and neither `abort()` nor
`shutdown()` wakes work that is pending. So nothing here blocks inside gloo: a group is built in a thread of its own,
while the previous generation trains; work is waited for on a condition that a newer generation notifies too; and the
kernel is told to notice when a peer's network drops everything. A group that is abandoned with work pending is kept
until that work ends, because its destructor would block until then.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist

from offcut.errors import ResizeError
from offcut.membership.generation import Generation
from offcut.torch.membership import socket_timeouts
from offcut.torch.membership.reachable_address import Unreachable, reachable_address
from offcut.torch.membership.rendezvous_store import RendezvousStore
from offcut.wire.worker_env import ENV_GLOO_INTERFACE

#: Gloo's own time-out. It is long because newer generations end a wait, and because a member may evaluate for long
#: between two steps.
_PENDING = timedelta(hours=12)
#: How long the members may take to find each other before they give this generation up.
_FORMING = timedelta(seconds=60)

_left_behind: list[Group] = []


class _Watchers:
    """Threads that wait for sends and receives. There are as many as wait at a time, and they are reused."""

    def __init__(self) -> None:
        self._waits: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def run(self, wait: Callable[[], None]) -> None:
        with self._lock:
            start = self._idle == 0
            self._idle -= not start
        if start:
            # A daemon: a wait for a frozen peer must not delay the end of the process.
            threading.Thread(target=self._serve, name="offcut-watch", daemon=True).start()
        self._waits.put(wait)

    def _serve(self) -> None:
        while True:
            self._waits.get()()
            with self._lock:
                self._idle += 1


_watchers = _Watchers()


class Abandoned(ResizeError):
    """The generation cannot go on: a newer one has come, or a peer has died. Go on under the next generation.

    `unreachable`: the nodes of the members to which this one cannot connect.
    """

    def __init__(self, what: str, unreachable: tuple[str, ...] = ()) -> None:
        super().__init__(what)
        self.unreachable = unreachable


class Pending:
    """Work under way on `tensor`; `wake` is called when it is done."""

    def __init__(self, work: dist.Work | None, wake: Callable[[], None], *, watched: bool) -> None:
        # Referenced until the work is done, because gloo writes into the tensor.
        self._work = work
        self._wake = wake
        self._error: RuntimeError | None = None
        self.done = work is None
        if work is None:
            return
        if watched:  # gloo has no futures for sends and receives, and they end only while something waits for them
            _watchers.run(lambda: self._finish(work.wait))
        else:
            work.get_future().add_done_callback(lambda future: self._finish(future.value))

    @classmethod
    def nothing(cls) -> Pending:
        """Return work that is done already, because a group of one has nothing to wait for."""
        return cls(None, lambda: None, watched=False)

    def _finish(self, outcome: Callable[[], object]) -> None:
        try:
            outcome()
        except RuntimeError as error:
            self._error = error
        self.done = True
        self._wake()

    def check(self) -> None:
        """Raise Abandoned if the work failed."""
        if self._error is not None:
            raise _peer_is_gone(self._error) from None


def _peer_is_gone(error: RuntimeError) -> Abandoned:
    return Abandoned(f"a peer has died: {str(error).splitlines()[0]}")


class Forming:
    """The members of a generation find each other, in a thread of its own; `changed` is notified when that has
    ended.
    """

    def __init__(
        self, membership: Generation, rank: int, changed: threading.Condition, address: str | None = None
    ) -> None:
        self.membership = membership
        #: Where the other members connect to this one; found out unless it is known. None: as gloo's own settings say.
        self.address = address
        self._rank = rank
        self._changed = changed
        self._outcome: dist.ProcessGroupGloo | Exception | None = None
        #: Referenced for as long as the group, because torch may use it again.
        self.store: RendezvousStore | None = None
        threading.Thread(target=self._form, name="offcut-form", daemon=True).start()

    def _form(self) -> None:
        membership = self.membership
        try:
            # A connection of its own: a get that waits for a dead peer holds the connection's lock.
            self.store = RendezvousStore(
                membership.store, membership.job, membership.generation, membership.secret, _FORMING
            )
            store = dist.PrefixStore(membership.group, self.store)
            if self.address is None and not os.environ.get(ENV_GLOO_INTERFACE):
                self.address = reachable_address(membership, self._rank, store)
            known = socket_timeouts.inodes()
            gloo = _gloo(store, self._rank, membership.world, self.address)
            gloo._set_default_timeout(_PENDING)
            socket_timeouts.break_when_silent(known)
            self._outcome = gloo
        except Exception as error:  # any error of the store or gloo ends this attempt, and nothing else
            self._outcome = error
        with self._changed:
            self._changed.notify_all()

    def wait(self, stale: Callable[[], bool]) -> dist.ProcessGroupGloo:
        """Return the group when all members have found each other.

        Raises Abandoned if they do not, or once it is `stale`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._outcome is not None or stale())
        if self._outcome is None:
            if self.store is not None:
                self.store.close()  # the thread need not wait for keys that no member will store
            raise Abandoned("a newer generation came while this one was forming")
        if isinstance(self._outcome, Exception):
            unreachable = self._outcome.nodes if isinstance(self._outcome, Unreachable) else ()
            raise Abandoned(f"the members did not find each other: {self._outcome}", unreachable)
        return self._outcome


def _gloo(store: dist.Store, rank: int, world: int, address: str | None) -> dist.ProcessGroupGloo:
    if address is None:
        return dist.ProcessGroupGloo(store, rank, world, _FORMING)
    options = dist.ProcessGroupGloo._Options()
    options._timeout = _FORMING
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
    return dist.ProcessGroupGloo(store, rank, world, options)


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
        self._gloo: dist.ProcessGroupGloo | None = None
        self._store: RendezvousStore | None = None
        self._address: str | None = None
        if self.world > 1:
            forming = forming or Forming(membership, rank, changed)
            self._gloo = forming.wait(stale)
            self._store = forming.store
            self._address = forming.address

    def _start(self, start: Callable[[], dist.Work], *, watched: bool = False) -> Pending:
        try:
            work = start()
        except RuntimeError as error:
            raise _peer_is_gone(error) from None
        pending = Pending(work, self._wake, watched=watched)
        self._pending.append(pending)
        return pending

    def wait(self, pending: Pending) -> None:
        """Wait until `pending` is done. Raises Abandoned if a peer is gone, or a newer generation has come."""
        if pending not in self._pending:
            return
        with self._changed:
            self._changed.wait_for(lambda: pending.done or self.stale())
        if not pending.done:
            raise Abandoned("a newer generation came")
        self._pending.remove(pending)
        pending.check()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def start_all_reduce(self, tensor: torch.Tensor) -> Pending:
        """Start summing `tensor` over the members, in place; every member gets the same bits."""
        release_left_behind()
        gloo = self._gloo
        if gloo is None:
            return Pending.nothing()
        return self._start(lambda: gloo.allreduce([tensor]))

    def gather(self, values: list[int]) -> list[list[int]]:
        """Return every member's `values` (the same number on each), by rank."""
        table = torch.zeros(self.world, len(values), dtype=torch.int64, device="cpu")
        table[self.rank] = torch.tensor(values, dtype=torch.int64, device="cpu")
        self.wait(self.start_all_reduce(table))
        rows: list[list[int]] = table.tolist()
        return rows

    def send(self, tensor: torch.Tensor, to: int, tag: int = 0) -> Pending:
        """Start sending a contiguous tensor; `wait` for it before changing the tensor."""
        gloo = self._gloo
        if gloo is None:
            raise ResizeError("a group of one has no other member to send to")
        return self._start(lambda: gloo.send([tensor], to, tag), watched=True)

    def start_receive(self, tensor: torch.Tensor, source: int, tag: int = 0) -> Pending:
        """Start filling `tensor` with what `source` sends under the same tag."""
        gloo = self._gloo
        if gloo is None:
            raise ResizeError("a group of one has no other member to receive from")
        return self._start(lambda: gloo.recv([tensor], source, tag), watched=True)

    def receive(self, tensor: torch.Tensor, source: int) -> None:
        """Fill `tensor` with what `source` sends."""
        self.wait(self.start_receive(tensor, source))

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
        """Close this group now, or when its pending work has ended."""
        for part in self._within:
            part.leave()
        self._within.clear()
        _left_behind.append(self)
        release_left_behind()


def release_left_behind() -> None:
    """Release the groups that were left while work was under way, with its buffers, as far as that has ended."""
    for group in list(_left_behind):
        group._pending = [pending for pending in group._pending if not pending.done]
        if not group._pending:
            group._gloo = group._store = None
            _left_behind.remove(group)
