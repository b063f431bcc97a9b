"""Writes the report of a controller's run: the use of every node over time, the training, and the promises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from offcut.report import figures
from offcut.report.html import Section, page, paragraph, svg, table
from offcut.report.run_timeline import RunTimeline, timeline
from offcut.service.metrics.job_metrics import percentile
from offcut.service.paths import StatePaths
from offcut.store.journal import Journal


def write_report(paths: StatePaths, *, promises: dict[str, bool] | None = None, jobs: str = "") -> Path:
    """Write `report.html` into the state directory and return its path.

    `promises` are the results of a demo's checks; `jobs` is HTML about its jobs. Raises StoreError or OSError.
    """
    journal = Journal(paths.journal)
    try:
        paths.report.write_text(run_page(journal, paths, promises=promises, jobs=jobs))
    finally:
        journal.close()
    return paths.report


def run_page(journal: Journal, paths: StatePaths, *, promises: dict[str, bool] | None = None, jobs: str = "") -> str:
    """Return the report of a run as HTML.

    Args:
        journal: the journal, or a copy of it.
        paths: where the statistics and the telemetry are.
        promises: the results of a demo's checks.
        jobs: HTML about its jobs.
    """
    run = timeline(journal.replay())
    statistics = json.loads(paths.statistics.read_text()) if paths.statistics.exists() else {}
    sections = [
        Section("Promises", _promises(promises, statistics, run)),
        Section("Node-seconds", _node_seconds(run, statistics)),
        Section("Use of the nodes over time", svg(figures.node_timeline(run))),
        Section("Sizes of the jobs", svg(figures.job_sizes(run))),
        Section("Throughput", svg(figures.throughput(run, _samples(paths)))),
        Section("Resizes", _resizes(run)),
    ]
    if jobs:
        sections.insert(1, Section("Jobs", jobs))
    return page("offcut: what was trained on idle nodes", sections)


def _promises(promises: dict[str, bool] | None, statistics: dict[str, Any], run: RunTimeline) -> str:
    hand_backs = statistics.get("hand_backs", [])
    slowest = max((item["took_s"] for item in hand_backs), default=None)
    taken = sum(item["killed"] for item in hand_backs)
    words = [
        paragraph(
            f"{len(hand_backs)} nodes were wanted while held; {taken} were released by a kill; the slowest was "
            f"released after {slowest:.2f} s."
            if slowest is not None
            else "No node was wanted while it was held."
        )
    ]
    words += [
        paragraph(f"{job}: at least {steps} steps were done again, because all members died without warning.")
        for job, steps in run.redone_steps.items()
    ]
    for promise, held in (promises or {}).items():
        words.append(paragraph(f"{'Held' if held else 'BROKEN'}: {promise}", "held" if held else "broken"))
    return "".join(words)


def _node_seconds(run: RunTimeline, statistics: dict[str, Any]) -> str:
    offered = statistics.get("idle_node_s")
    claimed = run.node_seconds("held", "boots", "trains")
    trained = run.node_seconds("trains")
    base = offered or run.node_seconds("idle", "held", "boots", "trains")
    rows = [
        ("offered (idle for the queue)", f"{base:,.0f}", "100 %"),
        ("claimed", f"{claimed:,.0f}", f"{100 * claimed / base:.0f} %" if base else ""),
        ("trained (in a generation)", f"{trained:,.0f}", f"{100 * trained / base:.0f} %" if base else ""),
    ]
    return table(("", "node-seconds", "of the offered"), rows)


def _resizes(run: RunTimeline) -> str:
    took_ms = [1000 * took_s for _, _, took_s in run.formed]
    if not took_ms:
        return paragraph("There was none.")
    p50, p95 = percentile(took_ms, 0.5), percentile(took_ms, 0.95)
    words = paragraph(f"{len(took_ms)} resizes; median {p50:.0f} ms, 95 % within {p95:.0f} ms.")
    return words + svg(figures.resize_latencies(took_ms))


def _samples(paths: StatePaths) -> dict[str, list[tuple[float, int]]]:
    """Return the stable samples of every job at the moments at which the controller noted them."""
    seen: dict[str, list[tuple[float, int]]] = {}
    for path in (paths.older_telemetry, paths.telemetry):
        if not path.exists():
            continue
        for line in path.read_text().splitlines():
            if line.endswith("}"):
                noted = json.loads(line)
                for job, samples in noted["samples"].items():
                    seen.setdefault(job, []).append((noted["time_s"], samples))
    return seen
