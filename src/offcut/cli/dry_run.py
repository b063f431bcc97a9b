"""`offcut up --cluster slurm --dry-run`: what would be claimed, and why."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path

from offcut.cli.number_format import format_duration
from offcut.cli.output import Sheet, print_json, print_table, text
from offcut.cluster.slurm import idle_nodes, limits, modes, pilots
from offcut.cluster.slurm.commands import Commands, check_installed
from offcut.cluster.slurm.queue_query import QueueQuery
from offcut.cluster.slurm.site import SlurmSite


async def show(site: SlurmSite, shared: Path, *, json: bool) -> None:
    """One look at the queue, and nothing submitted."""
    check_installed()
    query = QueueQuery(Commands(site.command_limit_s), site, pilots.pilot_name(shared))
    site = modes.fit(site, await query.setup())
    view = await query.snapshot()
    found = idle_nodes.candidates(view, site)
    most = limits.most_nodes(len(found), 0, site.max_nodes, site.max_share)
    chosen = {candidate.node for candidate in idle_nodes.choose(found, (), min(most, site.max_submissions_per_minute))}
    if json:
        print_json([{**asdict(candidate), "claim": candidate.node in chosen} for candidate in found])
        return
    print_candidates(
        found, chosen, f"{len(view.nodes)} nodes in {site.partition}, {len(found)} idle, {len(chosen)} to claim"
    )


def print_candidates(found: Sequence[idle_nodes.Candidate], chosen: Collection[str], title: str) -> None:
    table = Sheet("node", "claim", "time limit", "why", title=title)
    for candidate in found:
        claims = candidate.node in chosen
        why = candidate.why if claims or not candidate.safe else f"{candidate.why}; a cap of the site's file"
        limit = format_duration(candidate.limit_s) if claims else ""
        table.add_row(candidate.node, text("yes", "green") if claims else "no", limit, why)
    print_table(table)
