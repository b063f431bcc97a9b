"""`offcut up`: run a controller."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from offcut.cli.shared import StateOption
from offcut.errors import InputError


def up(
    state: StateOption = None,
    nodes: Annotated[int, typer.Option(min=1, max=256, help="Virtual nodes of the local cluster.")] = 4,
    windows: Annotated[
        Path | None, typer.Option(help="When nodes are idle (node,start_s,end_s); default: always.", dir_okay=False)
    ] = None,
    time_scale: Annotated[float, typer.Option(min=0.001, help="Seconds of the windows file in one second.")] = 1.0,
    grace: Annotated[float, typer.Option(min=0.0, help="Seconds after which a wanted node is taken.")] = 1.0,
    policy: Annotated[
        str | None, typer.Option(help="A baseline's name or file.py:function; default: the exact optimum.")
    ] = None,
    horizon: Annotated[
        float | None, typer.Option(help="How long an allocation is expected to last, seconds (default: 120).")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="HOST[:PORT] that agents dial over a network, behind TLS; default: loopback.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with a table [settings].")] = None,
    wait_begin: Annotated[bool, typer.Option(hidden=True, help="Start the windows' clock by request.")] = False,
    preload: Annotated[str, typer.Option(help="Modules that workers want, imported once (a,b).")] = "",
    log_json: Annotated[bool, typer.Option(help="Log JSON lines instead of text.")] = False,
) -> None:
    """Run a controller with a cluster of virtual nodes on this machine, until Ctrl-C.

    Example: `offcut up --nodes 4 --state /tmp/offcut`, then in another terminal
    `offcut submit train.py --sizes 1:4 --state /tmp/offcut`.
    """
    import asyncio
    from importlib.util import find_spec

    from offcut.cli.logging import configure
    from offcut.cluster.local.schedule import Schedule
    from offcut.cluster.local.site import LocalSite
    from offcut.service.config import read_settings
    from offcut.service.paths import default_state_dir
    from offcut.service.run import ServiceConfig, serve

    configure(json_lines=log_json)
    if find_spec("torch") is None:
        raise InputError("A controller on this machine needs torch.", next_step="Run: pip install 'offcut[torch]'")
    if policy is not None:
        from offcut.allocate import policy as policies

        policies.load(policy)
    if windows is not None:
        from offcut.traces.windows import read_windows

        schedule = Schedule.of_trace(read_windows(windows), start_s=0.0, time_scale=time_scale, duration_s=float("inf"))
    else:
        schedule = Schedule.always_idle(f"n{i:02d}" for i in range(1, nodes + 1))
    site = LocalSite(schedule=schedule, grace_s=grace, preload=tuple(name for name in preload.split(",") if name))
    service = ServiceConfig(
        state_dir=(state or default_state_dir()).absolute(),
        settings=read_settings(config, horizon_s=horizon),
        site=site,
        policy=policy,
        listen=listen,
        begin=not wait_begin,
    )
    asyncio.run(serve(service))
    from offcut.report.run import write_report
    from offcut.service.paths import StatePaths

    report = write_report(StatePaths(service.state_dir))
    typer.echo(f"The report is {report}", err=True)
