"""Finds nodes that lack the features or generic resources of pilots, and what tells nodes from each other. Pure."""

from __future__ import annotations

import re

from offcut.cluster.slurm.records import NodeSetup
from offcut.cluster.slurm.site import SlurmSite
from offcut.cluster.slurm.slurm_config import SlurmSetup

_FACTORS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def unfit_nodes(setup: SlurmSetup, site: SlurmSite) -> dict[str, str]:
    """Return the nodes that lack what the site's file asks for (`constraint`, `gres`), and what each lacks.

    A constraint that is not a plain list of features joined by `&`, or by `|`, is left to Slurm, which refuses a pilot.
    """
    wanted = [_parsed(part) for part in site.gres.split(",") if part]
    found = {}
    for name, node in setup.nodes.items():
        if not _has_features(node, site.constraint):
            found[name] = f"it lacks the features '{site.constraint}'"
        elif any(_count(node, *kind) < count for *kind, count in wanted):
            found[name] = f"it has not '{site.gres}', but {node.gres or 'no generic resource'}"
    return found


def node_kinds(setup: SlurmSetup) -> dict[str, object]:
    """Return for each node what tells it from others: its features and generic resources."""
    return {name: (node.features, re.sub(r"\([^)]*\)", "", node.gres)) for name, node in setup.nodes.items()}


def _has_features(node: NodeSetup, constraint: str) -> bool:
    if not re.fullmatch(r"[\w.:=-]+(&[\w.:=-]+)*|[\w.:=-]+(\|[\w.:=-]+)*", constraint):
        return True
    asked = re.split(r"[&|]", constraint)
    return (any if "|" in constraint else all)(feature in node.features for feature in asked)


def _parsed(part: str) -> tuple[str, str, int]:
    """Return name, type (empty for any) and count of `gpu`, `gpu:4`, `gpu:a100`, `gpu:a100:4` or `gpu:4(S:0-1)`."""
    name, *rest = re.sub(r"\(.*", "", part).split(":")
    number = re.fullmatch(r"(\d+)([KMG]?)", rest[-1]) if rest else None
    count = int(number[1]) * _FACTORS[number[2]] if number else 1
    kind = rest[0] if rest and (len(rest) > 1 or number is None) else ""
    return name, kind, count


def _count(node: NodeSetup, name: str, kind: str) -> int:
    parts = re.split(r",(?![^(]*\))", node.gres)
    has = [_parsed(part) for part in parts if part]
    return sum(count for of, of_kind, count in has if of == name and kind in ("", of_kind))
