"""`offcut certificate`: makes the certificate that a controller needs for agents on a network."""

from __future__ import annotations

from typing import Annotated

import typer

from offcut.cli.options import JsonOption, StateOption
from offcut.cli.output import line, print_json
from offcut.errors import InputError


def certificate(
    host: Annotated[list[str], typer.Option(help="A name or address under which compute nodes see this machine.")],
    state: StateOption = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="For how many days it is valid.")] = 365,
    renew: Annotated[bool, typer.Option("--renew", help="Replace the existing one.")] = False,
    json: JsonOption = False,
) -> None:
    """Make the TLS certificate that `offcut up --listen` uses; agents trust it and no other.

    Example: `offcut certificate --host login1 --host 10.0.0.5`
    """
    from offcut.service.paths import StatePaths, default_state_dir
    from offcut.wire import certificate as certificates

    place = StatePaths((state or default_state_dir()).absolute()).certificates
    if (place / "certificate.pem").exists() and not renew:
        there = certificates.load(place)
        raise InputError(
            f"{there.public} is there already, for {', '.join(there.names)} until {there.until:%Y-%m-%d}.",
            next_step="Replace it with --renew; a running controller takes it up when it is started again.",
        )
    made = certificates.create(place, host, days)
    if json:
        print_json(
            {
                "certificate": str(made.public),
                "key": str(made.key),
                "names": list(made.names),
                "until": made.until.isoformat(),
                "sha256": made.fingerprint,
            }
        )
        return
    line(f"{made.public}: for {', '.join(made.names)} until {made.until:%Y-%m-%d}")
    line(f"SHA-256 {made.fingerprint}")
    line(f"Start the controller with: offcut up --listen {made.names[0]}")
