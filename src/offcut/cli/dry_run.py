"""`offcut up --cluster slurm --dry-run`: what would be claimed, and why."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from offcut.cli.output import Sheet, line, print_json, print_table, text
from offcut.cluster.slurm import idle_nodes, modes, pilot_script
from offcut.cluster.slurm.claim_choice import against_claims
from offcut.cluster.slurm.commands import Commands, check_installed
from offcut.cluster.slurm.decision import Decider, LookInput
from offcut.cluster.slurm.hazards import hazards
from offcut.cluster.slurm.queue_query import QueueQuery
from offcut.cluster.slurm.site import SlurmSite
from offcut.cluster.slurm.site_rules import SiteRulesFile
from offcut.number_format import format_duration


async def show(site: SlurmSite, shared: Path, *, json: bool) -> None:
    """Look at the queue once, and print what would be claimed. Nothing is submitted."""
    check_installed()
    query = QueueQuery(Commands(site.command_limit_s), site, pilot_script.pilot_name(shared))
    setup = await query.setup()
    site = modes.fit(site, setup)
    rules = SiteRulesFile.locate()
    await rules.open()
    view = await query.snapshot()
    given = LookInput(pilots={}, rules=rules.rules, now=datetime.now())
    decision = Decider(site, query.user, pilot_script.pilot_name(shared), setup).decide(view, given)
    found = decision.idle
    limit = against_claims(site, rules.rules, given.now) or "a cap, or the share of another controller"
    chosen = {candidate.node for candidate in decision.chosen}
    if json:
        print_json([{**asdict(candidate), "claim": candidate.node in chosen} for candidate in found])
        return
    title = f"{len(view.nodes)} nodes in {site.partition}, {len(found)} idle, {len(chosen)} to claim"
    print_candidates(found, chosen, title, limit)
    for fact in hazards(setup, site):
        line(f"Note: {fact.found}. {fact.next_step}".strip())


def print_candidates(
    found: Sequence[idle_nodes.Candidate], chosen: Collection[str], title: str, limit: str = "a cap of the site's file"
) -> None:
    """Print the idle nodes; `limit` is why a safe one is not claimed."""
    table = Sheet("node", "claim", "time limit", "why", title=title)
    for candidate in found:
        claims = candidate.node in chosen
        why = candidate.why if claims or not candidate.safe else f"{candidate.why}; {limit}"
        time_limit = format_duration(candidate.limit_s) if claims else ""
        table.add_row(candidate.node, text("yes", "green") if claims else "no", time_limit, why)
    print_table(table)
