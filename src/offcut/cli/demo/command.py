"""The demo command: set the stage, watch, stop, check, sum up."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.live import Live

from offcut.cli.options import JsonOption
from offcut.cli.output import Sheet, console, line, print_json, print_table, text
from offcut.service.paths import StatePaths

if TYPE_CHECKING:
    from offcut.cli.demo.promises import JobCheck

#: An allocation lasts seconds where time is compressed.
HORIZON_S = 10.0
_LOOK_S = 0.25


def demo(
    nodes: Annotated[int, typer.Option(min=1, max=64, help="Virtual nodes.")] = 8,
    windows: Annotated[
        Path | None, typer.Option(help="Idle windows (node,start_s,end_s); default: generated.", dir_okay=False)
    ] = None,
    start: Annotated[float, typer.Option(min=0.0, help="Where in the windows to begin, seconds.")] = 0.0,
    time_scale: Annotated[float, typer.Option(min=0.001, help="Seconds of the windows in one second.")] = 60.0,
    duration: Annotated[float, typer.Option(min=5.0, help="How long, seconds.")] = 75.0,
    seed: Annotated[int, typer.Option(help="Of the generated windows.")] = 3,
    grace: Annotated[float, typer.Option(min=0.1, help="Seconds after which a wanted node is taken.")] = 1.0,
    report: Annotated[Path, typer.Option(help="Where to write the report.", dir_okay=False)] = Path("offcut-demo.html"),
    cluster: Annotated[
        Literal["local", "slurm"],
        typer.Option(help="Virtual nodes, or a real Slurm of virtual nodes with a main queue of its own."),
    ] = "local",
    keep: Annotated[Path | None, typer.Option(help="Keep the state directory (records, logs, report) here.")] = None,
    json: JsonOption = False,
) -> None:
    """Watch three real trainings on nodes that come and go; then see every promise checked. Exit 1 if one was broken.

    Examples: `offcut demo`, `offcut demo --cluster slurm`,
    `offcut demo --windows windows.csv.gz --nodes 6 --start 90000 --time-scale 60 --json`
    """
    from offcut.cli.demo import main_queue, promises, scenario
    from offcut.cli.demo.demo_controller import demo_controller

    schedule = scenario.schedule(
        windows, nodes=nodes, start_s=start, time_scale=time_scale, duration_s=duration, seed=seed
    )
    wanted = scenario.jobs(nodes)
    on_slurm = main_queue.main_queue(schedule, duration) if cluster == "slurm" else nullcontext()
    with (
        on_slurm as queue,
        demo_controller(schedule, grace_s=grace, horizon_s=HORIZON_S, keep=keep, queue=queue) as running,
    ):
        jobs = {running.submit(job): job for job in wanted}
        if queue is None:
            running.client.post("/v1/begin")
        else:
            queue.begin()
        began_s = time.time()
        _watch(running, list(schedule.nodes), duration, live=not json)
        status = running.client.get("/v1/status")
        statistics = running.client.get("/v1/statistics")
        if queue is not None:
            statistics["cluster"]["hand_backs"] = queue.start_delays()
            grace = main_queue.START_BOUND_S
        running.stop()
        alone = [] if queue is None else queue.start_delays_alone()
        with nullcontext() if json else console.status("Running the same scripts undisturbed, to compare …"):
            checks = promises.check_jobs(status["jobs"], running.paths.job, jobs, running.paths.root, lambda job: None)
        late = promises.late_releases(statistics["cluster"]["hand_backs"], grace)
        document = _document(status, statistics, checks, late, began_s)
        document["hand_backs"]["bound_s"] = grace
        if queue is not None:
            document["main_jobs"] = _main_jobs(statistics["cluster"]["hand_backs"], alone)
        document["report"] = str(_report(running.paths, document, report))
    if json:
        print_json(document)
    else:
        _summarise(document, checks)
    if not document["promises_held"]:
        raise typer.Exit(1)


def _watch(running: Any, names: list[str], duration_s: float, *, live: bool) -> None:
    from offcut.cli.demo.screen import screen

    began_s = time.monotonic()
    shown = Live(console=console, auto_refresh=False, transient=True) if live and console.is_terminal else None
    with shown or nullcontext():
        said_s = 0.0
        while (elapsed_s := time.monotonic() - began_s) < duration_s:
            status = running.client.get("/v1/status")
            if shown is not None:
                shown.update(screen(status, names, elapsed_s, duration_s), refresh=True)
            elif live and elapsed_s - said_s >= 5.0:
                said_s = elapsed_s
                sizes = ", ".join(f"{job['id']} {job['size']} nodes, step {job['steps']}" for job in status["jobs"])
                line(f"{elapsed_s:3.0f} s: {sizes}")
            time.sleep(max(0.0, min(_LOOK_S, duration_s - elapsed_s)))


def _document(
    status: dict[str, Any],
    statistics: dict[str, Any],
    checks: list[JobCheck],
    late: list[dict[str, Any]],
    began_s: float,
) -> dict[str, Any]:
    hand_backs = sorted(item["took_s"] for item in statistics["cluster"]["hand_backs"])
    first_step_s = status["first_step_s"]
    return {
        "promises_held": not late and all(item.held for item in checks),
        "promises": {
            "queue_never_waits": not late,
            "no_step_lost": all(item.lost == 0 and item.repeated == 0 for item in checks),
            "loss_of_an_undisturbed_run": all(item.held for item in checks),
        },
        "steps_lost": sum(item.lost for item in checks),
        "steps_redone": sum(item.redone for item in checks),
        "samples": sum(item.samples for item in checks),
        "node_seconds": {
            "offered": round(statistics["cluster"]["idle_node_s"], 1),
            "used": round(status["used_node_s"], 1),
        },
        "resizes": {key: status["resizes"][key] for key in ("count", "p50_ms", "p95_ms")},
        "hand_backs": {
            "count": len(hand_backs),
            "late": len(late),
            "longest_s": hand_backs[-1] if hand_backs else None,
        },
        "first_step_after_s": None if first_step_s is None else round(first_step_s - began_s, 2),
        "jobs": [
            {
                "id": item.id,
                "state": item.state,
                "steps": item.steps,
                "samples": item.samples,
                "loss": item.loss,
                "reference_loss": item.reference_loss,
                "difference": item.difference,
                "steps_lost": item.lost,
                "steps_redone": item.redone,
            }
            for item in checks
        ],
    }


def _main_jobs(started: list[dict[str, Any]], alone: list[float]) -> dict[str, Any]:
    """Return the main jobs' start delays, from sbatch to the script's first line, with and without offcut."""
    from offcut.cli.demo.promises import delay_figures

    return {"with": delay_figures([item["took_s"] for item in started]), "without": delay_figures(alone)}


def _promise_words(promise: str, document: dict[str, Any]) -> str:
    """Return what was checked."""
    if promise != "queue_never_waits":
        return promise.replace("_", " ")
    bound_s = document["hand_backs"]["bound_s"]
    if "main_jobs" in document:
        return f"every main job started within {bound_s:g} s of its sbatch"
    return f"every wanted node was released within {bound_s:g} s"


def _report(paths: StatePaths, document: dict[str, Any], target: Path) -> Path:
    from offcut.report.html import table
    from offcut.report.run_report import write_report

    headings = ("id", "state", "steps", "steps_lost", "steps_redone", "loss", "reference_loss", "difference")
    rows = [[job[heading] for heading in headings] for job in document["jobs"]]
    jobs = table([heading.replace("_", " ") for heading in headings], rows)
    promises = {_promise_words(promise, document): held for promise, held in document["promises"].items()}
    written = write_report(paths, promises=promises, jobs=jobs)
    target.write_bytes(written.read_bytes())
    return target.absolute()


def _summarise(document: dict[str, Any], checks: list[JobCheck]) -> None:
    figures = ("stable steps", "lost", "redone", "loss", "undisturbed", "difference")
    title = "What was trained on nodes that came and went, compared with an undisturbed run"
    table = Sheet("job", "state", *figures, right=figures, title=title)
    for item in checks:
        table.add_row(
            *(item.id, item.state, f"{item.steps:,}", str(item.lost), str(item.redone)),
            "" if item.loss is None else f"{item.loss:.6f}",
            "" if item.reference_loss is None else f"{item.reference_loss:.6f}",
            "" if item.difference is None else f"{item.difference:.1e}",
        )
    print_table(table)
    resizes, hand_backs, node_s = document["resizes"], document["hand_backs"], document["node_seconds"]
    if resizes["count"]:
        line(
            f"{resizes['count']} resizes: median {resizes['p50_ms']:.0f} ms, 95 % within {resizes['p95_ms']:.0f} ms, "
            "from the controller's decision to the first step in the new generation."
        )
    if "main_jobs" in document:
        _show_main_jobs(document["main_jobs"])
    elif hand_backs["count"]:
        line(
            f"{hand_backs['count']} nodes wanted while held, {hand_backs['late']} late; "
            f"the slowest was released after {hand_backs['longest_s']:.2f} s (bound: {hand_backs['bound_s']:g} s)."
        )
    used = node_s["used"] / node_s["offered"] if node_s["offered"] else 0.0
    line(f"{node_s['used']:.0f} of {node_s['offered']:.0f} idle node-seconds trained ({100 * used:.0f} %).")
    for promise, held in document["promises"].items():
        verdict = text("held", "green") if held else text("BROKEN", "bold red")
        line(verdict, f" {_promise_words(promise, document)}", indent="  ")
    line(f"The report, with who had which node when: {document['report']}")


def _show_main_jobs(main_jobs: dict[str, Any]) -> None:
    for words, key in (("with offcut", "with"), ("on idle nodes without it", "without")):
        figures = main_jobs[key]
        if figures["n"]:
            line(
                f"Main jobs, from sbatch to the script's start, {words}: p50 {figures['p50_s']:.2f} s, "
                f"p90 {figures['p90_s']:.2f} s, longest {figures['longest_s']:.2f} s ({figures['n']} jobs)."
            )
