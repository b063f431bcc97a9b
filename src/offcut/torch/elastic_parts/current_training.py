"""The elastic training of this process, which has one at most: where a script's calls find it."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from offcut.errors import InputError
from offcut.torch.elastic_parts.elastic_training import ElasticTraining
from offcut.torch.membership.process_exit import Left
from offcut.torch.state.training_state import Stateful

_current: ElasticTraining | None = None


def begin(
    model: torch.nn.Module,
    optimizers: list[torch.optim.Optimizer],
    loader: DataLoader[Any],
    registered: Sequence[Stateful],
    virtual_shards: int | None,
) -> ElasticTraining:
    """Make the elastic training of this process. InputError if it has one already, in a job or under way."""
    global _current  # noqa: PLW0603 - a script's calls find it here
    if _current is not None and (_current.begun or _current.training.link is not None):
        raise InputError(
            "offcut.torch.elastic: the script has an elastic training already.",
            next_step="Call elastic() once, before the loop. Two trainings one after the other are two jobs.",
        )
    if _current is None:
        atexit.register(_finish_at_exit)
    _current = ElasticTraining(model, optimizers, loader, registered, virtual_shards=virtual_shards)
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


def _finish_at_exit() -> None:
    """Do so where Python itself has run the script, which says here whether an error has ended it."""
    if getattr(sys, "last_value", None) is None:
        try:
            finish_at_end()
        except Left:
            os._exit(0)
