"""Chooses what sums the gradients of large models."""

from __future__ import annotations

import os
from collections.abc import Callable

from offcut.errors import InputError
from offcut.torch.transport.gloo import GlooTransport
from offcut.torch.transport.nccl import NcclTransport
from offcut.torch.transport.protocol import Transport

#: Makes a transport out of what it calls, in any thread, when an operation has ended.
MakeTransport = Callable[[Callable[[], None]], Transport]
#: The transports of gradients, by name.
TRANSPORTS: dict[str, MakeTransport] = {"gloo": GlooTransport, "nccl": NcclTransport}
#: The environment variable that names one; the same on all members of a job.
ENV_DATA_TRANSPORT = "OFFCUT_DATA_TRANSPORT"


def data_transport() -> MakeTransport:
    """Return what makes transports for gradients: gloo unless the environment names another.

    Raises:
        InputError: there is no transport of the name.
    """
    name = os.environ.get(ENV_DATA_TRANSPORT) or "gloo"
    if name not in TRANSPORTS:
        raise InputError(
            f"{ENV_DATA_TRANSPORT} is {name!r}.", next_step=f"It must be one of: {', '.join(sorted(TRANSPORTS))}."
        )
    return TRANSPORTS[name]
