"""Finds what a script has done that cannot be made elastic, and says what to do instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from offcut.errors import InputError
from offcut.torch.elastic_parts.sharded_stream import is_sharded
from offcut.torch.elastic_parts.virtual_shards import MOST_SHARDS
from offcut.torch.step.usage_checks import check_optimizers, warn_of_launcher


def check_arguments(
    model: torch.nn.Module, optimizers: list[torch.optim.Optimizer], loaders: Sequence[Any], state: Iterable[Any]
) -> None:
    """Raise InputError if something cannot be used in a loop of the script's own.

    Args:
        model: what `elastic` was given as model, or a list of all of them.
        optimizers: what it was given as optimizers.
        loaders: what it was given as loaders.
        state: what it was given as state.
    """
    for i, item in enumerate(state):
        if not (hasattr(item, "state_dict") and hasattr(item, "load_state_dict")):
            raise InputError(
                f"offcut.torch.elastic: state[{i}] is of the type {type(item).__name__}, which has no state.",
                next_step="Give objects with state_dict() and load_state_dict(), such as schedulers.",
            )
    if any(type(module) is torch.nn.SyncBatchNorm for module in model.modules()):
        raise InputError(
            "offcut.torch.elastic: the model has torch.nn.SyncBatchNorm layers, which know no members.",
            next_step="Use offcut.torch.SyncBatchNorm.convert_sync_batchnorm(model), before the optimizer is made.",
        )
    sparse = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    if any(isinstance(module, sparse) and module.sparse for module in model.modules()) or any(
        isinstance(optimizer, torch.optim.SparseAdam) for optimizer in optimizers
    ):
        raise InputError(
            "offcut.torch.elastic: sparse gradients cannot be summed over the members.",
            next_step="Make embeddings with sparse=False, and use Adam or Adagrad in place of SparseAdam.",
        )
    check_optimizers("offcut.torch.elastic", optimizers)
    warn_of_launcher()
    if not loaders:
        raise InputError("offcut.torch.elastic: there is no loader.", next_step="Give a torch.utils.data.DataLoader.")
    for loader in loaders:
        _check_loader(loader)


def _check_loader(loader: Any) -> None:
    if not isinstance(loader, DataLoader):
        raise InputError(
            f"offcut.torch.elastic: the loader is of the type {type(loader).__name__}.",
            next_step="Give a torch.utils.data.DataLoader; its batches are the global ones.",
        )
    if is_sharded(loader.dataset):
        return
    if isinstance(loader.dataset, IterableDataset):
        raise InputError(
            "offcut.torch.elastic: the loader's dataset is a stream without shards, so members cannot share it out.",
            next_step="Give it `shards` and `open(shard, position)`, as offcut.torch.ShardedStream has them; see "
            "'Streams' in docs/your-script.md.",
        )
    if loader.batch_sampler is None:
        raise InputError(
            "offcut.torch.elastic: the loader makes no batches.",
            next_step="Give the DataLoader a batch_size or a batch_sampler.",
        )


def check_largest(max_local_batch: object) -> None:
    """Check a limit of what a member works on at once.

    Raises:
        InputError: it is not a whole number greater than 0.
    """
    if max_local_batch is not None and (type(max_local_batch) is not int or max_local_batch < 1):
        raise InputError(
            f"offcut.torch.elastic: max_local_batch is {max_local_batch!r}.",
            next_step="It must be a whole number greater than 0, or None.",
        )


def check_shards(virtual_shards: object) -> None:
    """Check a number of virtual shards.

    Raises:
        InputError: it is not a whole number, or too small or too large.
    """
    if virtual_shards is None:
        return
    if type(virtual_shards) is not int or not 1 <= virtual_shards <= MOST_SHARDS:
        raise InputError(
            f"offcut.torch.elastic: virtual_shards is {virtual_shards!r}.",
            next_step=f"It must be a whole number from 1 to {MOST_SHARDS}, or None.",
        )
