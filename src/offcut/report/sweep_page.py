"""The page of `offcut report --sweep`: one sweep, from its journal or from a replay."""

from __future__ import annotations

from collections import Counter
from typing import Any

from offcut.report import sweep_figures as figures
from offcut.report import sweep_parameters as parameters
from offcut.report.html import Section, page, paragraph, svg, table
from offcut.report.sweep_record import SweepRecord, TrialRecord
from offcut.search.trials import loss

#: At most this many trials have a row in the table, and this many failed ones are named above it.
_MOST_ROWS, _MOST_FAILED = 1000, 20
#: The longest text of a cell, in characters.
_LONGEST = 400


def sweep_page(record: SweepRecord) -> str:
    """Return the page as HTML."""
    sections = [Section("In short", _lead(record))]
    if record.best:
        found = parameters.importance(record)
        sections += [
            Section(
                "Best value", svg(figures.best_value(record), "The best value so far against node time") + _best(record)
            ),
            Section("Learning curves and rungs", _rungs(record)),
            Section(
                "Parameters",
                svg(parameters.parallel_coordinates(record, found), "Each trial's parameters and its best value")
                + _importance(found),
            ),
        ]
    if record.spans:
        sections.append(Section("Trials on nodes", _timeline(record)))
    if _failed(record):
        sections.append(Section("Failed trials", _failures(record)))
    sections.append(Section("Trials", _trials(record)))
    return page(f"Sweep {record.sweep.id}", sections)


def sweep_summary(record: SweepRecord) -> dict[str, Any]:
    """Return the figures of the page's first lines as plain data."""
    phases = Counter(trial.phase for trial in record.trials.values())
    best = record.best[-1] if record.best else None
    return {
        "id": record.sweep.id,
        "state": record.phase,
        "trials": dict(phases),
        "node_hours": record.node_h,
        "reclaims": len(record.reclaims),
        "best": None if best is None else {"trial": best.trial, "value": best.value, "node_hours": best.node_h},
    }


def _lead(record: SweepRecord) -> str:
    sweep = record.sweep
    phases = Counter(trial.phase for trial in record.trials.values())
    counts = ", ".join(f"{count} {phase}" for phase, count in phases.most_common()) or "none has started"
    options = ", ".join(f"{name} = {value}" for name, value in sweep.scheduler.options)
    unit, factor = figures.time_unit(record.node_h)
    took_unit, took_factor = figures.time_unit((record.end_s - record.start_s) / 3600)
    text = paragraph(
        f"The sweep is {record.phase}: {len(record.trials)} of at most {sweep.max_trials} trials ({counts}). They used "
        f"{factor * record.node_h:.3g} node-{unit} in {took_factor * (record.end_s - record.start_s) / 3600:.3g} "
        f"{took_unit}. {_reclaims(len(record.reclaims))}"
    )
    if record.reason:
        text += paragraph(f"{record.phase}: {_line(record.reason)}", "broken" if record.phase == "failed" else "")
    text += paragraph(
        f"Scheduler {sweep.scheduler.name}{f' ({options})' if options else ''}; parameters: {sweep.suggester}"
        f"{f' ({sweep.sampler})' if sweep.suggester == 'optuna' else ''}; the objective is {sweep.direction}d; results "
        f"count in the order of {'arrival' if sweep.order == 'arrival' else 'logical time'}; seed {sweep.seed}.",
        "note",
    )
    if record.partial:
        text += paragraph(
            "The journal's first events are gone: node time, reclaims and reports before them are missing.", "note"
        )
    if not record.best:
        text += paragraph("No trial has reported a number yet.")
    elif not record.spans:
        text += paragraph(
            "The nodes of its trials are not known: another version of offcut wrote the journal, and decided otherwise "
            "than this one does.",
            "note",
        )
    return text


