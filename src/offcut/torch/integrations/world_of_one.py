"""Lets transformers and accelerate train as if there were one process, of which each member is one.

Both decide by environment variables whether torchrun has started them, and would then form a process group of their
own, which ends when a member dies.
"""

from __future__ import annotations

import os

from offcut.wire.worker_env import ENV_AGENT

#: What tells accelerate that there are other processes. A worker's accelerators are chosen by CUDA_VISIBLE_DEVICES.
_OF_OTHER_LAUNCHERS = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "PMI_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_SIZE",
)


def in_job() -> bool:
    """Return whether this process is a worker of a job of mode `session`. Otherwise the frameworks stay as they are."""
    return bool(os.environ.get(ENV_AGENT))


def hide_launcher() -> None:
    """Remove the variables by which a worker of a job would be taken for a process of torchrun or MPI."""
    if in_job():
        for name in _OF_OTHER_LAUNCHERS:
            os.environ.pop(name, None)


def set_process_index(rank: int) -> None:
    """Tell accelerate, and with it transformers, which member this is: they print and save on the first one.

    The number of processes stays 1.

    Args:
        rank: this member's number in the current generation.
    """
    from accelerate.state import AcceleratorState, PartialState

    for shared in (PartialState._shared_state, AcceleratorState._shared_state):
        for name in ("process_index", "local_process_index"):
            if name in shared:
                shared[name] = rank
