"""`offcut queue`: when would the jobs of a log have started under a textbook scheduler?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offcut.cli.options import JsonOption
from offcut.cli.output import Sheet, line, print_json, print_table

if TYPE_CHECKING:
    from offcut.simulate.batch_queue import QueueMetrics, QueueResult
    from offcut.traces.batch_log import BatchLog


class Scheduler(StrEnum):
    """The choices of --scheduler."""

    fcfs = "fcfs"
    easy = "easy"
    conservative = "conservative"


Log = Annotated[Path, typer.Argument(help="A batch log: SWF, sacct -P, sacct --json, Philly CSV; gzip is fine.")]
Nodes = Annotated[int | None, typer.Option(help="The machine's size; default: what the log says.")]
PerNode = Annotated[int, typer.Option(help="Processors, cores or GPUs of the log that make one node.")]
Which = Annotated[Scheduler, typer.Option(help="First come first served, EASY or conservative backfilling.")]
Starts = Annotated[Path | None, typer.Option(help="Write each job's start here: job,start_s; .csv or .csv.gz.")]
WindowsOut = Annotated[
    Path | None,
    typer.Option("--windows", help="Write the idle windows here, with the ends that the queue expected."),
]


def queue(
    log: Log,
    nodes: Nodes = None,
    scheduler: Which = Scheduler.easy,
    per_node: PerNode = 1,
    starts: Starts = None,
    windows: WindowsOut = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate the batch queue: waits, slowdowns, utilisation, and the windows that it leaves idle.

    Example: `offcut queue KTH-SP2.swf.gz --nodes 100 --scheduler easy --starts starts.csv --windows windows.csv.gz`
    """
    from offcut.simulate.batch_queue import recorded_metrics
    from offcut.traces.read_log import read_log
    from offcut.traces.start_times import write_starts
    from offcut.traces.windows import Windows, write_windows

    jobs = read_log(log).in_nodes(per_node)
    result = _simulate(jobs, nodes, scheduler, quiet=as_json)
    origin_s = jobs.jobs[0].submit_s
    if starts is not None:
        write_starts(starts, [job.id for job in jobs.jobs], result.start_s)
    if windows is not None:
        w = result.windows
        assert w.expected_end_s is not None
        shifted = (w.start_s - origin_s, w.end_s - origin_s, w.expected_end_s - origin_s)
        write_windows(windows, Windows(w.names, w.node, *shifted))
    recorded = recorded_metrics(jobs, result.nodes)
    if as_json:
        document: dict[str, Any] = {"scheduler": scheduler.value, "nodes": result.nodes, **result.metrics.as_dict()}
        document["recorded"] = recorded.as_dict() if recorded else None
        document |= {"windows": len(result.windows), "clock_zero_s": origin_s, "notes": list(result.notes)}
        print_json(document)
        return
    _print_table(result, recorded)


def _simulate(jobs: BatchLog, nodes: int | None, scheduler: Scheduler, *, quiet: bool) -> QueueResult:
    from rich.console import Console
    from rich.progress import Progress

    from offcut.simulate.batch_queue import simulate_queue

    jobs.size(nodes)  # reports an invalid --nodes before a progress bar is shown
    errors = Console(stderr=True)
    with Progress(console=errors, transient=True, disable=quiet or not errors.is_terminal) as progress:
        task = progress.add_task("jobs ended", total=len(jobs.jobs))
        return simulate_queue(
            jobs, nodes, scheduler.value, progress=lambda ended: progress.update(task, completed=ended)
        )


def _print_table(result: QueueResult, recorded: QueueMetrics | None) -> None:
    columns = [(result.scheduler, result.metrics)] + ([("in the log", recorded)] if recorded else [])
    names = tuple(name for name, _ in columns)
    table = Sheet("", *names, right=names, title=f"{len(result.log.jobs):,} jobs on {result.nodes:,} nodes")
    rows: list[tuple[str, str, str]] = [
        ("mean wait", "mean_wait_s", "{:,.0f} s"),
        ("median wait", "median_wait_s", "{:,.0f} s"),
        ("longest wait", "max_wait_s", "{:,.0f} s"),
        ("mean bounded slowdown (10 s)", "mean_bounded_slowdown", "{:,.2f}"),
        ("utilisation", "utilisation", "{:.1%}"),
    ]
    for title, field, form in rows:
        table.add_row(title, *(form.format(getattr(metrics, field)) for _, metrics in columns))
    print_table(table)
    line(f"{len(result.windows):,} idle windows between the first and the last submission")
    for note in result.notes:
        line(note, style="dim")
