"""Tables of jobs and nodes, for `status` and the demo's live view."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from offcut.cli.shared import count

#: One colour per job, in order of submission.
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")

STATE_STYLE = {
    "running": "green",
    "waiting": "yellow",
    "paused": "yellow",
    "finishing": "green",
    "finished": "bold green",
    "failed": "bold red",
    "cancelled": "red",
}


def job_table(jobs: list[dict[str, Any]]) -> Table:
    table = Table(title=None, expand=False)
    for heading in ("job", "state", "size", "sizes", "steps", "loss", "samples/s", "redone"):
        table.add_column(heading, justify="left" if heading in ("job", "state") else "right")
    for i, job in enumerate(jobs):
        table.add_row(
            Text(job["id"], style=COLOURS[i % len(COLOURS)]),
            Text(job["state"], style=STATE_STYLE.get(job["state"], "")),
            str(job["size"]),
            job["sizes"],
            # A script of mode `restart` reports none.
            f"{job['steps']:,}" if job["mode"] == "session" else "",
            "" if job["loss"] is None else f"{job['loss']:.4f}",
            count(job["rate"]) if job["rate"] else "",
            str(job["steps_redone"]) if job["steps_redone"] else "",
        )
    return table


def node_table(nodes: list[dict[str, Any]]) -> Table:
    table = Table()
    for heading in ("node", "phase", "job", "worker"):
        table.add_column(heading)
    for node in nodes:
        table.add_row(node["name"], node["phase"], node["job"] or "", node["worker"] if node["job"] else "")
    return table


def cluster_lines(cluster: dict[str, Any]) -> list[str]:
    """What the batch system has to say: nothing for virtual nodes."""
    if cluster["kind"] != "slurm":
        return []
    lines = [
        f"Slurm, partition {cluster['partition']}, mode {cluster['mode']}: {cluster['held']} nodes held, "
        f"{cluster['pending']} claims pending, {cluster['offered']} more nodes idle and safe to take."
    ]
    if cluster["trouble"]:
        lines.append(
            f"[yellow]Slurm does not answer: {escape(cluster['trouble'])} It is asked less often until it does.[/]"
        )
    if cluster["paused"]:
        lines.append(f"[yellow]Claiming pauses: {escape(cluster['paused'])}[/]")
    if cluster["quiet"]:
        lines.append("Quiet hours: nothing is held.")
    return lines


def task_lines(tasks: list[dict[str, Any]]) -> list[str]:
    """The controller's background tasks that have failed lately."""
    return [
        f"The controller's task '{task['name']}' has failed {task['failures']} times (the last: "
        + f"{task['last_error']}); "
        + ("it runs again." if task["state"] == "running" else "it is started again in a moment.")
        for task in tasks
        if not task["well"]
    ]
