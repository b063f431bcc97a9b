"""The predictions of an evaluation of transformers' Trainer, computed by all members and exchanged.

Each member computes every n-th batch for n members. Then all have all batches' predictions, and the Trainer's own loop
makes its metrics of them: the same on every member.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import torch

from offcut.torch.elastic_parts.elastic_training import ElasticTraining
from offcut.torch.elastic_parts.evaluation import wanted_batches
from offcut.torch.membership.process_group import Abandoned, Group
from offcut.torch.state.random_state import random_state, set_random_state


def predict(
    trainer: Any,
    training: ElasticTraining,
    group: Group,
    loader: Any,
    loss_only: bool,
    ignored: list[str] | None,
) -> list[Any]:
    """Return what the Trainer's `prediction_step` returns, for each batch.

    Args:
        trainer: the Trainer.
        training: the elastic training.
        group: the members, all of which evaluate now.
        loader: the loader of the evaluation.
        loss_only: whether only losses are wanted.
        ignored: keys of the model's outputs that are not wanted.

    Returns:
        Loss, logits and labels of each batch, on the CPU.
    """
    loader = getattr(loader, "base_dataloader", loader)
    before = random_state()
    modes = [(module, module.training) for module in trainer.model.modules()]
    model = trainer._wrap_model(trainer.model, training=False)
    model.eval()

    def compute(mine: Any) -> tuple[dict[int, Any], int]:
        found, count = {}, 0
        for i, data in wanted_batches(loader, mine, in_job=True):
            if data is not None:
                found[i] = _on_cpu(trainer.prediction_step(model, data[0], loss_only, ignore_keys=ignored))
            count = i + 1
        return found, count

    try:
        found, count = compute(lambda i: i % group.world == group.rank)
        try:
            found |= _exchange(training, group, found)
        except Abandoned as reason:
            training.abandon(reason)
            found |= compute(lambda i: i not in found)[0]
    finally:
        for module, mode in modes:
            module.training = mode
        set_random_state(before)
    return [found[i] for i in range(count)]


def _on_cpu(tree: Any) -> Any:
    """Return a copy of nested predictions in plain containers."""
    if isinstance(tree, torch.Tensor):
        return tree.detach().cpu()
    if isinstance(tree, Mapping):
        return {key: _on_cpu(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_on_cpu(value) for value in tree) if type(tree) in (list, tuple) else list(map(_on_cpu, tree))
    return tree


def _exchange(training: ElasticTraining, group: Group, mine: dict[int, Any]) -> dict[int, Any]:
    """Return all members' predictions, by batch. Raises Abandoned."""
    written = io.BytesIO()
    torch.save(mine, written)
    own = torch.frombuffer(bytearray(written.getvalue()), dtype=torch.uint8)
    found: dict[int, Any] = {}
    reporter = training.training.reporter
    reporter.script_runs(False)
    try:
        for rank, (size,) in enumerate(group.gather([len(own)])):
            data = own.clone() if rank == group.rank else torch.zeros(size, dtype=torch.uint8)
            group.wait(group.start_all_reduce(data))
            found |= torch.load(io.BytesIO(data.numpy().tobytes()), weights_only=True)
    finally:
        reporter.script_runs(True)
    return found
