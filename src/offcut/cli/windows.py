"""`offcut windows`: the idle windows of a log, their statistics, and generated windows of the same statistics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offcut.cli.options import JsonOption
from offcut.cli.output import Sheet, line, print_json, print_table

if TYPE_CHECKING:
    from offcut.traces.idle_from_log import IdleRecord

Log = Annotated[
    Path | None,
    typer.Argument(help="A batch log (SWF, sacct -P, sacct --json, Philly CSV) or a windows file; may be gzip."),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Write the windows here; .csv or .csv.gz.")]
Nodes = Annotated[int | None, typer.Option(help="The machine's size; default: what the log says.")]
PerNode = Annotated[int, typer.Option(help="Processors, cores or GPUs of the log that make one node.")]
Start = Annotated[float | None, typer.Option("--start", help="From this time on, seconds on the log's clock.")]
End = Annotated[float | None, typer.Option("--end", help="Until this time, seconds on the log's clock.")]
Generate = Annotated[
    bool, typer.Option("--generate", help="Draw new windows that are like the log's; like Summit's without a log.")
]
Days = Annotated[float, typer.Option(help="With --generate: how many days.")]
Seed = Annotated[int, typer.Option(help="With --generate: another seed gives other windows.")]
Figure = Annotated[Path | None, typer.Option(help="Draw the statistics here; .png, .svg or .pdf.")]


def windows(
    log: Log = None,
    out: Out = None,
    nodes: Nodes = None,
    per_node: PerNode = 1,
    start: Start = None,
    end: End = None,
    generate: Generate = False,
    days: Days = 14.0,
    seed: Seed = 0,
    figure: Figure = None,
    as_json: JsonOption = False,
) -> None:
    """Find the idle windows of a batch log, or generate some, and show their statistics.

    From a batch log the windows start at 0 at the first job's start (or at --start); a windows file keeps its clock.

    Example: `offcut windows theta.swf.gz -o theta-windows.csv.gz --figure theta.png`
    """
    from offcut.errors import InputError
    from offcut.traces.statistics import describe
    from offcut.traces.windows import write_windows

    if log is None and not generate:
        raise InputError("windows: no log given.", next_step="Name a log, or ask for --generate.")
    record = None if log is None else _record(log, None if generate else nodes, per_node, start, end)
    if generate:
        table, machine, origin_s = _generated(record, nodes, days, seed), nodes, 0.0
        span_s = (0.0, days * 86_400)
        rule, notes = f"a generator with seed {seed}", _NO_NOTES
    else:
        assert record is not None
        keeps_clock = record.rule == _OF_FILE
        origin_s = 0.0 if keeps_clock else record.start_s
        table, machine = record.windows if keeps_clock else record.from_zero(), record.nodes
        span_s = (record.start_s - origin_s, record.end_s - origin_s)
        rule, notes = record.rule, record.notes
    statistics = describe(table, machine or (record.nodes if record else None), *span_s)
    if out is not None:
        write_windows(out, table)
    if figure is not None:
        from offcut.report.windows_figure import draw_windows

        title = f"{log.name if log else 'Summit'}{', imitated' if generate else ''}"
        draw_windows(table, statistics, figure, title)
    if as_json:
        document: dict[str, Any] = statistics.as_dict()
        document |= {"rule": rule, "notes": list(notes), "clock_zero_s": origin_s, "out": str(out) if out else None}
        print_json(document)
        return
    _print_table(document_rows=statistics.as_dict(), rule=rule, notes=notes, origin_s=origin_s)


_OF_FILE = "a windows file"
_NO_NOTES: tuple[str, ...] = ()


def _record(log: Path, nodes: int | None, per_node: int, start: float | None, end: float | None) -> IdleRecord:
    """Return the windows of a batch log or of a windows file."""
    from offcut.traces.idle_from_log import IdleRecord, idle_windows
    from offcut.traces.read_log import is_windows_file, read_log
    from offcut.traces.windows import read_windows

    if not is_windows_file(log):
        return idle_windows(read_log(log).in_nodes(per_node), nodes, start, end)
    table = read_windows(log)
    first_s, last_s = table.span_s
    start = min(0.0, first_s) if start is None else start
    end = last_s if end is None else end
    size = len(table.names) if nodes is None else nodes
    return IdleRecord(windows=table.between(start, end), nodes=size, start_s=start, end_s=end, rule=_OF_FILE)


def _generated(record: IdleRecord | None, nodes: int | None, days: float, seed: int) -> Any:
    from offcut.traces.fit_window_process import fit_process
    from offcut.traces.generate import generate
    from offcut.traces.window_process import SUMMIT

    process = SUMMIT if record is None else fit_process(record.windows, record.nodes)
    return generate(process.nodes if nodes is None else nodes, days * 86_400, seed, process)


def _print_table(*, document_rows: dict[str, Any], rule: str, notes: tuple[str, ...], origin_s: float) -> None:
    d = document_rows
    table = Sheet("", "", title=f"Idle windows from {rule}", show_header=False)
    hours = (d["end_s"] - d["start_s"]) / 3600
    for name, value in (
        ("machine", f"{d['nodes']:,} nodes for {hours:,.1f} h"),
        ("idle", f"{d['idle_share']:.1%} of the node-time: {d['idle_node_hours']:,.0f} node-hours"),
        ("windows", f"{d['windows']:,}"),
        ("instants with a change", f"{d['events_per_h']:.1f} an hour"),
        ("idle nodes, mean", f"{d['idle_nodes_mean']:,.1f}"),
        ("idle nodes", _quantiles(d["idle_nodes"], "")),
        ("window length", _quantiles(d["length_s"], " s")),
        ("under 10 minutes", f"{d['short_windows']:.1%} of windows, {d['short_node_time']:.1%} of idle node-time"),
        ("end together", "–" if d["together"] is None else f"{d['together']:.0%} of those that began together"),
        ("clock", f"0 is {origin_s:.15g} s on the log's clock" if origin_s else "the file's own"),
    ):
        table.add_row(name, value)
    print_table(table)
    for note in notes:
        line(note, style="dim")


def _quantiles(values: dict[str, float], unit: str) -> str:
    return f"{' / '.join(values)} = {' / '.join(f'{value:,.0f}' for value in values.values())}{unit}"
