"""A transport that behaves as one between accelerators does, for tests on machines that have none.

Its operations go over gloo, but as their user sees them they are those of a device:

- An operation is enqueued, and runs when those before it have ended. Until it is done, what is in its tensor is NaN.
- A member that is gone is not noticed: operations that wait for it never end by themselves.
- After an abort, the tensors of the operations that were under way hold NaN.

A `FakePlan` says what goes wrong besides.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from offcut.torch.transport.gloo import GlooTransport
from offcut.torch.transport.protocol import TransportError

_POLL_S = 0.001


@dataclass(frozen=True, slots=True)
class FakePlan:
    """What goes wrong on one member. Operations are counted from 0 in each generation."""

    #: The most seconds by which an operation ends late.
    late_s: float = 0.0
    #: Operations that never begin here, so that they end on no member.
    stuck: frozenset[int] = field(default_factory=frozenset)
    #: Operations that end on the other members, but not here.
    lost: frozenset[int] = field(default_factory=frozenset)
    #: Whether an abort never returns.
    abort_hangs: bool = False


class _Operation:
    """An operation that was enqueued."""

    def __init__(self, number: int, tensor: torch.Tensor, given: torch.Tensor, start: Callable[[Any], Any]) -> None:
        self.number = number
        self.tensor = tensor
        #: What was in the tensor when it was enqueued; gloo works on it.
        self.given = given
        self.start = start
        self.done = False


#: Operations of gloo that were given up: its destructor would wait for them.
_kept: list[Any] = []


class FakeAcceleratorTransport:
    """See `Transport`.

    Args:
        wake: not called: `done` has to be asked.
        plan: what goes wrong.
    """

    poll_s = _POLL_S

    def __init__(self, wake: Callable[[], None], plan: FakePlan | None = None) -> None:
        self._plan = plan or FakePlan()
        self._random = random.Random(1)
        self._gloo = GlooTransport(lambda: None)
        self._queue: queue.SimpleQueue[_Operation | None] = queue.SimpleQueue()
        self._operations: list[_Operation] = []
        self._started = 0
        self._aborted = threading.Event()
        self._stream: threading.Thread | None = None

    def form(self, store: dist.Store, rank: int, world: int, address: str | None) -> None:
        """See `Transport`."""
        self._gloo.form(store, rank, world, address)
        self._stream = threading.Thread(target=self._run, name="offcut-fake-stream", daemon=True)
        self._stream.start()

    def reduce(self, bucket: torch.Tensor) -> _Operation:
        """See `Transport`."""
        return self._enqueue(bucket, self._gloo.reduce)

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> _Operation:
        """See `Transport`."""
        return self._enqueue(tensor, lambda given: self._gloo.send(given, to, tag))

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> _Operation:
        """See `Transport`."""
        return self._enqueue(tensor, lambda given: self._gloo.receive(given, source, tag))

    def _enqueue(self, tensor: torch.Tensor, start: Callable[[torch.Tensor], Any]) -> _Operation:
        operation = _Operation(self._started, tensor, tensor.clone(), start)
        _spoil(tensor)
        self._started += 1
        self._operations.append(operation)
        self._queue.put(operation)
        return operation

    def _run(self) -> None:
        """Do what a stream does: one operation after the other, until one does not end."""
        while (operation := self._queue.get()) is not None:
            if operation.number in self._plan.stuck or not self._ends(operation):
                return
            if operation.number in self._plan.lost:
                return
            operation.tensor.copy_(operation.given)
            self._operations.remove(operation)
            operation.done = True

    def _ends(self, operation: _Operation) -> bool:
        """Run an operation; return whether it ended before an abort. One whose member is gone does not."""
        try:
            work = operation.start(operation.given)
            _kept.append((self._gloo, work))
            while not self._gloo.done(work):
                if self._aborted.wait(_POLL_S):
                    return False
        except TransportError:
            return False
        _kept.remove((self._gloo, work))
        return not self._aborted.wait(self._random.uniform(0.0, self._plan.late_s))

    def done(self, operation: _Operation) -> bool:
        """See `Transport`."""
        if operation.done:
            return True
        if self._aborted.is_set():
            raise TransportError("the generation was aborted")
        return False

    def abort(self) -> None:
        """See `Transport`."""
        while self._plan.abort_hangs:
            time.sleep(60.0)
        self._aborted.set()
        self._queue.put(None)
        if self._stream is not None:
            self._stream.join()
        for operation in self._operations:
            _spoil(operation.tensor)

    def leave(self) -> None:
        """See `Transport`."""
        self._queue.put(None)


def _spoil(tensor: torch.Tensor) -> None:
    """Fill a tensor with what no computation survives."""
    tensor.fill_(float("nan") if tensor.is_floating_point() else -1)
