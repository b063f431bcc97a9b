"""Naming what differs between members that should be the same."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence

import torch

from offcut.errors import OffcutError
from offcut.torch.membership.process_group import Group

#: This many differing things are named; the others are counted.
_NAMED = 3


def difference(group: Group, what: str, mine: dict[str, str], next_step: str = "") -> OffcutError:
    """Return an error that names the things in which the members differ; all members call this at once.

    Args:
        group: the members.
        what: the beginning of the error's sentence.
        mine: this member's values, by name.
        next_step: what the user should do.

    Raises:
        Abandoned: the generation broke.
    """
    return error_naming(what, compare(dict(enumerate(exchange(group, mine)))), next_step)


def error_naming(what: str, found: Sequence[str], next_step: str) -> OffcutError:
    """Return an error that begins with `what` and names the first of the differences `found`."""
    told = "; ".join(found[:_NAMED]) + (f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
    return OffcutError(f"{what}: {told or 'nothing that they can name'}.", next_step=next_step)


def exchange(group: Group, mine: dict[str, str]) -> list[dict[str, str]]:
    """Return the values of all members, by rank."""
    data = zlib.compress(json.dumps(mine).encode())
    lengths = [row[0] for row in group.gather([len(data)])]
    words = -(-max(lengths) // 8)
    padded = bytearray(data.ljust(8 * words, b"\0"))
    rows = group.gather(torch.frombuffer(padded, dtype=torch.int64).tolist())
    return [
        json.loads(zlib.decompress(torch.tensor(row, dtype=torch.int64, device="cpu").numpy().tobytes()[:length]))
        for row, length in zip(rows, lengths, strict=True)
    ]


def compare(tables: Mapping[int, dict[str, str]]) -> list[str]:
    """Return the names whose values are not the same in all tables, which are by rank, with which ranks have what."""
    names = dict.fromkeys(name for table in tables.values() for name in table)
    told = []
    for name in names:
        ranks: dict[str | None, list[int]] = {}
        for rank, table in tables.items():
            ranks.setdefault(table.get(name), []).append(rank)
        if len(ranks) > 1:
            told.append(f"{name} ({', '.join(_holders(value, holders) for value, holders in ranks.items())})")
    return told


def _holders(value: str | None, ranks: list[int]) -> str:
    who = f"rank{'s' * (len(ranks) > 1)} {' and '.join(map(str, ranks))}"
    return f"{who}: {'not there' if value is None else value}"
