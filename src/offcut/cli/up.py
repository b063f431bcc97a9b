"""`offcut up`: run a controller."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from offcut.cli.options import StateOption
from offcut.cli.output import print_json
from offcut.errors import InputError


def up(
    state: StateOption = None,
    share: Annotated[
        Path | None,
        typer.Option(help="What agents see: on a file system that nodes share (default: the state directory)."),
    ] = None,
    cluster: Annotated[
        Literal["local", "slurm"],
        typer.Option(help="Virtual nodes of this machine, or the idle nodes of a Slurm cluster."),
    ] = "local",
    partition: Annotated[str | None, typer.Option(help="Slurm: where pilots are submitted.")] = None,
    mode: Annotated[
        Literal["preemptible", "backfill"] | None,
        typer.Option(help="Slurm: how its queue gets nodes back (default: what is safe there)."),
    ] = None,
    account: Annotated[str | None, typer.Option(help="Slurm: charged for pilots.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Slurm: show what would be claimed and why; exit.")
    ] = False,
    nodes: Annotated[int, typer.Option(min=1, max=256, help="Virtual nodes of the local cluster.")] = 4,
    windows: Annotated[
        Path | None, typer.Option(help="When nodes are idle (node,start_s,end_s); default: always.", dir_okay=False)
    ] = None,
    time_scale: Annotated[float, typer.Option(min=0.001, help="Seconds of the windows file in one second.")] = 1.0,
    grace: Annotated[float, typer.Option(min=0.0, help="Seconds after which a wanted node is taken.")] = 1.0,
    policy: Annotated[
        str | None, typer.Option(help="A baseline's name or file.py:function; default: the exact optimum.")
    ] = None,
    profiler: Annotated[
        str | None,
        typer.Option(help="The model that estimates scaling curves (default: gp): amdahl, oracle, ... or file.py:f."),
    ] = None,
    horizon: Annotated[
        float | None, typer.Option(help="How long an allocation is expected to last, seconds (default: 120).")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="HOST[:PORT] that agents dial over a network, behind TLS; default: loopback.")
    ] = None,
    page: Annotated[
        str | None,
        typer.Option(help="[HOST:]PORT of the page for browsers, a named host behind TLS; off: none. See: offcut page"),
    ] = None,
    page_actions: Annotated[
        bool, typer.Option("--page-actions", help="The page may pause, resume, change and cancel, and release nodes.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(help="TOML file: tables [settings] and [slurm].", dir_okay=False)
    ] = None,
    wait_begin: Annotated[bool, typer.Option(hidden=True, help="Start the windows' clock by request.")] = False,
    preload: Annotated[str, typer.Option(help="Modules that workers need, imported once (a,b).")] = "",
    detach: Annotated[
        bool, typer.Option("--detach", help="Start it in the background; return when it is ready.")
    ] = False,
    ready_fd: Annotated[int | None, typer.Option(hidden=True, help="Where to say that it is ready.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output, at the end.")] = False,
    log_json: Annotated[bool, typer.Option(help="Log JSON lines instead of text.")] = False,
) -> None:
    """Run a controller until Ctrl-C, with virtual nodes on this machine or with the idle nodes of a Slurm cluster.

    Examples: `offcut up --nodes 4`, then in another terminal `offcut submit train.py --sizes 1:4`. `--detach` starts it
    in the background.
    `offcut up --cluster slurm --partition preempt --dry-run`, and without `--dry-run` to begin.
    """
    import asyncio
    import os
    from dataclasses import replace

    from offcut.cli.detach import say_ready, start_detached
    from offcut.cli.final_report import write_at_the_end
    from offcut.cli.logging import configure
    from offcut.service.config import read_settings, read_slurm_site
    from offcut.service.paths import StatePaths, default_state_dir
    from offcut.service.run import ServiceConfig, run

    log = configure(json_lines=log_json)
    root = (state or default_state_dir()).absolute()
    paths = StatePaths(root, share and share.absolute())
    given = {"partition": partition, "mode": mode, "account": account}
    site: Any
    if cluster == "slurm":
        site = read_slurm_site(config, **given)
    elif unused := [f"--{name}" for name, value in given.items() if value is not None] + ["--dry-run"] * dry_run:
        raise InputError(f"up: {unused[0]} is about Slurm.", next_step="Add: --cluster slurm")
    else:
        site = _virtual_nodes(nodes, windows, time_scale, grace, preload)
    if dry_run:
        from offcut.cli.dry_run import show

        asyncio.run(show(site, paths.shared, json=json))
        return
    if policy is not None:
        from offcut.allocate import policy as policies

        policies.load(policy)
    service = ServiceConfig(
        state_dir=root,
        share=paths.share,
        settings=read_settings(config, horizon_s=horizon, profiler=profiler),
        site=site,
        policy=policy,
        listen=listen,
        page=page,
        page_actions=page_actions,
        begin=not wait_begin,
        ready=say_ready(ready_fd),
    )
    if detach:
        start_detached(paths, json=json)
        return
    # Files of the controller are for their owner only; files of a script keep the user's umask.
    service = replace(service, worker_umask=os.umask(0o077))
    try:
        run(service)
    finally:
        log.flush(1.0)
    report = write_at_the_end(paths, service.settings.report_limit_s)
    if json:
        print_json({"state": str(root), "report": None if report is None else str(report)})


def _virtual_nodes(nodes: int, windows: Path | None, time_scale: float, grace_s: float, preload: str) -> Any:
    """Return the local cluster that the options describe."""
    from importlib.util import find_spec

    from offcut.cluster.local.schedule import Schedule
    from offcut.cluster.local.site import LocalSite

    if find_spec("torch") is None:
        raise InputError("A controller on this machine needs torch.", next_step="Run: pip install 'offcut[torch]'")
    if windows is not None:
        from offcut.traces.windows import read_windows

        schedule = Schedule.of_trace(read_windows(windows), start_s=0.0, time_scale=time_scale, duration_s=float("inf"))
    else:
        schedule = Schedule.always_idle(f"n{i:02d}" for i in range(1, nodes + 1))
    return LocalSite(schedule=schedule, grace_s=grace_s, preload=tuple(name for name in preload.split(",") if name))
