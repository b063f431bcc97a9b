"""Messages between the ranks of a program: over torch.distributed's default group, or among a job's members."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from offcut.torch.membership.process_group import Group, Pending


class Transport(Protocol):
    """`tensor` is contiguous and on the CPU; it stays as it is, and stays alive, until `wait` has returned.

    Messages between two ranks are told apart by `tag` alone. `wait` raises where the other rank is gone.
    """

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Any: ...
    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Any: ...
    def wait(self, work: Any) -> None: ...


class DefaultGroupTransport:
    """The default group; what takes longer than `timeout_s` has failed."""

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


class GenerationTransport:
    """One generation's group: whoever waits can walk away (`Abandoned`) when the generation cannot go on."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Pending:
        return self._group.send(tensor, to, tag)

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Pending:
        return self._group.start_receive(tensor, source, tag)

    def wait(self, work: Pending) -> None:
        self._group.wait(work)
