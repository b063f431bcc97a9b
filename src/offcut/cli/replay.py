"""`offcut replay`: simulate a job list on recorded idle windows."""

from __future__ import annotations

from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offcut.cli.options import JsonOption
from offcut.cli.output import Sheet, line, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offcut.simulate.metrics import ReplayMetrics
    from offcut.simulate.options import ReplayOptions, ResizeCost
    from offcut.traces.job_list import ListedJob
    from offcut.traces.windows import Windows


class Accounting(StrEnum):
    """The choices of --accounting."""

    stall = "stall"
    published = "published"


class PlacementRule(StrEnum):
    """The choices of --placement."""

    together = "together"
    random = "random"


WindowsFile = Annotated[Path, typer.Option("--windows", help="Idle windows: node,start_s,end_s; may be gzip.")]
Jobs = Annotated[Path | None, typer.Option(help="The job list, JSON; may be gzip.")]
Sweeps = Annotated[
    list[Path] | None, typer.Option("--sweep", help="Replay this sweep file instead of a job list; with --curves.")
]
Curves = Annotated[
    Path | None, typer.Option(help="With --sweep: the table of learning curves that trials report; may be gzip.")
]
Unit = Annotated[
    float | None,
    typer.Option(help="With --sweep: mean seconds of a unit of budget on one node; default: as in the table."),
]
Policy = Annotated[
    list[str] | None,
    typer.Option(help="exact (default), a policy's name (greedy, equal-share, first-come, ...), or FILE.py:FUNCTION."),
]
Horizon = Annotated[
    list[float] | None, typer.Option(help="Seconds that an allocation is expected to last; default: 120.")
]
Cost = Annotated[
    list[str] | None,
    typer.Option(
        help="Seconds that a resize costs: listed (each job's own; default), published (18:12), measured, or G:S."
    ),
]
Boot = Annotated[
    float | None, typer.Option(help="Seconds from a node's claim to its agent's answer; the job trains on.")
]
WorkerStart = Annotated[float | None, typer.Option(help="Seconds until a started worker is ready; the job trains on.")]
Concurrency = Annotated[
    list[int] | None, typer.Option(help="The largest number of concurrent jobs; default: the controller decides.")
]
Repeat = Annotated[bool, typer.Option("--repeat", help="Start the job list again when it is used up.")]
How = Annotated[
    Accounting, typer.Option(help="stall: a resizing job makes no progress. published: BFTrainer's accounting.")
]
Where = Annotated[PlacementRule, typer.Option(help="Nodes idle since the same instant go to one job, or random ones.")]
CurveModel = Annotated[
    list[str] | None,
    typer.Option(
        help="The model that estimates the scaling curves: oracle (they are known; default), gp, inverse, passive, "
        "linear, amdahl, or FILE.py:FUNCTION."
    ),
]
Families = Annotated[bool, typer.Option(help="With --profiler: jobs of one curve form a family.")]
Commit = Annotated[
    float, typer.Option(help="Seconds between saves of a job's state; later work is lost with its last node.")
]
Start = Annotated[float | None, typer.Option("--start", help="From this time on, seconds on the windows' clock.")]
End = Annotated[float | None, typer.Option("--end", help="Until this time, seconds on the windows' clock.")]
Nodes = Annotated[int | None, typer.Option(help="Replay this many of the trace's nodes, drawn at random.")]
Seed = Annotated[int, typer.Option(help="With --nodes or --profiler: the seed of the random numbers.")]
Report = Annotated[Path | None, typer.Option(help="Write a page with tables and figures into this directory.")]


