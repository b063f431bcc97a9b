"""Tables of jobs and nodes, for `status` and the demo's live view."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from offcut.cli.number_format import format_count
from offcut.cli.output import Sheet, text

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


def job_table(jobs: list[dict[str, Any]]) -> Sheet:
    figures = ("size", "sizes", "steps", "loss", "samples/s", "redone")
    table = Sheet("job", "state", *figures, right=figures)
    for i, job in enumerate(jobs):
        table.add_row(
            text(job["id"], COLOURS[i % len(COLOURS)]),
            text(job["state"], STATE_STYLE.get(job["state"], "")),
            str(job["size"]),
            job["sizes"],
            # A script of mode `restart` reports none.
            f"{job['steps']:,}" if job["mode"] == "session" else "",
            "" if job["loss"] is None else f"{job['loss']:.4f}",
            format_count(job["rate"]) if job["rate"] else "",
            # What workers did after their last report, before they died, is not known.
            f"≥ {job['steps_redone']}" if job["steps_redone"] else "",
        )
    return table


def node_table(nodes: list[dict[str, Any]]) -> Sheet:
    table = Sheet("node", "phase", "job", "worker")
    for node in nodes:
        table.add_row(node["name"], node["phase"], node["job"] or "", node["worker"] if node["job"] else "")
    return table


def cluster_lines(cluster: dict[str, Any]) -> list[str | Text]:
    """Return the state of the batch system as lines; none for virtual nodes."""
    if cluster["kind"] != "slurm":
        return []
    lines: list[str | Text] = [
        f"Slurm, partition {cluster['partition']}, mode {cluster['mode']}: {cluster['held']} nodes held, "
        f"{cluster['pending']} claims pending, {cluster['offered']} more nodes idle and safe to take. "
        f"Its pilots are called {cluster['name']}."
    ]
    if cluster["trouble"]:
        lines.append(
            text(f"Slurm does not answer: {cluster['trouble']} It is asked less often until it does.", "yellow")
        )
    lines += [f"Note: {warning}" for warning in cluster.get("warnings", ())]
    if unreadable := cluster.get("unreadable_jobs"):
        lines.append(text(f"{unreadable} jobs of Slurm's JSON cannot be read: try reading = 'text'.", "yellow"))
    if cluster["paused"]:
        lines.append(text(f"Claiming pauses: {cluster['paused']}", "yellow"))
    if cluster["against"]:
        lines.append(text(f"No node is held: {cluster['against']}.", "yellow"))
    if cluster["site_file"]:
        lines.append(f"The site's rules are in {cluster['site_file']}.")
    if cluster["site_trouble"]:
        lines.append(text(f"{cluster['site_trouble']}. The rules that were read last hold.", "yellow"))
    lines += share_lines(cluster)
    return lines


def share_lines(cluster: dict[str, Any]) -> list[str]:
    """Return what the controllers of other users leave this one; nothing where it is alone and no cap holds."""
    lines = []
    if cluster["share"] is not None and (cluster["controllers"] > 1 or cluster["share"] < cluster["shared"]):
        asks = f"; it asks for {cluster['asks_for']} more" if cluster["asks_for"] else ""
        lines.append(
            f"{cluster['controllers']} controllers share {cluster['shared']} nodes: "
            f"this one may hold {cluster['share']}{asks}. It looks each {cluster['interval_s']:g} s."
        )
    if cluster["request_refused"]:
        lines.append(f"Slurm refuses the job by which nodes are asked of others: {cluster['request_refused']}")
    return lines


def task_lines(tasks: list[dict[str, Any]]) -> list[str]:
    """Return lines about the controller's background tasks that failed recently."""
    return [
        f"The controller's task '{task['name']}' has failed {task['failures']} times (the last: "
        + f"{task['last_error']}); "
        + ("it runs again." if task["state"] == "running" else "it is started again in a moment.")
        for task in tasks
        if not task["well"]
    ]
