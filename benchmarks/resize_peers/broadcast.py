"""A bare gloo broadcast of a training's state, from one of `world` processes to the others."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def _member(rank: int, world: int, size_bytes: int, turns: int, address: str, out: Any) -> None:
    torch.set_num_threads(1)
    host, _, port = address.rpartition(":")
    dist.init_process_group("gloo", store=dist.TCPStore(host, int(port), is_master=False), rank=rank, world_size=world)
    tensor = torch.zeros(size_bytes // 4)
    taken = []
    for _ in range(turns):
        dist.barrier()
        began_s = time.monotonic()
        dist.broadcast(tensor, 0)
        dist.barrier()
        taken.append(time.monotonic() - began_s)
    if rank == 0:
        out.put(taken)
        out.close()
        out.join_thread()
    dist.barrier()
    os._exit(0)


def measure(size_bytes: int, world: int, turns: int = 5) -> list[float]:
    """Milliseconds of each turn; the first warms up and is left out."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = mp.get_context("fork")
    out = context.Queue()
    members = [
        context.Process(target=_member, args=(r, world, size_bytes, turns + 1, f"127.0.0.1:{store.port}", out))
        for r in range(world)
    ]
    for member in members:
        member.start()
    taken = out.get(timeout=300)
    for member in members:
        member.join()
    return [1000 * value for value in taken[1:]]