def replay(
    windows: WindowsFile,
    jobs: Jobs = None,
    sweep: Sweeps = None,
    curves: Curves = None,
    unit: Unit = None,
    policy: Policy = None,
    horizon: Horizon = None,
    resize_cost: Cost = None,
    boot: Boot = None,
    worker_start: WorkerStart = None,
    concurrency: Concurrency = None,
    repeat: Repeat = False,
    accounting: How = Accounting.stall,
    placement: Where = PlacementRule.together,
    commit: Commit = 0.0,
    profiler: CurveModel = None,
    families: Families = True,
    start: Start = None,
    end: End = None,
    nodes: Nodes = None,
    seed: Seed = 0,
    report: Report = None,
    as_json: JsonOption = False,
) -> None:
    """Replay jobs, or sweeps, on recorded idle windows through the controller that runs live.

    Options given several times are combined, and the replays of jobs run in parallel.

    Examples: `offcut replay --windows W.csv.gz --jobs J.json.gz --concurrency 10 --policy exact --policy greedy`,
    `offcut replay --windows W.csv.gz --sweep S.toml --curves C.json.gz --unit 60 --nodes 256`
    """
    from offcut.advisor import load
    from offcut.allocate import policy as policies
    from offcut.cli.replay_sweeps import check_options, replay_sweeps
    from offcut.simulate.options import ReplayOptions
    from offcut.traces.windows import read_windows

    check_options(jobs, sweep, curves, unit, repeat=repeat, concurrency=concurrency)
    table = read_windows(windows)
    if nodes is not None:
        table = table.sample(nodes, seed)
    base = ReplayOptions(
        accounting=accounting.value,
        repeat=repeat,
        placement=placement.value,
        commit_s=commit,
        families=families,
        seed=seed,
    )
    options = _combinations(
        base,
        policies=policy or ["exact"],
        horizons_s=horizon or [120.0],
        costs=[_cost(text, boot, worker_start) for text in resize_cost or ["listed"]],
        concurrencies=concurrency or [None],
        curve_models=profiler or ["oracle"],
    )
    for one in options:
        if one.policy != "exact":
            policies.load(one.policy)
        load(one.profiler)
    if sweep is not None and curves is not None:
        replay_sweeps(table, sweep, curves, unit, options, start, end, report, as_json=as_json)
        return
    listed = _read_jobs(jobs)
    results = _run(table, listed, options, start, end, quiet=as_json)
    runs = list(zip(options, results, strict=True))
    page = _write(report, runs, table, windows.name) if report is not None else None
    if as_json:
        documents = [result.as_dict() | {"options": _options_json(one)} for one, result in runs]
        document: dict[str, Any] = documents[0] if len(documents) == 1 else {"runs": documents}
        print_json(document | {"report": None if page is None else str(page)})
        return
    _print(runs)
    if page is not None:
        line(f"Report: {page}")


def _read_jobs(path: Path | None) -> Sequence[ListedJob]:
    """Read the job list, which must be given."""
    from offcut.errors import InputError
    from offcut.traces.job_list import read_job_list

    if path is None:
        raise InputError("replay: nothing to replay.", next_step="Give --jobs, or --sweep with --curves.")
    return read_job_list(path)


def _cost(text: str, boot_s: float | None, worker_start_s: float | None) -> ResizeCost:
    """Read the costs of a resize; the times of booting and starting may be given separately."""
    from dataclasses import replace

    from offcut.simulate.options import parse_cost

    cost = parse_cost(text)
    if boot_s is not None:
        cost = replace(cost, boot_s=boot_s)
    return cost if worker_start_s is None else replace(cost, start_s=worker_start_s)


def _combinations(
    base: ReplayOptions,
    *,
    policies: Sequence[str],
    horizons_s: Sequence[float],
    costs: Sequence[ResizeCost],
    concurrencies: Sequence[int | None],
    curve_models: Sequence[str],
) -> list[ReplayOptions]:
    """Return `base` with every combination of the options that may be given several times."""
    from dataclasses import replace

    return [
        replace(base, policy=policy, horizon_s=horizon_s, cost=cost, concurrency=concurrency, profiler=curve_model)
        for policy, horizon_s, cost, concurrency, curve_model in product(
            policies, horizons_s, costs, concurrencies, curve_models
        )
    ]


def _run(
    table: Windows,
    jobs: Sequence[ListedJob],
    options: list[ReplayOptions],
    start: float | None,
    end: float | None,
    *,
    quiet: bool,
) -> list[ReplayMetrics]:
    """Run the replays in parallel, with a progress bar."""
    from rich.console import Console
    from rich.progress import Progress

    from offcut.simulate.parallel_replays import replay_each
    from offcut.simulate.replay import span

    span(table, jobs, start, end)  # reports invalid times before a progress bar is shown
    errors = Console(stderr=True)
    with Progress(console=errors, transient=True, disable=quiet or not errors.is_terminal) as progress:
        task = progress.add_task(f"{len(options)} replays" if len(options) > 1 else "replay", total=1.0)
        return replay_each(
            table,
            jobs,
            options,
            start_s=start,
            end_s=end,
            progress=lambda share: progress.update(task, completed=share),
        )


def _options_json(options: ReplayOptions) -> dict[str, Any]:
    """Return the options as a JSON value."""
    from dataclasses import asdict

    return asdict(options)


def _write(directory: Path, runs: list[tuple[ReplayOptions, ReplayMetrics]], table: Windows, name: str) -> Path:
    """Write the page of the replays."""
    from offcut.errors import InputError
    from offcut.report.replay_page import replay_page

    try:
        directory.mkdir(parents=True, exist_ok=True)
        page = directory / "replay.html"
        page.write_text(replay_page(runs, name), encoding="utf-8")
    except OSError as error:
        raise InputError(f"--report {directory}: {error.strerror}.", next_step="Name a directory.") from None
    return page


def _print(runs: list[tuple[ReplayOptions, ReplayMetrics]]) -> None:
    """Print the metrics as a table."""
    from offcut.report.replay_rows import name_of, rows

    names = tuple(name_of(one, [options for options, _ in runs]) for one, _ in runs)
    table = Sheet("", *names, right=names, title=f"{len(runs)} replays" if len(runs) > 1 else "Replay")
    for title, values in rows([metrics for _, metrics in runs]):
        table.add_row(title, *values)
    print_table(table)
