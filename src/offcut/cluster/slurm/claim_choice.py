"""Chooses which idle nodes to claim now, and which held ones are too many: for the adapter and the dry run. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from offcut.cluster.slurm import limits
from offcut.cluster.slurm.idle_nodes import Candidate, choose
from offcut.cluster.slurm.site import SlurmSite


@dataclass(frozen=True, slots=True)
class ClaimChoice:
    #: How many nodes may be held in all.
    most: int
    #: Those to claim now.
    chosen: list[Candidate]
    #: The limit of the site's file that forbids more; empty if none does.
    limit: str


def is_quiet(site: SlurmSite, now: datetime) -> bool:
    """Return whether the site's file wants no node held at this local time."""
    return any(limits.QuietHours.parse(text).hold(now) for text in site.quiet)


def choose_claims(
    found: Sequence[Candidate],
    site: SlurmSite,
    now: datetime,
    *,
    held: int = 0,
    offered: Collection[str] = (),
    avoided: Collection[str] = (),
    submissions: int | None = None,
) -> ClaimChoice:
    """Return which of the idle nodes to claim.

    Args:
        found: The idle nodes that we do not hold, safe or not.
        site: The site's file: quiet hours, and limits on how much is held and submitted.
        now: The local time.
        held: How many nodes are held already.
        offered: Nodes that were chosen before; they are chosen first.
        avoided: Nodes that are not claimed for a while.
        submissions: How many pilots may be submitted now; by default as many as in a minute in which none was.
    """
    quiet = is_quiet(site, now)
    most = 0 if quiet else limits.most_nodes(len(found), held, site.max_nodes, site.max_share)
    room = min(most - held, site.max_submissions_per_minute if submissions is None else submissions)
    chosen = choose([candidate for candidate in found if candidate.node not in avoided], offered, room)
    return ClaimChoice(most, chosen, "quiet hours" if quiet else "a cap of the site's file")


def choose_surplus(leave: Collection[str], submitted_s: Mapping[str, float], choice: ClaimChoice) -> dict[str, str]:
    """Return which held nodes to release because too many are held, and why.

    Args:
        leave: Held nodes that are released for other reasons.
        submitted_s: The held nodes, and when each one's pilot was submitted.
        choice: How many nodes may be held now.
    """
    surplus = max(0, len(submitted_s) - len(leave) - choice.most)
    # The newest first: they have the least to lose.
    newest = sorted((node for node in submitted_s if node not in leave), key=lambda node: -submitted_s[node])
    return dict.fromkeys(newest[:surplus], choice.limit)
