"""Messages between the ranks of a program, over torch.distributed's default group."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist


class DefaultGroupTransport:
    """See `offcut.torch.pipeline.runtime.transport.Transport`; what takes longer than `timeout_s` fails."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout = timedelta(seconds=timeout_s)

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> dist.Work:
        work = dist.isend(tensor, to, tag=tag)
        assert work is not None
        return work

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> dist.Work:
        work = dist.irecv(tensor, source, tag=tag)
        assert work is not None
        return work

    def wait(self, work: dist.Work) -> None:
        work.wait(self._timeout)
