"""Decides which of a node's accelerators each rank sees.

Normally there is one rank per accelerator, and it sees only that one, so that `cuda` is right on every rank. What the
batch system granted (`CUDA_VISIBLE_DEVICES`, which ROCm obeys too) is divided among the ranks; without that, every
NVIDIA device of the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"


def of_node(env: Mapping[str, str], dev: Path = Path("/dev")) -> tuple[str, ...]:
    """Return the node's accelerators by the names that CUDA_VISIBLE_DEVICES takes: numbers, or identifiers of parts."""
    granted = env.get(VISIBLE)
    if granted is not None:
        return tuple(name for part in granted.split(",") if (name := part.strip()))
    numbers = (path.name.removeprefix("nvidia") for path in dev.glob("nvidia*"))
    return tuple(map(str, sorted(int(number) for number in numbers if number.isdigit())))


def of_rank(devices: tuple[str, ...], local_rank: int, ranks: int) -> tuple[str, ...]:
    """Return the accelerators of one of a node's `ranks` ranks.

    Each rank gets equally many, next to each other, and none is given to two ranks, unless there are more ranks than
    accelerators: then ranks share them in turn. Accelerators that cannot be divided evenly stay unused.
    """
    if not devices:
        return ()
    each = len(devices) // ranks
    if each == 0:
        return (devices[local_rank % len(devices)],)
    return devices[local_rank * each : (local_rank + 1) * each]


def rank_env(env: Mapping[str, str], local_rank: int, ranks: int, dev: Path = Path("/dev")) -> dict[str, str]:
    """Return what to add to a rank's environment `env` so that it sees its part; nothing without accelerators."""
    devices = of_rank(of_node(env, dev), local_rank, ranks)
    return {VISIBLE: ",".join(devices)} if devices else {}
