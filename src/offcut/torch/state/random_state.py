"""The states of the random generators on the CPU, as values that can go to other members."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch


def random_state(generators: Sequence[torch.Generator] = ()) -> dict[str, Any]:
    """Return the states of torch's, Python's and numpy's generators.

    Args:
        generators: further generators of torch.
    """
    version, words, gauss = random.getstate()
    kind, numbers, position, has_gauss, cached = np.random.get_state()
    return {
        "torch": torch.default_generator.get_state(),
        "python": [version, torch.tensor(words, device="cpu"), gauss],
        "numpy": [str(kind), torch.from_numpy(np.asarray(numbers, dtype=np.int64)), position, has_gauss, cached],
        "generators": [generator.get_state() for generator in generators],
    }


def set_random_state(state: dict[str, Any], generators: Sequence[torch.Generator] = ()) -> None:
    """Set the generators to a state that `random_state` returned.

    Args:
        state: the states.
        generators: the further generators, in the same order.
    """
    torch.default_generator.set_state(state["torch"].cpu())
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    kind, numbers, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, numbers.numpy().astype(np.uint32), position, has_gauss, cached))
    for generator, saved in zip(generators, state["generators"], strict=True):
        generator.set_state(saved.cpu())
