"""A random order of many samples that takes no memory: each place in it is computed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

Numbers = npt.NDArray[np.uint64]
_ROUNDS = 6
#: The constants of the generator splitmix64.
_ADD, _MIX = np.uint64(0x9E3779B97F4A7C15), (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class KeyedPermutation:
    """A permutation of 0 to `length` - 1, drawn by `key`: a Feistel network over the next larger power of 4.

    Where the network leads out of the range it is applied again (cycle walking), less than four times on average.

    Args:
        length: how many numbers are permuted.
        key: which permutation, from 0 to 2**64 - 1.
    """

    def __init__(self, length: int, key: int) -> None:
        self._length = length
        self._half_bits = np.uint64(max(1, (max(1, length - 1).bit_length() + 1) // 2))
        self._mask = np.uint64((1 << int(self._half_bits)) - 1)
        with np.errstate(over="ignore"):
            self._keys = _mixed(np.uint64(key) + np.arange(1, _ROUNDS + 1, dtype=np.uint64) * _ADD)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, places: slice) -> torch.Tensor:
        """Return what is at these places: int64, shape [n]."""
        found = self._once(np.arange(*places.indices(self._length), dtype=np.uint64))
        while len(outside := np.flatnonzero(found >= self._length)):
            found[outside] = self._once(found[outside])
        return torch.from_numpy(found.astype(np.int64))

    def _once(self, numbers: Numbers) -> Numbers:
        left, right = numbers >> self._half_bits, numbers & self._mask
        for key in self._keys:
            left, right = right, left ^ (_mixed(right ^ key) & self._mask)
        return (left << self._half_bits) | right


def _mixed(numbers: Numbers) -> Numbers:
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _MIX[0]
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _MIX[1]
    mixed: Numbers = numbers ^ (numbers >> np.uint64(31))
    return mixed
