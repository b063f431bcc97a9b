"""Commands about jobs: submit, status, why, cancel, pause, resume, logs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from offcut.cli.shared import JsonOption, StateOption, client, console, count, print_json, seconds
from offcut.errors import InputError

JobArgument = Annotated[str, typer.Argument(help="The job's id or name.")]


def submit(
    what: Annotated[Path, typer.Argument(help="A training script, or a job file that ends in .toml.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="After --: the script's own arguments.")] = None,
    name: Annotated[str | None, typer.Option(help="What to call it; default: the script's name.")] = None,
    sizes: Annotated[str | None, typer.Option(help="Node counts it may have: 4, 1:8, 2:8:2 or 1,2,4.")] = None,
    weight: Annotated[float | None, typer.Option(help="How much its throughput counts.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher is served first.")] = None,
    ranks_per_node: Annotated[int | None, typer.Option(help="Training processes on each node.")] = None,
    mode: Annotated[str | None, typer.Option(help="session, or restart for a script that knows nothing of it.")] = None,
    goal_samples: Annotated[int | None, typer.Option(help="Stop after so many samples.")] = None,
    max_failures: Annotated[int | None, typer.Option(help="Failures in a row that are forgiven.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE for its processes; repeatable.")] = None,
    workdir: Annotated[Path | None, typer.Option(help="Where it runs; default: here.")] = None,
    plans: Annotated[Path | None, typer.Option(help="Of a pipeline job: what `offcut plan --save` wrote.")] = None,
    checkpoint_age: Annotated[float | None, typer.Option(help="At most so many seconds are redone.")] = None,
    step_records: Annotated[bool, typer.Option(help="Write down which samples every step used.")] = False,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Submit a malleable training job.

    Examples: `offcut submit train.py --sizes 1:8 --name digits -- --lr 0.1`, `offcut submit job.toml`,
    `offcut submit ddp.py --mode restart --sizes 1:4`
    """
    from offcut.wire.jobspec import check_files, parse_job, read_job_file

    given: dict[str, Any] = {
        "name": name,
        "sizes": sizes,
        "weight": weight,
        "priority": priority,
        "ranks_per_node": ranks_per_node,
        "mode": mode,
        "goal_samples": goal_samples,
        "max_failures": max_failures,
        "checkpoint_age_s": checkpoint_age,
        "step_records": step_records or None,
        "plans": None if plans is None else str(plans.absolute()),
    }
    given = {field: value for field, value in given.items() if value is not None}
    if env:
        given["env"] = dict(_pair(item) for item in env)
    if what.suffix == ".toml":
        if arguments:
            raise InputError(f"{what}: a job file has its own arguments.", next_step="Write them into its command.")
        base = read_job_file(what)
        spec = parse_job(base.model_dump(exclude_unset=True, exclude_none=True) | given, where="options")
    else:
        here = (workdir or Path.cwd()).absolute()
        command = [str(what.absolute()), *(arguments or [])]
        given = {"name": what.stem, **given, "command": command, "workdir": str(here)}
        spec = check_files(parse_job(given, where="options"), where="options")
    with client(state) as controller:
        job = controller.post("/v1/jobs", spec.model_dump(exclude_unset=True))
    if json:
        print_json(job)
    else:
        console.print(f"Submitted [bold]{job['id']}[/], sizes {job['sizes']}. Follow it with: offcut status")


def _pair(item: str) -> tuple[str, str]:
    variable, found, value = item.partition("=")
    if not found or not variable:
        raise InputError(f"--env: '{item}' is not NAME=VALUE.", next_step="Write for example --env SEED=3")
    return variable, value


