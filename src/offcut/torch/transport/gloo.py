"""Gloo as a transport.

Gloo notices a closed socket within some 30 ms, but a frozen member only by its own time-out, and neither `abort()` nor
`shutdown()` wakes operations that are pending. So nothing here blocks inside gloo: operations are waited for on a
condition that a newer generation notifies too, and the kernel is told to notice when a member's network drops
everything.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

from offcut.torch.transport import socket_timeouts
from offcut.torch.transport.protocol import TransportError

#: Gloo's own time-out. It is long because newer generations end a wait, and because a member may evaluate for long
#: between two steps.
_PENDING = timedelta(hours=12)
#: How long the members may take to find each other before they give this generation up.
FORMING = timedelta(seconds=60)


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
            # A daemon: a wait for a frozen member must not delay the end of the process.
            threading.Thread(target=self._serve, name="offcut-watch", daemon=True).start()
        self._waits.put(wait)

    def _serve(self) -> None:
        while True:
            self._waits.get()()
            with self._lock:
                self._idle += 1


_watchers = _Watchers()


class GlooOperation:
    """An operation of gloo that is under way or has ended."""

    def __init__(self, work: dist.Work, wake: Callable[[], None], *, watched: bool) -> None:
        # Referenced until it is done, because gloo writes into the tensor.
        self._work = work
        self._wake = wake
        self.error: RuntimeError | None = None
        self.ended = False
        if watched:  # gloo has no futures for sends and receives, and they end only while something waits for them
            _watchers.run(lambda: self._finish(work.wait))
        else:
            work.get_future().add_done_callback(lambda future: self._finish(future.value))

    def _finish(self, outcome: Callable[[], object]) -> None:
        try:
            outcome()
        except RuntimeError as error:
            self.error = error
        self.ended = True
        self._wake()


class GlooTransport:
    """See `Transport`. Tensors on an accelerator are copied to this node's memory and back.

    Args:
        wake: called, in any thread, when an operation has ended.
    """

    poll_s = None

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._gloo: dist.ProcessGroupGloo | None = None

    def form(self, store: dist.Store, rank: int, world: int, address: str | None) -> None:
        """See `Transport`."""
        known = socket_timeouts.inodes()
        gloo = _process_group(store, rank, world, address)
        gloo._set_default_timeout(_PENDING)
        socket_timeouts.break_when_silent(known)
        self._gloo = gloo

    def reduce(self, bucket: torch.Tensor) -> GlooOperation:
        """See `Transport`."""
        return self._start(lambda gloo: gloo.allreduce([bucket]))

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> GlooOperation:
        """See `Transport`."""
        return self._start(lambda gloo: gloo.send([tensor], to, tag), watched=True)

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> GlooOperation:
        """See `Transport`."""
        return self._start(lambda gloo: gloo.recv([tensor], source, tag), watched=True)

    def _start(self, start: Callable[[dist.ProcessGroupGloo], dist.Work], *, watched: bool = False) -> GlooOperation:
        assert self._gloo is not None, "the members have not found each other"
        try:
            work = start(self._gloo)
        except RuntimeError as error:
            raise _member_is_gone(error) from None
        return GlooOperation(work, self._wake, watched=watched)

    def done(self, operation: GlooOperation) -> bool:
        """See `Transport`."""
        if operation.error is not None:
            raise _member_is_gone(operation.error) from None
        return operation.ended

    def abort(self) -> None:
        """Do nothing: gloo cannot end an operation before its connections close."""

    def leave(self) -> None:
        """See `Transport`. Gloo's destructor would block if an operation were under way."""
        self._gloo = None


def _process_group(store: dist.Store, rank: int, world: int, address: str | None) -> dist.ProcessGroupGloo:
    if address is None:
        return dist.ProcessGroupGloo(store, rank, world, FORMING)
    options = dist.ProcessGroupGloo._Options()
    options._timeout = FORMING
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
    return dist.ProcessGroupGloo(store, rank, world, options)


def _member_is_gone(error: RuntimeError) -> TransportError:
    return TransportError(f"a peer has died: {str(error).splitlines()[0]}")
