"""`offcut estimate`: what training on a machine's idle nodes would gain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offcut.cli.options import JsonOption
from offcut.cli.output import line, print_json

if TYPE_CHECKING:
    from offcut.simulate.estimate import Estimate
    from offcut.traces.idle_from_log import IdleRecord

Log = Annotated[
    Path, typer.Argument(help="A batch log (SWF, sacct -P, sacct --json, Philly CSV) or a windows file; gzip is fine.")
]
Nodes = Annotated[int | None, typer.Option(help="The machine's size; default: what the log says.")]
PerNode = Annotated[int, typer.Option(help="Processors, cores or GPUs of the log that make one node.")]
Jobs = Annotated[
    Path | None, typer.Option(help="A job list with curves of your own; default: seven ImageNet networks.")
]
Days = Annotated[float, typer.Option(help="Replay at most this many days, from the middle of the log.")]
Price = Annotated[float | None, typer.Option(help="The price of a node-hour, in any currency.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="The report, one HTML file.")]


def estimate(
    log: Log,
    nodes: Nodes = None,
    per_node: PerNode = 1,
    jobs: Jobs = None,
    days: Days = 7.0,
    price: Price = None,
    out: Out = Path("estimate.html"),
    as_json: JsonOption = False,
) -> None:
    """Estimate what training on the idle nodes of a machine would gain: a report in one HTML file.

    Example: `offcut estimate theta.swf.gz --nodes 4360 --price 1.50`
    """
    from offcut.errors import InputError
    from offcut.report.estimate_page import estimate_page

    made = _estimate(_record(log, nodes, per_node), log.name, jobs, days, quiet=as_json)
    try:
        out.write_text(estimate_page(made, price), encoding="utf-8")
    except OSError as error:
        raise InputError(f"--out {out}: {error.strerror}.", next_step="Name a file that can be written.") from None
    if as_json:
        print_json(made.as_dict() | {"report": str(out)})
        return
    s, base = made.statistics, made.base
    line(
        f"{s.idle_share:.1%} of {made.nodes:,} nodes are idle: "
        f"{s.idle_node_hours:,.0f} node-hours in {made.days:.1f} days."
    )
    line(
        f"Training would have done the work of {made.node_hours_a_day:,.0f} node-hours a day, "
        f"{base.work_share:.0%} of the idle node-time."
    )
    line(f"Report: {out}")


def _record(log: Path, nodes: int | None, per_node: int) -> IdleRecord:
    from offcut.errors import InputError
    from offcut.traces.idle_from_log import IdleRecord, idle_windows
    from offcut.traces.read_log import is_windows_file, read_log
    from offcut.traces.windows import read_windows

    if not is_windows_file(log):
        return idle_windows(read_log(log).in_nodes(per_node), nodes)
    table = read_windows(log)
    if not len(table):
        raise InputError(f"{log}: it has no windows.", next_step="Give a log in which nodes are idle at times.")
    first_s, last_s = table.span_s
    size = len(table.names) if nodes is None else nodes
    if size < len(table.names):
        raise InputError(
            f"--nodes: {size} nodes asked for, but {log} has windows of {len(table.names)}.",
            next_step="Give the size of the whole machine.",
        )
    return IdleRecord(windows=table, nodes=size, start_s=min(0.0, first_s), end_s=last_s, rule="a windows file")


def _estimate(record: IdleRecord, source: str, jobs: Path | None, days: float, *, quiet: bool) -> Estimate:
    from rich.console import Console
    from rich.progress import Progress

    from offcut.simulate.estimate import estimate as run
    from offcut.simulate.imagenet_networks import diverse_jobs
    from offcut.traces.job_list import read_job_list

    listed = diverse_jobs() if jobs is None else read_job_list(jobs)
    errors = Console(stderr=True)
    with Progress(console=errors, transient=True, disable=quiet or not errors.is_terminal) as progress:
        task = progress.add_task("replays", total=1.0)
        return run(record, source, listed, days=days, progress=lambda share: progress.update(task, completed=share))
