"""NCCL as a transport of gradients between NVIDIA GPUs. It has not run on hardware yet; see docs/accelerators.md.

An operation is enqueued on a stream of its own: `reduce` returns before the GPU has begun with it. The host asks
whether it has ended, and never waits for a stream: an operation whose member is gone ends by `abort` only.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from offcut.torch.transport.protocol import TransportError

#: NCCL's own time-out. It is long because newer generations end a wait.
_PENDING = timedelta(hours=12)
#: torch would end the process where an operation fails or takes long; here the generation ends instead.
_ENVIRONMENT = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
}
_FORMING_POLL_S = 0.01


class NcclTransport:
    """See `Transport`. Its tensors are on the current GPU.

    Args:
        wake: not called: `done` has to be asked.
    """

    poll_s = 0.0005

    def __init__(self, wake: Callable[[], None]) -> None:
        self._nccl: Any = None
        self._aborted = threading.Event()

    def form(self, store: dist.Store, rank: int, world: int, address: str | None) -> None:
        """See `Transport`. Sums one number, because NCCL connects the members in their first operation."""
        if not (dist.is_nccl_available() and torch.cuda.is_available()):
            raise TransportError("this torch has no NCCL, or finds no GPU")
        os.environ.update(_ENVIRONMENT)
        device = torch.device("cuda", torch.cuda.current_device())
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = _PENDING
        options.config.blocking = 0
        self._nccl = dist.ProcessGroupNCCL(store, rank, world, options)
        self._nccl.eager_connect_single_device(device)
        first = self.reduce(torch.ones(1, device=device))
        while not self.done(first):
            if self._aborted.wait(_FORMING_POLL_S):
                raise TransportError("aborted while it formed")

    def reduce(self, bucket: torch.Tensor) -> Any:
        """See `Transport`. NCCL waits for what the current stream has enqueued before."""
        return self._start(lambda nccl: nccl.allreduce([bucket]))

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Any:
        """See `Transport`. NCCL has no tags: messages between two members come in the order in which they were sent."""
        return self._start(lambda nccl: nccl.send([tensor], to, tag))

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Any:
        """See `Transport`, and `send`."""
        return self._start(lambda nccl: nccl.recv([tensor], source, tag))

    def _start(self, start: Callable[[Any], Any]) -> Any:
        try:
            return start(self._nccl)
        except RuntimeError as error:
            raise _failed(error) from None

    def done(self, operation: Any) -> bool:
        """See `Transport`. The current stream may use the tensor then."""
        if self._aborted.is_set():
            raise TransportError("the generation was aborted")
        try:
            if not operation.is_completed():
                return False
            operation.wait()  # it has ended: this orders the current stream after it, and raises its error
        except RuntimeError as error:
            raise _failed(error) from None
        return True

    def abort(self) -> None:
        """See `Transport`. It is known to hang at times (NVIDIA/nccl issues 829 and 1013)."""
        if self._nccl is not None:
            self._nccl.abort()
        self._aborted.set()

    def leave(self) -> None:
        """See `Transport`. A communicator is not released by its destructor, which would wait for its other members."""
        nccl, self._nccl = self._nccl, None
        if nccl is not None and not self._aborted.is_set():
            threading.Thread(target=nccl.abort, name="offcut-abort", daemon=True).start()


def _failed(error: RuntimeError) -> TransportError:
    return TransportError(f"NCCL: {str(error).splitlines()[0]}")
