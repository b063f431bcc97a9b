"""The elastic training of this process, which has one at most: where a script's calls find it."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch.utils.data import DataLoader

from offcut.errors import InputError
from offcut.torch.elastic_parts.elastic_training import ElasticTraining
from offcut.torch.membership.process_exit import Left
from offcut.torch.membership.state_checksum import sums
from offcut.torch.state.model_state import FrozenWeights
from offcut.torch.state.training_state import Stateful

_current: ElasticTraining | None = None


def begin(
    model: torch.nn.Module,
    optimizers: list[torch.optim.Optimizer],
    loaders: Sequence[DataLoader[Any]],
    registered: Sequence[Stateful],
    virtual_shards: int | None,
    *,
    several: bool,
    without_frozen: bool = False,
    max_local_batch: int | None = None,
) -> ElasticTraining:
    """Make the elastic training of this process. InputError if it has one already, in a job or under way."""
    global _current  # noqa: PLW0603 - a script's calls find it here
    if _current is not None and (_current.begun or _current.training.link is not None):
        raise InputError(
            "offcut.torch.elastic: the script has an elastic training already.",
            next_step="Call elastic() once, before the loops, with all that is trained in them: "
            "elastic([first, second], [optimizer1, optimizer2], [loader1, loader2]). A worker that joins late needs "
            "them all before it goes on with the others. Trainings that have nothing in common are two jobs.",
        )
    if _current is None:
        atexit.register(_finish_at_exit)
        _watch_exit()
    _current = ElasticTraining(
        *(model, optimizers, loaders, registered),
        several=several,
        virtual_shards=virtual_shards,
        max_local_batch=max_local_batch,
    )
    if without_frozen:
        state = _current.state
        frozen = state.model_state.frozen = FrozenWeights(model, optimizers, sums)
        state.settings |= {f"the frozen {name}": f"{total:x}" for name, total in frozen.checksums.items()}
    return _current


def current(call: str) -> ElasticTraining:
    """Return the elastic training of this process.

    Args:
        call: what the script called, for the error.

    Raises:
        InputError: there is none.
    """
    if _current is None:
        raise InputError(
            f"offcut.torch.{call}() without an elastic training.",
            next_step="Call offcut.torch.elastic(model, optimizer, loader) first.",
        )
    return _current


def find() -> ElasticTraining | None:
    """Return the elastic training of this process; None if it has none."""
    return _current


def finish_at_end() -> None:
    """End the training of a script that has left its loop over the epochs by `break`, and ended without an error."""
    if _current is not None and _current.begun:
        _current.finish()


#: What the script has given to `sys.exit`: None or 0 where it has ended without an error.
_exit_status: Any = None


def _watch_exit() -> None:
    """Note what the script gives to `sys.exit`, which Python does not say at its end."""
    own_exit = sys.exit

    def noted_exit(status: Any = None, /) -> NoReturn:
        global _exit_status  # noqa: PLW0603 - Python's end finds it here
        _exit_status = status
        own_exit(status)

    sys.exit = noted_exit


def _finish_at_exit() -> None:
    """End the training where Python itself has run the script, unless an error has ended it."""
    if getattr(sys, "last_value", None) is None and not _exit_status:
        try:
            finish_at_end()
        except Left:
            os._exit(0)
