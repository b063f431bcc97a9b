"""Judges which idle nodes are safe to claim, until when, and why. Pure.

An idle node is safe unless it is known to be wanted soon (a waiting job is planned on it, or it is reserved) or its
state forbids it. A known end of its window limits the pilot's time; an unknown end stays unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from offcut.cluster.slurm.records import View, expand
from offcut.cluster.slurm.site import SlurmSite

#: Flags of an idle node that do not matter. PLANNED matters or not by its time.
_HARMLESS = frozenset({"PLANNED", "DYNAMIC_NORM"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An idle node: whether it is safe, and in a few words why. `limit_s` is the time limit that a pilot would get."""

    node: str
    safe: bool
    why: str
    until_s: float | None = None
    limit_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Claim:
    """Something will want the node at `at_s`."""

    at_s: float
    who: str


def candidates(view: View, site: SlurmSite) -> list[Candidate]:
    """Return every idle node of the partition, safe or not, in Slurm's order."""
    claims = _claims(view)
    only, never = frozenset(expand(site.nodes)), frozenset(expand(site.exclude))
    found = []
    for row in view.nodes.values():
        if row.state != "idle":
            continue
        against = ""
        if harmful := sorted(row.flags - _HARMLESS):
            against = f"its state is idle+{'+'.join(harmful)}"
        elif (only and row.name not in only) or row.name in never:
            against = "the site's file excludes it"
        elif not view.partition.up:
            against = f"the partition {view.partition.name} is not up"
        elif "PLANNED" in row.flags and row.name not in claims:
            against = "planned for a job at an unknown time"
        if against:
            found.append(Candidate(node=row.name, safe=False, why=against))
        else:
            found.append(_weigh(row.name, claims.get(row.name), view, site))
    return found


def idle_names(view: View) -> list[str]:
    """Return the idle nodes that a job could start on, in Slurm's order."""
    return [row.name for row in view.nodes.values() if row.state == "idle" and not row.flags - _HARMLESS]


def _weigh(node: str, claim: _Claim | None, view: View, site: SlurmSite) -> Candidate:
    most_s = min(site.longest, view.partition.max_time_s or math.inf)
    until_s = None if claim is None else claim.at_s
    if until_s is not None:
        most_s = min(most_s, until_s - site.margin_s - view.time_s)
    # Slurm counts in whole minutes, rounding up.
    limit_s = 60.0 * math.floor(most_s / 60.0)
    if limit_s < site.least_hole_s and until_s is not None and claim is not None:
        left_s = max(0.0, until_s - view.time_s)
        return Candidate(node=node, safe=False, why=f"{claim.who} wants it in {left_s:.0f} s", until_s=until_s)
    if limit_s < 60.0:
        return Candidate(node=node, safe=False, why=f"the partition allows {most_s:.0f} s only", until_s=until_s)
    why = "idle, nothing is planned on it" if claim is None else f"idle until {claim.who}"
    return Candidate(node=node, safe=True, why=why, until_s=until_s, limit_s=limit_s)


def _claims(view: View) -> dict[str, _Claim]:
    """Return for each node the first time at which it is known to be wanted, and by what."""
    claims: dict[str, _Claim] = {}

    def note(nodes: Iterable[str], at_s: float, who: str) -> None:
        for node in nodes:
            known = claims.get(node)
            if known is None or at_s < known.at_s:
                claims[node] = _Claim(at_s, who)

    for job in view.waiting:
        if job.scheduled and job.start_s is not None:
            note(expand(job.scheduled), job.start_s, f"job {job.id}")
    for reservation in view.reservations:
        if reservation.end_s > view.time_s:
            note(expand(reservation.nodes), reservation.start_s, f"reservation {reservation.name}")
    return claims


def choose(found: Iterable[Candidate], offered: Iterable[str], room: int) -> list[Candidate]:
    """Choose at most `room` safe nodes: offered ones first, then those that last longest (unknown end: the site's
    limit).
    """
    before = frozenset(offered)
    safe = [candidate for candidate in found if candidate.safe]
    safe.sort(key=lambda candidate: (candidate.node not in before, -candidate.limit_s))
    return safe[: max(0, room)]
