"""Moves a training state from members that have it to those that lack it.

The state goes as a skeleton and then its tensors' bytes in chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from offcut.torch.membership.process_group import Group
from offcut.torch.state.state_codec import put_together, take_apart

#: Bytes per message: large enough for bandwidth, small enough to have the next one under way.
CHUNK_BYTES = 32 << 20


def send_state(group: Group, tree: dict[str, Any], to: int, visit: Callable[[], object] = lambda: None) -> None:
    """Send `tree` to rank `to`; `visit` is called before every chunk. Raises Abandoned."""
    head, tensors, _ = take_apart(tree)
    group.wait(group.send(torch.tensor([head.numel()], device="cpu"), to))
    group.wait(group.send(head, to))
    under_way = None
    for chunk in _chunks(list(tensors.values())):
        visit()
        work = group.send(chunk, to)
        if under_way is not None:
            group.wait(under_way)
        under_way = work
    if under_way is not None:
        group.wait(under_way)


def receive_state(
    group: Group,
    source: int,
    visit: Callable[[], object] = lambda: None,
    room: Mapping[str, torch.Tensor] | None = None,
) -> dict[str, Any]:
    """Return the tree that rank `source` sends, on the CPU. Raises Abandoned.

    Args:
        group: the members.
        source: the rank that calls `send_state`.
        visit: called before every chunk.
        room: tensors by their names in the tree, to be written over where they are alike: memory that is used for the
            first time takes longer than the transfer.
    """
    size = torch.zeros(1, dtype=torch.int64, device="cpu")
    group.receive(size, source)
    head = torch.empty(int(size), dtype=torch.uint8, device="cpu")
    group.receive(head, source)
    tensors: list[torch.Tensor] = []

    def make_room(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        there = room.get(name) if room else None
        if there is None or not _can_hold(there, shape, dtype):
            there = torch.empty(shape, dtype=dtype, device="cpu")
        tensors.append(there)
        return there

    tree = put_together(head, make_room)
    views = [_bytes(tensor) for tensor in tensors]
    for plan in _plan([view.numel() for view in views]):
        visit()
        if len(plan) == 1:
            i, start, stop = plan[0]
            group.receive(views[i][start:stop], source)
            continue
        chunk = torch.empty(sum(stop - start for _, start, stop in plan), dtype=torch.uint8, device="cpu")
        group.receive(chunk, source)
        for (i, start, stop), part in zip(plan, chunk.split([b - a for _, a, b in plan]), strict=True):
            views[i][start:stop] = part
    return tree


def _can_hold(there: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    return bool(there.device.type == "cpu" and there.is_contiguous() and there.shape == shape and there.dtype == dtype)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _plan(sizes: list[int]) -> list[list[tuple[int, int, int]]]:
    """Cut a row of buffers into messages: each a list of (buffer, first byte, end) of CHUNK_BYTES in all at most."""
    messages: list[list[tuple[int, int, int]]] = []
    message: list[tuple[int, int, int]] = []
    room = CHUNK_BYTES
    for i, size in enumerate(sizes):
        start = 0
        while start < size:
            stop = min(size, start + room)
            message.append((i, start, stop))
            room -= stop - start
            start = stop
            if room == 0:
                messages.append(message)
                message, room = [], CHUNK_BYTES
    if message:
        messages.append(message)
    return messages


def _chunks(tensors: list[torch.Tensor]) -> Any:
    views = [_bytes(tensor.cpu().contiguous()) for tensor in tensors]
    for plan in _plan([view.numel() for view in views]):
        parts = [views[i][start:stop] for i, start, stop in plan]
        yield parts[0] if len(parts) == 1 else torch.cat(parts)