def status(
    job: Annotated[str | None, typer.Argument(help="Only this job.")] = None,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Show jobs and nodes.

    Examples: `offcut status`, `offcut status digits --json`
    """
    from offcut.cli.tables import cluster_lines, job_table, node_table, task_lines

    with client(state) as controller:
        shown = controller.get(f"/v1/jobs/{job}") if job else controller.get("/v1/status")
    if json:
        print_json(shown)
        return
    jobs = [shown] if job else shown["jobs"]
    console.print(job_table(jobs))
    if not job:
        console.print(node_table(shown["nodes"]))
        for line in cluster_lines(shown["cluster"]):
            console.print(line, highlight=False)
        for node in shown["aside"]:
            until = _clock(node["until_s"])
            console.print(f"{node['name']} is set aside until {until}: {node['reason']}", markup=False)
        for event in shown["skipped"][-3:]:
            console.print(
                f"Event {event['event_id']} ({event['kind']}) could not be answered: {event['reason']}", markup=False
            )
        for line in task_lines(shown["tasks"]):
            console.print(line, markup=False, highlight=False)
        if not shown["claiming"]:
            console.print("Claiming is off; turn it on with: offcut release --undo")


def why(job: JobArgument, state: StateOption = None, json: JsonOption = False) -> None:
    """Explain a job's size: what it has, what the allocator decided, what happened last.

    Example: `offcut why digits`
    """
    with client(state) as controller:
        told = controller.get(f"/v1/jobs/{job}/why")
    if json:
        print_json(told)
        return
    shown = told["job"]
    console.print(
        f"[bold]{shown['id']}[/] is {shown['state']} on {shown['size']} nodes of {shown['sizes']}, "
        f"for {seconds(told['since_s'])}."
    )
    for line in told.get("words", []):
        console.print(f"  {line}")
    for entry in told["story"]:
        console.print(f"  [dim]{_clock(entry['time_s'])}[/] {entry['text']}", highlight=False)


def _clock(time_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(time_s))


def _ask(verb: str, job: str, state: Path | None, json: bool) -> None:
    with client(state) as controller:
        shown = controller.post(f"/v1/jobs/{job}/{verb}")
    if json:
        print_json(shown)
    else:
        console.print(f"{shown['id']} is {shown['state']}.")


def cancel(job: JobArgument, state: StateOption = None, json: JsonOption = False) -> None:
    """End a job now. Example: `offcut cancel digits`"""
    _ask("cancel", job, state, json)


def pause(job: JobArgument, state: StateOption = None, json: JsonOption = False) -> None:
    """Take all nodes from a job; its state is kept. Example: `offcut pause digits`"""
    _ask("pause", job, state, json)


def resume(job: JobArgument, state: StateOption = None, json: JsonOption = False) -> None:
    """Let a paused job go on. Example: `offcut resume digits`"""
    _ask("resume", job, state, json)


def change(
    job: JobArgument,
    sizes: Annotated[str | None, typer.Option(help="New allowed sizes.")] = None,
    weight: Annotated[float | None, typer.Option(help="New weight.")] = None,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Change a live job. Example: `offcut change digits --sizes 2:4 --weight 3`"""
    if sizes is None and weight is None:
        raise InputError("change: nothing to change.", next_step="Give --sizes or --weight.")
    with client(state) as controller:
        shown = controller.patch(f"/v1/jobs/{job}", {"sizes": sizes, "weight": weight})
    if json:
        print_json(shown)
    else:
        console.print(f"{shown['id']}: sizes {shown['sizes']}, weight {count(shown['weight'])}.")


def logs(
    job: JobArgument,
    worker: Annotated[str | None, typer.Option(help="Only the worker whose name starts so (n03).")] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="The last lines of each.")] = 50,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Show what a job's workers printed, newest worker last.

    Example: `offcut logs digits -n 20`
    """
    with client(state) as controller:
        where = controller.get(f"/v1/jobs/{job}/directory")
    found = sorted(Path(where["directory"]).glob("logs/*.log"), key=lambda path: path.stat().st_mtime)
    chosen = [path for path in found if worker is None or path.name.startswith(worker)]
    tails = [(path.stem, path.read_text(errors="replace").splitlines()[-lines:]) for path in chosen]
    if json:
        print_json([{"worker": name, "lines": tail} for name, tail in tails])
        return
    for name, tail in tails:
        if tail:
            console.print(f"[bold]{name}[/]", highlight=False)
            for line in tail:
                console.print(f"  {line}", markup=False, highlight=False)
    if not tails:
        console.print("No worker has printed anything yet.")
