"""Tells the controller whether the lease on the shared directory surely is its own."""

from __future__ import annotations

import asyncio

from offcut.model import events
from offcut.service.controller import Controller
from offcut.service.lease import Lease

#: How often the lease is looked at; that needs no file.
LOOK_S = 1.0


async def watch(lease: Lease, controller: Controller) -> None:
    """Report each change, until cancelled.

    While the shared directory hangs the lease cannot be renewed, and a controller on another host may have taken it
    over. This one must claim nothing then: it would claim the same nodes.
    """
    while True:
        if lease.certain == controller.state.lease_uncertain:
            controller.handle(events.LeaseChecked(time_s=controller.clock.now(), certain=lease.certain))
        await asyncio.sleep(LOOK_S)
