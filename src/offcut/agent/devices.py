"""Which of a node's accelerators each rank sees.

One rank per accelerator is the rule: a rank sees its own alone, so a script says `cuda` and is right on every rank.
What the batch system granted (`CUDA_VISIBLE_DEVICES`, which ROCm obeys too) is what there is to share out; where it
says nothing, every NVIDIA device of the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"


def of_node(env: Mapping[str, str], dev: Path = Path("/dev")) -> tuple[str, ...]:
    """The node's accelerators by the names that CUDA_VISIBLE_DEVICES takes: numbers, or identifiers of parts."""
    granted = env.get(VISIBLE)
    if granted is not None:
        return tuple(name for part in granted.split(",") if (name := part.strip()))
    numbers = (path.name.removeprefix("nvidia") for path in dev.glob("nvidia*"))
    return tuple(map(str, sorted(int(number) for number in numbers if number.isdigit())))


def of_rank(devices: tuple[str, ...], local_rank: int, ranks: int) -> tuple[str, ...]:
    """The share of one of a node's `ranks` ranks.

    Equal shares side by side, and none left to two ranks, unless there are more ranks than accelerators: then they take
    turns. Accelerators that cannot be shared out evenly stay unused.
    """
    if not devices:
        return ()
    each = len(devices) // ranks
    if each == 0:
        return (devices[local_rank % len(devices)],)
    return devices[local_rank * each : (local_rank + 1) * each]


def rank_env(env: Mapping[str, str], local_rank: int, ranks: int, dev: Path = Path("/dev")) -> dict[str, str]:
    """What to add to a rank's environment `env` so that it sees its share; nothing on a node without accelerators."""
    devices = of_rank(of_node(env, dev), local_rank, ranks)
    return {VISIBLE: ",".join(devices)} if devices else {}
