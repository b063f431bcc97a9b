"""`offcut replay`: what would these jobs have got out of these windows?"""

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
    from offcut.simulate.options import ReplayOptions
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


WindowsFile = Annotated[Path, typer.Option("--windows", help="Idle windows: node,start_s,end_s; gzip is fine.")]
Jobs = Annotated[Path, typer.Option(help="The job list, JSON; gzip is fine.")]
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
Boot = Annotated[float | None, typer.Option(help="Seconds from a node's claim to its agent's answer, off the path.")]
WorkerStart = Annotated[float | None, typer.Option(help="Seconds until a started worker is ready, off the path.")]
Concurrency = Annotated[
    list[int] | None, typer.Option(help="At most so many jobs at once; default: the controller decides.")
]
Repeat = Annotated[bool, typer.Option("--repeat", help="Start the job list again when it is used up.")]
How = Annotated[
    Accounting, typer.Option(help="stall: a resizing job stands still. published: BFTrainer's own accounting.")
]
Where = Annotated[PlacementRule, typer.Option(help="Nodes idle since the same instant go to one job, or random ones.")]
CurveModel = Annotated[
    list[str] | None,
    typer.Option(
        help="Who learns the curves, which are hidden then: oracle (they are known; default), gp, inverse, passive, "
        "linear, amdahl, or FILE.py:FUNCTION."
    ),
]
Families = Annotated[bool, typer.Option(help="With --profiler: jobs of one curve are said to be of one family.")]
Commit = Annotated[
    float, typer.Option(help="Jobs save their state every so many seconds and lose the rest with their last node.")
]
Start = Annotated[float | None, typer.Option("--start", help="From this time on, seconds on the windows' clock.")]
End = Annotated[float | None, typer.Option("--end", help="Until this time, seconds on the windows' clock.")]
Nodes = Annotated[int | None, typer.Option(help="Replay so many of the trace's nodes, drawn at random.")]
Seed = Annotated[int, typer.Option(help="With --nodes or --profiler: another seed draws others.")]
Report = Annotated[Path | None, typer.Option(help="Write a page with tables and figures into this directory.")]


def replay(
    windows: WindowsFile,
    jobs: Jobs,
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
    """Replay jobs on recorded idle windows through the controller that runs live.

    Options given several times are combined, and the replays run in parallel.

    Example: `offcut replay --windows W.csv.gz --jobs J.json.gz --concurrency 10 --policy exact --policy greedy`
    """
    from offcut.advisor import load
    from offcut.allocate import policy as policies
    from offcut.traces.job_list import read_job_list
    from offcut.traces.windows import read_windows

    table, listed = read_windows(windows), read_job_list(jobs)
    if nodes is not None:
        table = table.sample(nodes, seed)
    options = _options(
        policy or ["exact"], horizon or [120.0], resize_cost or ["listed"], concurrency or [None], boot=boot,
        worker_start=worker_start, repeat=repeat, accounting=accounting, placement=placement, commit=commit,
        profiler=profiler or ["oracle"], families=families, seed=seed,
    )  # fmt: skip
    for one in options:
        if one.policy != "exact":
            policies.load(one.policy)
        load(one.profiler)
    results = _run(table, listed, options, start, end, quiet=as_json)
    runs = list(zip(options, results, strict=True))
    page = _write(report, runs, table, windows.name) if report is not None else None
    if as_json:
        documents = [result.as_dict() | {"options": _said(one)} for one, result in runs]
        document: dict[str, Any] = documents[0] if len(documents) == 1 else {"runs": documents}
        print_json(document | {"report": None if page is None else str(page)})
        return
    _print(runs)
    if page is not None:
        line(f"Report: {page}")


def _options(
    policy: list[str],
    horizon: list[float],
    resize_cost: list[str],
    concurrency: Sequence[int | None],
    *,
    boot: float | None,
    worker_start: float | None,
    repeat: bool,
    accounting: Accounting,
    placement: PlacementRule,
    commit: float,
    profiler: list[str],
    families: bool,
    seed: int,
) -> list[ReplayOptions]:
    """Every combination of what was given several times."""
    from dataclasses import replace

    from offcut.simulate.options import ReplayOptions, parse_cost

    options = []
    for name, horizon_s, cost_text, jobs, learner in product(policy, horizon, resize_cost, concurrency, profiler):
        cost = parse_cost(cost_text)
        if boot is not None:
            cost = replace(cost, boot_s=boot)
        if worker_start is not None:
            cost = replace(cost, start_s=worker_start)
        options.append(
            ReplayOptions(
                policy=name,
                horizon_s=horizon_s,
                cost=cost,
                accounting=accounting.value,
                concurrency=jobs,
                repeat=repeat,
                placement=placement.value,
                commit_s=commit,
                profiler=learner,
                families=families,
                seed=seed,
            )
        )
    return options


def _run(
    table: Windows,
    jobs: Sequence[ListedJob],
    options: list[ReplayOptions],
    start: float | None,
    end: float | None,
    *,
    quiet: bool,
) -> list[ReplayMetrics]:
    from rich.console import Console
    from rich.progress import Progress

    from offcut.simulate.parallel_replays import replay_each
    from offcut.simulate.replay import span

    span(table, jobs, start, end)  # says what is wrong with the times before a progress bar stands on the screen
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


def _said(options: ReplayOptions) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(options)


def _write(directory: Path, runs: list[tuple[ReplayOptions, ReplayMetrics]], table: Windows, name: str) -> Path:
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
    from offcut.report.replay_rows import name_of, rows

    names = tuple(name_of(one, [options for options, _ in runs]) for one, _ in runs)
    table = Sheet("", *names, right=names, title=f"{len(runs)} replays" if len(runs) > 1 else "Replay")
    for title, values in rows([metrics for _, metrics in runs]):
        table.add_row(title, *values)
    print_table(table)
