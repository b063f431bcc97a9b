"""The live view of the demo: nodes by state and owner, jobs, and the last resizes."""

from __future__ import annotations

from typing import Any

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.text import Text

from offcut.cli.output import text
from offcut.cli.tables import COLOURS, job_table

#: The width of a node's panel, in characters.
_WIDTH = 14


def screen(status: dict[str, Any], names: list[str], elapsed_s: float, duration_s: float) -> RenderableType:
    """Return one picture of the running demo."""
    return Group(
        Text(f"offcut demo, {elapsed_s:.0f} of {duration_s:.0f} s", style="bold"),
        Padding(ProgressBar(total=duration_s, completed=min(elapsed_s, duration_s), width=60), (0, 0, 1, 0)),
        _grid(status, names),
        job_table(status["jobs"]),
        _resizes(status),
    )


def _grid(status: dict[str, Any], names: list[str]) -> RenderableType:
    owners = {job["id"]: COLOURS[i % len(COLOURS)] for i, job in enumerate(status["jobs"])}
    nodes = {node["name"]: node for node in status["nodes"]}
    return Columns([_node(name, nodes.get(name), owners) for name in names], padding=(0, 1))


def _node(name: str, node: dict[str, Any] | None, owners: dict[str, str]) -> Panel:
    """Return two lines: the owner of the node, and its state."""
    if node is None:
        return _panel(name, "queue", "busy", "dim")
    if node["job"] is None:
        return _panel(name, "no owner", "idle" if node["phase"] == "idle" else "held", "white")
    colour = owners.get(node["job"], "white")
    does = {"member": "trains", "ready": "ready", "starting": "starts"}.get(node["worker"], "boots")
    return _panel(name, node["job"].rpartition("-")[0], does, f"bold {colour}" if does == "trains" else colour)


def _panel(name: str, owner: str, does: str, style: str) -> Panel:
    shown = text(f"{owner[: _WIDTH - 4]}\n{does}", style)
    shown.no_wrap = True
    return Panel(shown, title=text(name), width=_WIDTH, border_style=style)


def _resizes(status: dict[str, Any]) -> Text:
    resizes = status["resizes"]
    if not resizes["count"]:
        return Text("no resize yet", style="dim")
    last = ", ".join(f"{r['job']} → {r['size']} in {r['took_ms']:.0f} ms" for r in reversed(resizes["recent"][-4:]))
    return text(
        f"{resizes['count']} resizes, median {resizes['p50_ms']:.0f} ms, 95 % within {resizes['p95_ms']:.0f} ms; "
        f"last: {last}"
    )
