"""Chooses which idle nodes to claim now, and which held ones are too many: for the adapter and the dry run. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from offcut.cluster.slurm import limits
from offcut.cluster.slurm.idle_nodes import Candidate, choose
from offcut.cluster.slurm.shares import ShareDecision
from offcut.cluster.slurm.site import SlurmSite
from offcut.cluster.slurm.site_rules import SiteRules

_NO_RULES = SiteRules()


@dataclass(frozen=True, slots=True)
class ClaimChoice:
    #: How many nodes may be held in all.
    most: int
    #: Those to claim now.
    chosen: list[Candidate]
    #: What forbids more.
    limit: str
    #: How many to release because others have a share of them.
    release: int = 0


def against_claims(site: SlurmSite, rules: SiteRules, now: datetime) -> str:
    """Return why no node may be held at this local time: the site's rules, or our own file; empty if nodes may be."""
    own = any(limits.QuietHours.parse(text).hold(now) for text in site.quiet)
    return rules.against_claims(now) or ("quiet hours" if own else "")


def choose_claims(
    found: Sequence[Candidate],
    site: SlurmSite,
    now: datetime,
    *,
    rules: SiteRules = _NO_RULES,
    share: ShareDecision | None = None,
    held: int = 0,
    theirs: int = 0,
    offered: Collection[str] = (),
    avoided: Collection[str] = (),
    submissions: int | None = None,
) -> ClaimChoice:
    """Return which of the idle nodes to claim.

    Args:
        found: The idle nodes that we do not hold, safe or not.
        site: The site's file: quiet hours, and limits on how much is held and submitted.
        now: The local time.
        rules: What the administrators allow all controllers.
        share: What other controllers leave us. It limits what is claimed at once, and releases nodes slowly.
        held: How many nodes are held already.
        theirs: How many nodes the pilots of other controllers have.
        offered: Nodes that were chosen before; they are chosen first.
        avoided: Nodes that are not claimed for a while.
        submissions: How many pilots may be submitted now; by default as many as in a minute in which none was.
    """
    against = against_claims(site, rules, now)
    # What others have of the idle nodes counts for the share: otherwise ours would shrink as theirs grows.
    most = 0 if against else limits.most_nodes(len(found) + theirs, held, site.max_nodes, site.max_share)
    limit = against or "a cap of the site's file"
    room = min(most - held, site.max_submissions_per_minute if submissions is None else submissions)
    if share is not None:
        room = min(room, share.room)
    chosen = choose([candidate for candidate in found if candidate.node not in avoided], offered, room)
    return ClaimChoice(most, chosen, limit, 0 if share is None else share.release)


def choose_surplus(leave: Collection[str], submitted_s: Mapping[str, float], choice: ClaimChoice) -> dict[str, str]:
    """Return which held nodes to release because too many are held, and why.

    Args:
        leave: Held nodes that are released for other reasons.
        submitted_s: The held nodes, and when each one's pilot was submitted.
        choice: How many nodes may be held now.
    """
    # The newest first: they have the least to lose.
    newest = sorted((node for node in submitted_s if node not in leave), key=lambda node: -submitted_s[node])
    surplus = max(0, len(newest) - choice.most)
    others = dict.fromkeys(newest[: choice.release], "it is more than this controller's share of the nodes")
    return others | dict.fromkeys(newest[:surplus], choice.limit)
