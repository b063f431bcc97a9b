"""Finds what scripts do that sessions and elastic parts cannot train with, and says what to do instead."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from offcut.errors import InputError
from offcut.wire.worker_env import ENV_AGENT

#: Ends the next step of an error about which there is more to say.
MORE = "docs/pitfalls.md says more."
_launcher_told = False
_session_made = False


def check_only_session(call: str) -> None:
    """Raise InputError if a script in a job makes a second session, which would wait for a first generation for ever.

    Args:
        call: what the script called, for the error.
    """
    if _session_made:
        raise InputError(
            f"{call}: the script has a session already, and a job has one.",
            next_step="Train in one session, or let each training be a job. With offcut.torch.elastic() a script may "
            f"have several loops over epochs(). {MORE}",
        )


def note_session() -> None:
    """Note that this process has a session, if it is a worker of a job."""
    global _session_made  # noqa: PLW0603 - a process has one
    _session_made = ENV_AGENT in os.environ


def check_optimizers(call: str, optimizers: Iterable[Any]) -> None:
    """Raise InputError if an optimizer cannot be used.

    Args:
        call: what the script called, for the error.
        optimizers: what it gave as optimizers.
    """
    for optimizer in optimizers:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InputError(
                f"{call}: an optimizer is of the type {type(optimizer).__name__}.",
                next_step="Give an optimizer of torch's, or a list of them.",
            )
        if isinstance(optimizer, torch.optim.LBFGS):
            raise InputError(
                f"{call}: LBFGS computes several gradients within one step().",
                next_step=f"Use an optimizer that needs one gradient for each step. {MORE}",
            )


def check_dataset(call: str, dataset: Any) -> None:
    """Raise InputError if a session cannot draw samples from a dataset.

    Args:
        call: what the script called, for the error.
        dataset: what it gave as the dataset.
    """
    if isinstance(dataset, DataLoader):
        raise InputError(
            f"{call}: the dataset is a DataLoader.",
            next_step="Give the dataset that it loads (loader.dataset), and its collate_fn as collate. To keep the "
            f"loader, use offcut.torch.elastic(). {MORE}",
        )
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise InputError(
            f"{call}: the dataset, a {type(dataset).__name__}, has no length, or cannot be indexed.",
            next_step=f"Give a map-style dataset, or use offcut.torch.elastic() for a stream. {MORE}",
        )
    if len(dataset) == 0:
        raise InputError(f"{call}: the dataset is empty.", next_step="Give at least one sample.")


def check_loss(call: str, loss: Any) -> None:
    """Raise InputError if a loss is not a scalar tensor.

    Args:
        call: what the script called, or gave the loss function to, for the error.
        loss: the loss.
    """
    if not isinstance(loss, torch.Tensor):
        raise InputError(
            f"{call}: the loss is of the type {type(loss).__name__}.",
            next_step=f"Give the tensor, not its value: leave .item() out. {MORE}",
        )
    if loss.numel() != 1:
        raise InputError(
            f"{call}: the loss has the shape {tuple(loss.shape)}, and must be a scalar.",
            next_step=f"Give the mean over the samples: reduction='mean', or loss.mean(). {MORE}",
        )


def explain_single_sample(error: BaseException | None) -> None:
    """Add to BatchNorm's error about a single value what can be done about a share of one sample.

    Args:
        error: what has ended the training, if an error has.
    """
    if isinstance(error, ValueError) and "more than 1 value per channel" in str(error):
        error.add_note(
            "offcut: a member worked on a single sample. Larger global batches, drop_last=True, larger max_local_batch "
            f"or min_local_batch, or fewer virtual_shards avoid it. {MORE}"
        )


def warn_of_launcher() -> None:
    """Warn, once in a process, if the environment says that a launcher such as torchrun has started this script."""
    global _launcher_told  # noqa: PLW0603 - what was said, was said by the process
    world = os.environ.get("WORLD_SIZE")
    if _launcher_told or (world is None and "RANK" not in os.environ):
        return
    by_launcher = "TORCHELASTIC_RUN_ID" in os.environ or "LOCAL_WORLD_SIZE" in os.environ
    if ENV_AGENT not in os.environ and by_launcher:
        if world == "1":
            return
        text = (
            f"torchrun has started {world} processes of this script, and each trains by itself on all of the data. "
            "Start it by python, or as a job of offcut."
        )
    else:
        text = (
            "RANK or WORLD_SIZE is set in the environment. Libraries that look for them (Accelerate, Lightning, the "
            "Trainer of transformers) would wait for processes that offcut does not start. Unset them."
        )
    _launcher_told = True
    warnings.warn(f"offcut: {text} {MORE}", stacklevel=4)
