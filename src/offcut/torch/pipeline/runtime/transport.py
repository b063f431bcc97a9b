"""Messages between the ranks of a program."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from offcut.torch.membership.process_group import Group, Pending


class Transport(Protocol):
    """Sends and receives tensors. `tensor` is contiguous, on the CPU, and unchanged until `wait` has returned.

    Messages between two ranks are distinguished by `tag` alone. `wait` raises if the other rank has died.
    """

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Any: ...
    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Any: ...
    def wait(self, work: Any) -> None: ...


class GenerationTransport:
    """Messages within one generation's group; a wait ends with `Abandoned` when the generation cannot go on."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Pending:
        return self._group.send(tensor, to, tag)

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Pending:
        return self._group.start_receive(tensor, source, tag)

    def wait(self, work: Pending) -> None:
        self._group.wait(work)
