"""An evaluation whose batches the members share out, with the same numbers on all of them.

Each member computes every n-th batch for n members. The batches' sums are added in the order of the batches, so the
result does not depend on who has computed which: it is the same at any size, and a member whose generation breaks
computes the other members' batches itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from offcut.errors import InputError
from offcut.torch.elastic_parts.elastic_training import ElasticTraining
from offcut.torch.membership.process_group import Abandoned, Group
from offcut.torch.state.random_state import random_state, set_random_state
from offcut.torch.step.batch import seed_everything

#: What a batch adds to the result: a sum and a number of values for each of what the script's function returns.
_Sums = list[float]


def evaluate(training: ElasticTraining, loader: Iterable[Any], fn: Callable[..., Any]) -> float | tuple[float, ...]:
    """Return the mean of what `fn` returns over all samples of `loader`; see `offcut.torch.evaluate`."""
    group, in_job = training.together, training.training.link is not None
    with _apart(training):
        mine, count = _compute(loader, fn, group, in_job=in_job)
        if group is not None:
            try:
                return _means(_exchange(training, group, mine, count))
            except Abandoned as reason:
                training.abandon(reason)
            _start(training)
            others, _ = _compute(loader, fn, None, known=mine, in_job=in_job)
            mine |= others
    return _means([mine[i] for i in range(count)])


@contextmanager
def _apart(training: ElasticTraining) -> Iterator[None]:
    """Evaluate without gradients, in evaluation mode, and without a trace in the training's random numbers."""
    model, before, buffers = training.state.model, random_state(), training.state.buffers
    modes = [(module, module.training) for module in model.modules()]
    # In the middle of a step each virtual shard has buffers of its own: what all have are those before the step.
    of_shard = buffers.copies() if training.step.shards is not None and training.in_step else None
    try:
        model.eval()
        if of_shard is not None:
            buffers.put(None)
        _start(training)
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        if of_shard is not None:
            buffers.put(of_shard)
        set_random_state(before)


def _start(training: ElasticTraining) -> None:
    """Seed what a loader that shuffles draws: the same on all members."""
    seed_everything(0, training.state.step, 1, torch.device("cpu"))


def _compute(
    loader: Iterable[Any],
    fn: Callable[..., Any],
    group: Group | None,
    known: dict[int, _Sums] | None = None,
    *,
    in_job: bool,
) -> tuple[dict[int, _Sums], int]:
    """Return the sums of this member's batches, of all without a group, and the number of batches.

    Batches that are `known` are not computed.
    """
    mine: dict[int, _Sums] = {}
    count = 0
    for i, data in wanted_batches(
        loader, lambda i: _is_mine(i, group) and (known is None or i not in known), in_job=in_job
    ):
        if data is not None:
            mine[i] = _sums(fn(*data[0]) if isinstance(data[0], (list, tuple)) else fn(data[0]))
        count = i + 1
    if count == 0:
        raise InputError("offcut.torch.evaluate: the loader has no batch.", next_step="Give at least one sample.")
    return mine, count


def _is_mine(i: int, group: Group | None) -> bool:
    return group is None or i % group.world == group.rank


def wanted_batches(
    loader: Iterable[Any], wanted: Callable[[int], bool], *, in_job: bool
) -> Iterator[tuple[int, tuple[Any] | None]]:
    """Yield the number and data of each batch, without data where it is not wanted; such are loaded only if need be."""
    sampler = getattr(loader, "batch_sampler", None)
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset) or sampler is None:
        for i, data in enumerate(loader):
            yield i, ((data,) if wanted(i) else None)
        return
    batches = list(sampler)
    # In a job no process is forked now: it would inherit the members' process groups.
    processes = 0 if in_job else loader.num_workers
    own = DataLoader(
        loader.dataset,
        batch_sampler=[batch for i, batch in enumerate(batches) if wanted(i)],
        num_workers=processes,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout if processes else 0,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context if processes else None,
        prefetch_factor=loader.prefetch_factor if processes else None,
    )
    loaded = iter(own)
    for i in range(len(batches)):
        yield i, ((next(loaded),) if wanted(i) else None)


def _sums(values: Any) -> _Sums:
    """Return the sum and the number of the values of each tensor in what a script's function has returned."""
    sums: list[float] = []
    for tensor in values if isinstance(values, tuple) else (values,):
        if not isinstance(tensor, torch.Tensor) or tensor.dim() == 0:
            raise InputError(
                "offcut.torch.evaluate: the function returned no value for each sample.",
                next_step="Let it return a tensor with one value for each sample of the batch (or a tuple of such), as "
                "in `model(x).argmax(1) == y`, or a loss with reduction='none'.",
            )
        sums += [float(tensor.double().sum()), float(tensor.numel())]
    return sums


def _exchange(training: ElasticTraining, group: Group, mine: dict[int, _Sums], count: int) -> list[_Sums]:
    """Return the sums of all batches, in their order. Raises Abandoned."""
    reporter = training.training.reporter
    reporter.script_runs(False)
    try:
        # A member without a batch does not know how many numbers one has.
        width = max(row[0] for row in group.gather([max((len(sums) for sums in mine.values()), default=0)]))
        table = torch.zeros(count, width, dtype=torch.float64, device="cpu")
        for i, sums in mine.items():
            table[i] = torch.tensor(sums, dtype=torch.float64, device="cpu")
        group.wait(group.start_all_reduce(table))
    finally:
        reporter.script_runs(True)
    found: list[_Sums] = table.tolist()
    return found


def _means(rows: list[_Sums]) -> float | tuple[float, ...]:
    totals = [sum(column) for column in zip(*rows, strict=True)]
    means = [total / count if count else float("nan") for total, count in zip(totals[::2], totals[1::2], strict=True)]
    return means[0] if len(means) == 1 else tuple(means)
