"""Process groups that a script has destroyed live until its process ends.

The destructor of a gloo process group waits for the group's threads, and such a thread may need the interpreter's lock,
to release a tensor. `DistributedDataParallel` holds a reference to its group. If it is the last one, because the model
outlives `destroy_process_group()`, the destructor runs with the lock held, and now and then the rank never ends:
https://github.com/pytorch/pytorch/issues/56297. A process that ends by `os._exit` needs no destructor.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

_destroyed: list[Any] = []


def keep_destroyed_groups() -> None:
    """Have `torch.distributed.destroy_process_group` keep a reference to every group that there is."""
    implementation = importlib.import_module("torch.distributed.distributed_c10d")
    destroy = implementation.destroy_process_group

    @functools.wraps(destroy)
    def destroy_process_group(group: Any = None) -> None:
        _destroyed.extend(implementation._world.pg_map)
        destroy(group)

    for module in (implementation, importlib.import_module("torch.distributed")):
        module.destroy_process_group = destroy_process_group  # type: ignore[attr-defined]
