"""Commands about jobs: submit, why, cancel, pause, resume, forget, change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from offcut.cli.connection import connect
from offcut.cli.options import JobArgument, JsonOption, StateOption
from offcut.cli.output import line, print_json, remark, text
from offcut.errors import InputError
from offcut.number_format import format_clock, format_count, format_duration


def submit(
    what: Annotated[Path, typer.Argument(help="A training script, or a job file that ends in .toml.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="After --: the script's own arguments.")] = None,
    name: Annotated[str | None, typer.Option(help="The job's name; default: the script's name.")] = None,
    sizes: Annotated[str | None, typer.Option(help="Node counts it may have: 4, 1:8, 2:8:2 or 1,2,4.")] = None,
    weight: Annotated[float | None, typer.Option(help="The weight of its throughput in the allocation.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher is served first.")] = None,
    ranks_per_node: Annotated[int | None, typer.Option(help="Training processes on each node.")] = None,
    mode: Annotated[str | None, typer.Option(help="session, or restart for a script without a session.")] = None,
    goal_samples: Annotated[int | None, typer.Option(help="Stop after this many samples.")] = None,
    max_failures: Annotated[int | None, typer.Option(help="Failures in a row before the job fails.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE for its processes; repeatable.")] = None,
    env_file: Annotated[Path | None, typer.Option(help="NAME=VALUE lines: for secrets, which --env shows.")] = None,
    workdir: Annotated[Path | None, typer.Option(help="The working directory; default: the current one.")] = None,
    plans: Annotated[
        Path | None, typer.Option(help="The plans of a pipeline job, as `offcut plan --save` wrote them.")
    ] = None,
    checkpoint_age: Annotated[float | None, typer.Option(help="At most this many seconds of work are redone.")] = None,
    step_records: Annotated[bool, typer.Option(help="Record which samples every step used.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print its log until it has ended, then exit as `offcut wait` does.")
    ] = False,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Submit a malleable training job.

    Examples: `offcut submit train.py --sizes 1:8 --name digits -- --lr 0.1`, `offcut submit job.toml --follow`,
    `offcut submit ddp.py --mode restart --sizes 1:4`
    """
    from offcut.cli.wait import follow_to_end
    from offcut.client.specs import job_spec
    from offcut.wire.jobspec import read_env_file

    if json and follow:
        raise InputError("submit: --json is one document, and --follow has no end.", next_step="Give one of them.")
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
    from_file = read_env_file(env_file) if env_file is not None else {}
    if env or from_file:
        given["env"] = from_file | dict(_pair(item) for item in env or [])
    spec = job_spec(what, arguments or [], given, workdir=workdir, where="options")
    with connect(state) as controller:
        job = controller.post_job(spec)
        if follow:
            remark(f"Submitted {job['id']}, sizes {job['sizes']}. Ctrl-C leaves it alone.")
            raise typer.Exit(follow_to_end(controller.job(job["id"])))
    if json:
        print_json(job)
    else:
        line("Submitted ", text(job["id"], "bold"), f", sizes {job['sizes']}. Follow it with: offcut status")


def _pair(item: str) -> tuple[str, str]:
    variable, found, value = item.partition("=")
    if not found or not variable:
        raise InputError(f"--env: '{item}' is not NAME=VALUE.", next_step="Write for example --env SEED=3")
    return variable, value


def why(job: JobArgument, state: StateOption = None, json: JsonOption = False) -> None:
    """Explain a job's size: what it has, what the allocator decided, what happened last.

    Example: `offcut why digits`
    """
    with connect(state) as controller:
        answer = controller.job(job).why()
    if json:
        print_json(answer)
        return
    shown = answer["job"]
    nodes = f"{shown['size']} nodes of {shown['sizes']}"
    line(text(shown["id"], "bold"), f" is {shown['state']} on {nodes}, for {format_duration(answer['since_s'])}.")
    for sentence in answer.get("words", []):
        line(sentence, indent="  ")
    for entry in answer["story"]:
        line(text(format_clock(entry["time_s"]), "dim"), f" {entry['text']}", indent="  ")


def _show(shown: dict[str, Any], json: bool) -> None:
    if json:
        print_json(shown)
    else:
        line(f"{shown['id']} is {shown['state']}.")


def cancel(job: JobArgument, state: StateOption = None, json: JsonOption = False) -> None:
    """End a job now. Example: `offcut cancel digits`"""
    with connect(state) as controller:
        _show(controller.job(job).cancel(), json)


def pause(job: JobArgument, state: StateOption = None, json: JsonOption = False) -> None:
    """Take all nodes from a job; its state is kept. Example: `offcut pause digits`"""
    with connect(state) as controller:
        _show(controller.job(job).pause(), json)


def resume(job: JobArgument, state: StateOption = None, json: JsonOption = False) -> None:
    """Resume a paused job. Example: `offcut resume digits`"""
    with connect(state) as controller:
        _show(controller.job(job).resume(), json)


def forget(
    jobs: Annotated[list[str], typer.Argument(help="Names or ids of jobs and sweeps that have ended.")],
    files: Annotated[bool, typer.Option("--files", help="Delete their logs, checkpoints and records, too.")] = False,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Remove jobs that have ended from the history, and sweeps with all their trials.

    Examples: `offcut forget digits`, `offcut forget digits-1 digits-2 --files`
    """
    with connect(state) as controller:
        answer = controller.forget(jobs, files=files)
    if json:
        print_json(answer)
        return
    line(f"Forgotten: {', '.join(answer['jobs'])}.")
    if not files:
        line(f"Their files are still there: {', '.join(answer['directories'])}")


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
    with connect(state) as controller:
        shown = controller.job(job).change(sizes=sizes, weight=weight)
    if json:
        print_json(shown)
    else:
        line(f"{shown['id']}: sizes {shown['sizes']}, weight {format_count(shown['weight'])}.")
