"""What is seen while the demo runs: nodes by state and owner, jobs, the last resizes."""

from __future__ import annotations

from typing import Any

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.text import Text

from offcut.cli.tables import COLOURS, job_table


def screen(status: dict[str, Any], names: list[str], elapsed_s: float, duration_s: float) -> RenderableType:
    """One picture of the running demo."""
    return Group(
        Text(f"offcut demo, {elapsed_s:.0f} of {duration_s:.0f} s", style="bold"),
        ProgressBar(total=duration_s, completed=min(elapsed_s, duration_s), width=60),
        _grid(status, names),
        job_table(status["jobs"]),
        _resizes(status),
    )


def _grid(status: dict[str, Any], names: list[str]) -> RenderableType:
    owners = {job["id"]: COLOURS[i % len(COLOURS)] for i, job in enumerate(status["jobs"])}
    nodes = {node["name"]: node for node in status["nodes"]}
    return Columns([_node(name, nodes.get(name), owners) for name in names], padding=(0, 1))


def _node(name: str, node: dict[str, Any] | None, owners: dict[str, str]) -> Panel:
    if node is None:
        return Panel(Text("queue", style="dim"), title=name, width=16, border_style="dim")
    if node["job"] is None:
        return Panel(Text("idle" if node["phase"] == "idle" else "held", style="white"), title=name, width=16)
    colour = owners.get(node["job"], "white")
    words = {"member": "trains", "ready": "ready", "starting": "starts"}.get(node["worker"], "boots")
    style = f"bold {colour}" if words == "trains" else colour
    return Panel(
        Text(f"{node['job'].rpartition('-')[0]} {words}"[:14], style=style), title=name, width=16, border_style=colour
    )


def _resizes(status: dict[str, Any]) -> Text:
    resizes = status["resizes"]
    if not resizes["count"]:
        return Text("no resize yet", style="dim")
    last = ", ".join(f"{r['job']} → {r['size']} in {r['took_ms']:.0f} ms" for r in reversed(resizes["recent"][-4:]))
    return Text(
        f"{resizes['count']} resizes, median {resizes['p50_ms']:.0f} ms, 95 % within {resizes['p95_ms']:.0f} ms; "
        f"last: {last}"
    )
