"""Tables of jobs and nodes, for `status` and the demo's live view."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from offcut.cli.output import Sheet, fits, sentence, text
from offcut.number_format import format_count, format_duration, format_loss
from offcut.plaintext import visible

#: One colour per job, in order of submission.
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")

#: This many nodes that are left alone are named.
_SHOWN_SET_ASIDE = 5

STATE_STYLE = {
    "running": "green",
    "waiting": "yellow",
    "paused": "yellow",
    "finishing": "green",
    "finished": "bold green",
    "failed": "bold red",
    "cancelled": "red",
}


#: The columns of figures; and which of them a narrow terminal does without, the first one first.
_FIGURES = ("size", "sizes", "steps", "left", "loss", "samples/s", "redone")
_SPARED = ("redone", "sizes", "samples/s", "loss")
#: The longest reason of a job that is shown, in characters.
_LONGEST_REASON = 300


def job_table(jobs: list[dict[str, Any]]) -> Sheet:
    """Return the table of jobs. A narrow terminal gets fewer columns, so that no number is folded."""
    figures = list(_FIGURES)
    cells = [_job_cells(job) for job in jobs]
    for spared in ("", *_SPARED):
        if spared in figures:
            figures.remove(spared)
        table = Sheet("job", "state", *figures, right=tuple(figures))
        for i, (job, own) in enumerate(zip(jobs, cells, strict=True)):
            table.add_row(
                text(job["id"], COLOURS[i % len(COLOURS)]),
                text(job["state"], STATE_STYLE.get(job["state"], "")),
                *(own[figure] for figure in figures),
            )
        if fits(table):
            break
    return table


def _job_cells(job: dict[str, Any]) -> dict[str, str]:
    return {
        "size": str(job["size"]),
        "sizes": job["sizes"],
        "steps": _steps(job),
        "left": "" if job["time_left_s"] is None else format_duration(job["time_left_s"]),
        "loss": "" if job["loss"] is None else format_loss(job["loss"]),
        "samples/s": format_count(job["rate"]) if job["rate"] else "",
        # What workers did after their last report, before they died, is not known.
        "redone": f"≥ {job['steps_redone']}" if job["steps_redone"] else "",
    }


def _steps(job: dict[str, Any]) -> str:
    """Return the steps that are done, of all that there will be; nothing of a script that reports none."""
    if job["mode"] != "session":
        return ""
    if job["total_steps"] is None or job["total_steps"] == job["steps"]:
        return f"{job['steps']:,}"
    return f"{job['steps']:,} of {job['total_steps']:,}"


def job_line(job: dict[str, Any]) -> str:
    """Return the row of a job as one sentence."""
    cells = _job_cells(job)
    parts = [
        f"{job['id']} is {job['state']}, {job['size']} of {job['sizes']} nodes",
        f"step {cells['steps']}" if cells["steps"] else "",
        f"loss {cells['loss']}" if cells["loss"] else "",
        f"{cells['samples/s']} samples/s" if cells["samples/s"] else "",
        f"{cells['left']} left" if cells["left"] else "",
    ]
    return ", ".join(part for part in parts if part)


def reason_lines(jobs: list[dict[str, Any]]) -> list[Text]:
    """Return one line for each job that has failed: why."""
    found = []
    for job in jobs:
        if job["state"] == "failed":
            reason = " ".join(visible(job["reason"]).split()).removesuffix(".")
            if len(reason) > _LONGEST_REASON:
                reason = reason[: _LONGEST_REASON - 1] + "…"
            found.append(
                sentence(
                    text(job["id"], "bold"),
                    f" has failed with exit code {job['exit_code']}: {reason}. See: offcut logs {job['id']}",
                )
            )
    return found


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
    lines += [f"Idle and not claimed: {n} nodes ({why})." for why, n in cluster.get("not_claimed", {}).items()]
    lines += set_aside_lines(cluster.get("set_aside", []))
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


def set_aside_lines(nodes: list[dict[str, Any]]) -> list[str]:
    """Return a line for each of the first nodes that are left alone, and how many more there are."""
    lines = [
        f"{one['node']} is left alone for another {one['left_s']:.0f} s: {one['reason'].rstrip('.')}. "
        f"To claim it at once: offcut node forgive {one['node']}"
        for one in nodes[:_SHOWN_SET_ASIDE]
    ]
    more = len(nodes) - len(lines)
    return [*lines, f"{more} more nodes are left alone; offcut why JOB names them."] if more > 0 else lines


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
