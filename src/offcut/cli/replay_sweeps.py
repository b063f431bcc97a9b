"""`offcut replay --sweep`: simulate sweeps on recorded idle windows, with a table of learning curves."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offcut.cli.output import Sheet, line, print_json, print_table
from offcut.errors import InputError
from offcut.number_format import format_count, format_duration, format_loss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offcut.model.sweep import Sweep
    from offcut.report.sweep_record import SweepRecorder
    from offcut.simulate.options import ReplayOptions
    from offcut.simulate.sweep_replay import SweepMetrics
    from offcut.simulate.sweep_trials import Suggest
    from offcut.traces.windows import Windows

#: At these shares of the smallest number of node-hours that one of the sweeps took, the best values are compared.
_SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)


def check_options(
    jobs: Path | None,
    sweeps: Sequence[Path] | None,
    curves: Path | None,
    unit_s: float | None,
    *,
    repeat: bool,
    concurrency: Sequence[int] | None,
) -> None:
    """Raise InputError if these options of `offcut replay` exclude each other, or one of them is missing."""
    if not sweeps:
        if curves is not None or unit_s is not None:
            raise InputError("replay: --curves and --unit are for sweeps.", next_step="Give --sweep.")
        return
    if jobs is not None:
        raise InputError("replay: --jobs and --sweep exclude each other.", next_step="Give one of them.")
    if curves is None:
        raise InputError(
            "replay: --sweep needs --curves, a table of learning curves.",
            next_step="Record one with benchmarks/record_learning_curves.py.",
        )
    if repeat or concurrency:
        raise InputError(
            "replay: --repeat and --concurrency are for job lists.", next_step="Set `parallel` in the sweep file."
        )
    if unit_s is not None and not 0 < unit_s < 1e9:
        raise InputError(f"--unit: {unit_s:g} is out of range.", next_step="Give seconds, greater than 0.")


def replay_sweeps(
    windows: Windows,
    files: Sequence[Path],
    curves: Path,
    unit_s: float | None,
    options: Sequence[ReplayOptions],
    start_s: float | None,
    end_s: float | None,
    report: Path | None,
    *,
    as_json: bool,
) -> None:
    """Replay each sweep with each of the options, one after the other, and print the results."""
    from dataclasses import asdict

    from offcut.report.sweep_record import SweepRecorder
    from offcut.simulate.sweep_replay import replay_sweep
    from offcut.traces.learning_curves import read_learning_curves
    from offcut.wire.sweepspec import read_sweep_file

    table = read_learning_curves(curves)
    if unit_s is not None:
        table = table.scaled(unit_s)
    sweeps = [read_sweep_file(file).to_sweep(f"{file.stem}-1") for file in files]
    runs: list[tuple[Sweep, ReplayOptions, SweepMetrics]] = []
    pages: list[Path | None] = []
    for number, (sweep, one) in enumerate(product(sweeps, options), 1):
        recorder = SweepRecorder(sweep.id)
        metrics = replay_sweep(
            windows,
            sweep,
            table,
            one,
            start_s=start_s,
            end_s=end_s,
            suggest=_suggest(sweep),
            observe=recorder.observe if report is not None else None,
        )
        runs.append((sweep, one, metrics))
        pages.append(None if report is None else _write(report, number, recorder))
    if as_json:
        documents = [
            metrics.as_dict()
            | {
                "sweep": sweep.name,
                "options": asdict(one),
                "best_in_table": table.best_value,
                "report": None if page is None else str(page),
            }
            for (sweep, one, metrics), page in zip(runs, pages, strict=True)
        ]
        print_json(documents[0] if len(documents) == 1 else {"runs": documents})
        return
    _print(runs, table.best_value)
    for page in pages:
        if page is not None:
            line(f"Report: {page}")


def _write(directory: Path, number: int, recorder: SweepRecorder) -> Path | None:
    """Write the report of one of the replayed sweeps."""
    from offcut.report.sweep_page import sweep_page

    record = recorder.record()
    if record is None:
        return None
    page = directory / f"sweep-{number}.html"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        page.write_text(sweep_page(record), encoding="utf-8")
    except OSError as error:
        raise InputError(f"--report {directory}: {error.strerror}.", next_step="Name a directory.") from None
    return page


def _suggest(sweep: Sweep) -> Suggest | None:
    """Return what suggests parameters for the suggester `optuna`: the searcher's own function, in this process."""
    if sweep.suggester != "optuna":
        return None
    from offcut.service.searcher.questions import question_of
    from offcut.service.searcher.searcher import check_optuna

    check_optuna()
    from offcut.service.searcher import optuna_process

    optuna_process.warm()
    return lambda state, number: optuna_process.suggest(question_of(state), number)


def _print(runs: Sequence[tuple[Sweep, ReplayOptions, SweepMetrics]], best_in_table: float) -> None:
    from offcut.report.replay_rows import name_of

    options = [one for _, one, _ in runs]
    names = []
    for sweep, one, _ in runs:
        name = name_of(one, options) if len(set(options)) > 1 else ""
        scheduler = f"{sweep.name}: {sweep.scheduler.name}"
        names.append(scheduler if len(set(options)) == 1 else f"{scheduler}, {name}")
    sheet = Sheet("", *names, right=tuple(names), title="Replay of a sweep")
    found = [metrics for _, _, metrics in runs]
    rows: list[tuple[str, list[str]]] = [
        ("search", [each.phase for each in found]),
        ("time", [format_duration(each.span_s) for each in found]),
        ("node-hours", [format_count(each.node_h) for each in found]),
        ("best value", [_best(each.best) for each in found]),
        ("trials", [_phases(each.trials) for each in found]),
        ("promoted", [str(each.promotions) for each in found]),
        ("halted", [str(each.halts) for each in found]),
        ("stopped", [str(each.stops) for each in found]),
        ("reclaims", [str(each.reclaims) for each in found]),
        ("of a trial's last node", [str(each.last_node_reclaims) for each in found]),
        ("trials that failed", [str(each.failed) for each in found]),
    ]
    least_h = min(each.node_h for each in found)
    for share in _SHARES:
        values = [_value_at(each, share * least_h) for each in found]
        rows.append((f"best after {format_count(share * least_h)} node-hours", values))
    for title, values in rows:
        sheet.add_row(title, *values)
    print_table(sheet)
    line(f"The best value in the table is {format_loss(best_in_table)}.")


def _best(best: dict[str, Any] | None) -> str:
    if best is None:
        return "–"
    return f"{format_loss(best['value'])} (trial {best['trial']} at budget {format_count(best['budget'])})"


def _phases(trials: dict[str, int]) -> str:
    return ", ".join(f"{count} {phase}" for phase, count in trials.items())


def _value_at(metrics: SweepMetrics, node_h: float) -> str:
    """Return the best value that was known at this number of node-hours of the trials."""
    known = [step["value"] for step in metrics.best_over_time if step["node_h"] <= node_h + 1e-9]
    return format_loss(known[-1]) if known else "–"
