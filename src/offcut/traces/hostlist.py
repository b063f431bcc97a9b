"""Slurm's host lists: `b[002-003,7],login1` is b002, b003, b7, login1."""

from __future__ import annotations

import re
from itertools import product

from offcut.errors import InputError

_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_MAX_HOSTS = 1_000_000


def expand_hosts(text: str) -> tuple[str, ...]:
    """Return the hosts of a Slurm host list.

    Args:
        text: the list, such as `b[002-003,7],login1`.

    Returns:
        The names, in the list's order.

    Raises:
        InputError: the text is not a host list.
    """
    hosts: list[str] = []
    for name in _split(text):
        choices = [
            [part[2]] if part[1] is None else [n for piece in part[1].split(",") for n in _numbers(piece, text)]
            for part in _PART.finditer(name)
        ]
        hosts += ["".join(pieces) for pieces in product(*choices)]
    return tuple(hosts)


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    names, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            break
        if char == "," and depth == 0:
            names.append(text[start:i])
            start = i + 1
    names.append(text[start:])
    if depth or not all(names):
        raise InputError(f"host list '{text[:60]}' cannot be read.", next_step="Write for example 'n[001-004],login1'.")
    return names


def _numbers(piece: str, text: str) -> list[str]:
    low, dash, high = piece.partition("-")
    high = high if dash else low
    if not (low.isdigit() and high.isdigit()) or not 0 <= int(high) - int(low) < _MAX_HOSTS:
        raise InputError(
            f"host list '{text[:60]}': '{piece[:20]}' is not a range.", next_step="Write for example '001-4'."
        )
    return [str(n).zfill(len(low)) for n in range(int(low), int(high) + 1)]
