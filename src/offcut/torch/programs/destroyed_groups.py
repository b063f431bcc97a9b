"""Process groups that a model outlives are kept until the process ends, or forms its next group.

The destructor of a gloo process group waits for the group's threads, and such a thread may need the interpreter's lock,
to release a tensor. `DistributedDataParallel` holds a reference to its group. If it is the last one, because the model
outlives `destroy_process_group()`, the destructor runs with the lock held, and now and then the rank never ends:
https://github.com/pytorch/pytorch/issues/56297. A process that ends by `os._exit` needs no destructor.
"""

from __future__ import annotations

import functools
import gc
import importlib
from types import ModuleType
from typing import Any

_kept: list[Any] = []


def keep_destroyed_groups() -> None:
    """Have `torch.distributed` keep the groups of the models that there are when it destroys groups."""
    implementation = importlib.import_module("torch.distributed.distributed_c10d")
    parallel = importlib.import_module("torch.nn.parallel").DistributedDataParallel
    destroy, init = implementation.destroy_process_group, implementation.init_process_group

    @functools.wraps(destroy)
    def destroy_process_group(*arguments: Any, **options: Any) -> None:
        _kept.extend(model.process_group for model in gc.get_objects() if issubclass(type(model), parallel))
        destroy(*arguments, **options)

    @functools.wraps(init)
    def init_process_group(*arguments: Any, **options: Any) -> None:
        # The next group may not meet at the store of the last one, where that one's addresses are.
        gc.collect()
        _kept.clear()
        init(*arguments, **options)

    modules: tuple[ModuleType, ...] = implementation, importlib.import_module("torch.distributed")
    for module in modules:
        module.destroy_process_group = destroy_process_group  # type: ignore[attr-defined]
        module.init_process_group = init_process_group  # type: ignore[attr-defined]
