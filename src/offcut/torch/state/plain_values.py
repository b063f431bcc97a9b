"""Defines what can go to another member or into a checkpoint: tensors, plain values, and containers of them.

Other objects would have to be unpickled there, which can run any code. A subclass of a plain type (an IntEnum, a
defaultdict) would come back as something else or not at all, so the type has to be the plain one itself. Scalars of
numpy that are the same numbers in Python are converted.
"""

from __future__ import annotations

import io
from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import torch

from offcut.errors import InputError

_LEAVES = (torch.Tensor, torch.nn.Parameter, torch.dtype, torch.device, torch.Size)
_PLAIN = {str, bytes, int, float, complex, bool, type(None), *_LEAVES}
#: Python's own numbers do the same arithmetic as these. A float32's would differ.
_SAME = (np.bool_, np.integer, np.float64, np.complex128, np.str_, np.bytes_)


def plain(tree: Any, where: str) -> Any:
    """Return a copy of the containers in `tree`, with plain values for numpy's.

    InputError if something else is in it.
    """
    kind = type(tree)
    if kind in _PLAIN:
        return tree
    if kind is dict:
        return {plain(key, where): plain(value, f"{where}[{key!r}]") for key, value in tree.items()}
    if kind in (OrderedDict, Counter):  # which modules and schedulers have, and torch.load takes
        copy = tree.copy()  # with the attributes that modules give to theirs
        for key, value in tree.items():
            copy[key] = plain(value, f"{where}[{key!r}]")
        return copy
    if kind in (list, tuple, set):
        return kind(plain(value, f"{where}[{i}]") for i, value in enumerate(tree))
    if isinstance(tree, _SAME):
        return tree.item()
    raise InputError(
        f"offcut.torch: {where} is of the type {kind.__module__}.{kind.__qualname__}, which can go neither to other "
        "members nor into a checkpoint.",
        next_step="Let state_dict() return tensors, numbers, strings, and lists, tuples and dicts of them (arrays as "
        "tensors, enums by their value, numpy.float32 as float).",
    )


def read_back(written: bytes) -> Any:
    """Return what torch.load reads from `written` if it accepts only plain values. InputError if it refuses."""
    try:
        return torch.load(io.BytesIO(written), weights_only=True, map_location="cpu")
    except Exception as error:  # errors of many types
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"offcut.torch: the state cannot be read back from a checkpoint ({reason}).",
            next_step="Let every state_dict() return tensors, numbers, strings, and lists, tuples and dicts of them.",
        ) from None