def _reclaims(number: int) -> str:
    return (
        f"The queue wanted a node of a trial {_count(number, 'time', 'times')}." if number else "No trial lost a node."
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _best(record: SweepRecord) -> str:
    best = record.best[-1]
    trial = record.trials[best.trial]
    unit, factor = figures.time_unit(record.node_h)
    at = f" at budget {trial.best.budget:g}" if trial.best is not None else ""
    return paragraph(
        f"The best value is {best.value:.6g}: trial {best.trial}{at}, after {factor * best.node_h:.3g} of "
        f"{factor * record.node_h:.3g} node-{unit}."
    ) + table(["parameter", "value"], [(name, _value(value)) for name, value in trial.parameters.items()])


def _rungs(record: SweepRecord) -> str:
    body = svg(figures.learning_curves(record), "The value of each trial against its budget")
    reported = len(figures.ranked(record))
    if reported > figures.MOST_CURVES:
        body += paragraph(f"The curves of the best {figures.MOST_CURVES} of {reported} trials.", "note")
    outcomes = figures.rung_outcomes(record)
    if not outcomes:
        return body
    occurring = [outcome for outcome in figures.OUTCOMES if any(of_rung[outcome] for of_rung in outcomes.values())]
    rows = []
    for rung, of_rung in outcomes.items():
        at_rung = [result.value for trial in record.trials.values() for result in trial.rungs if result.budget == rung]
        values = sorted(at_rung, key=lambda value: loss(value, record.sweep.direction))  # NaN is the worst
        counts = (of_rung[outcome] for outcome in occurring)
        rows.append(
            (f"{rung:g}", sum(of_rung.values()), *counts, f"{values[0]:.4g}", f"{values[len(values) // 2]:.4g}")
        )
    return (
        body
        + svg(figures.rung_bars(record), "What became of the trials at each rung; the table below has the numbers")
        + table(["rung", "trials", *occurring, "best", "median"], rows)
    )


def _importance(found: parameters.Importance | None) -> str:
    if found is None:
        return paragraph("Too few trials have results at one rung to say which parameter matters.", "note")
    return svg(parameters.importance_bars(found), "The importance of each parameter") + paragraph(
        f"Importance: the share of the variance of the ranks of {found.trials} results at budget {found.rung:g} that a "
        "parameter explains alone, without interactions: between a parameter's choices, quarters of its values, and "
        "trials that do not have it; corrected for their number.",
        "note",
    )


def _timeline(record: SweepRecord) -> str:
    nodes = len({span.node for span in record.spans})
    body = svg(figures.trial_timeline(record), "Which trial had which node over time")
    if nodes > figures.MOST_NODES:
        body += paragraph(f"The {figures.MOST_NODES} of {nodes} nodes that trials had longest.", "note")
    if len(record.spans) > figures.MOST_SPANS:
        body += paragraph(f"The longest {figures.MOST_SPANS} stretches at most.", "note")
    return body


def _failed(record: SweepRecord) -> list[TrialRecord]:
    return [trial for trial in record.trials.values() if trial.phase == "failed"]


def _failures(record: SweepRecord) -> str:
    failed = _failed(record)
    rows = [(trial.number, _line(trial.reason), _parameters(trial)) for trial in failed[:_MOST_FAILED]]
    body = table(["trial", "reason", "parameters"], rows, texts=("reason", "parameters"))
    if len(failed) > _MOST_FAILED:
        body += paragraph(f"{len(failed) - _MOST_FAILED} more have failed: see the table of trials.", "note")
    return body


def _trials(record: SweepRecord) -> str:
    best = figures.ranked(record)
    others = [trial for trial in record.trials.values() if trial.best is None]
    rows = [_row(trial, record) for trial in [*best, *others][:_MOST_ROWS]]
    headings = [
        "trial", "state", "best value", "at budget", "last value", "budget", "node-minutes", "reclaims", "parameters",
        "reason",
    ]  # fmt: skip
    body = table(headings, rows, texts=("state", "parameters", "reason"))
    if len(record.trials) > _MOST_ROWS:
        body += paragraph(f"The best {_MOST_ROWS:,} of {len(record.trials):,} trials.", "note")
    return paragraph("The best trial comes first.", "note") + body


def _row(trial: TrialRecord, record: SweepRecord) -> tuple[object, ...]:
    best, last = trial.best, trial.last
    # That the script came to its end needs no words.
    reason = "" if trial.phase == "completed" else _line(trial.reason)
    if trial.nan_reports:
        reason = "; ".join(filter(None, [reason, f"{_count(trial.nan_reports, 'report', 'reports')} of NaN"]))
    return (
        trial.number,
        trial.phase,
        "" if best is None else f"{best.value:.6g}",
        "" if best is None else f"{best.budget:g}",
        "" if last is None else f"{last.value:.6g}",
        "" if last is None else f"{last.budget:g}",
        f"{trial.node_s / 60:.2f}",
        trial.reclaims,
        _parameters(trial),
        reason,
    )


def _parameters(trial: TrialRecord) -> str:
    return _line(", ".join(f"{name}={_value(value)}" for name, value in trial.parameters.items()))


def _value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _line(text: str) -> str:
    """Return a text as one line of bounded length."""
    words = " ".join(text.split())
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
