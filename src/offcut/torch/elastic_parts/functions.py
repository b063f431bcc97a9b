"""What a script with a loop of its own calls: `offcut.torch.elastic`, `epochs`, `evaluate` and the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

import torch
from torch.utils.data import DataLoader

from offcut.errors import InputError
from offcut.torch.elastic_parts import current_training, evaluation
from offcut.torch.elastic_parts.current_training import current
from offcut.torch.elastic_parts.drawn_batches import DrawnLoader
from offcut.torch.elastic_parts.elastic_loader import ElasticDraw, ElasticLoader
from offcut.torch.elastic_parts.elastic_training import ElasticTraining
from offcut.torch.elastic_parts.member_exchange import exchanged, gathered, in_step
from offcut.torch.membership.process_group import Group
from offcut.torch.state.training_state import Stateful


def elastic(
    model: torch.nn.Module | Sequence[torch.nn.Module],
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    loader: DataLoader[Any] | Callable[[], Any] | Sequence[DataLoader[Any] | Callable[[], Any]],
    *,
    state: Sequence[Stateful] = (),
    virtual_shards: int | None = None,
    without_frozen: bool = False,
    max_local_batch: int | None = None,
) -> tuple[Any, Any, Any]:
    """Make a script's training elastic: alone it stays plain PyTorch, in a job it is shared out among the members.

    The batches of `loader` become the global batches: each member gets its share of them, and `optimizer.step()` uses
    the gradient of the mean loss over the whole batch, whatever the number of members. Where a member dies during a
    step, `optimizer.step()` changes nothing, `optimizer.step_was_skipped` is True, everything in `state` goes back to
    where it was before the step, and the loader yields the same global batch again.

    Args:
        model: what is trained, one model or several. Every member makes the same, and trains all of it.
        optimizer: its optimizer. `optimizer.step` is replaced, as torch's schedulers do it; all else stays. Of a list
            of optimizers each is updated by its own `step()`, any number of times for a batch, and the step ends when
            the loop asks for the next batch. If it fails, all updates of it are undone; so in a job the state is copied
            once per step. A list of one is for several updates for a batch.
        loader: a DataLoader of a dataset that can be indexed; its sampler, collate function and processes are used. Or
            a function without arguments that returns the next global batch: tensors with a row for each sample, or a
            tuple or dict of them. In a job all members call it and draw the same batch, by torch's, numpy's or Python's
            global random numbers, and each works on its own rows of it. Or a list of loaders, of which the script loops
            over one in each data epoch.
        state: what else belongs to the training: schedulers, a GradScaler, averages of weights, counters. Anything with
            `state_dict()` and `load_state_dict()`; the same objects in the same order in every run of a job.
        virtual_shards: cut each global batch into this many shards, whatever the number of members. Each shard has
            random numbers and BatchNorm statistics of its own, so dropout, noise and BatchNorm do not depend on the
            size. The loader then yields this member's shards, over which the script loops for each backward pass:
            `for shards in loader:` and in it `for x, y in shards:`. None: each member's share is one batch.
        without_frozen: leave parameters that are frozen now, and that no optimizer has, out of what is sent to joiners
            and out of checkpoints, as for LoRA: every member makes them itself, from the same file or a fixed seed, and
            their checksums are compared. One that changes later, or that an optimizer gets, is part of the state again.
        max_local_batch: the most samples that a member of a job can work on at once. A generation of too few members
            ends the job with a sentence before its first forward pass, not by running out of memory. None: no limit.

    Returns:
        The same model or models, the same optimizer or optimizers, and the loader to loop over; a list of loaders if
        several were given. In place of a function it is one that returns this member's rows of the next global batch.

    Raises:
        InputError: the loader is of a stream or makes no batches, the optimizer needs several gradients for a step, or
            the script has an elastic training already.
    """
    whole = model if isinstance(model, torch.nn.Module) else torch.nn.ModuleList(model)
    several = isinstance(optimizer, Sequence)
    optimizers = list(optimizer) if isinstance(optimizer, Sequence) else [optimizer]
    given = list(loader) if isinstance(loader, (list, tuple)) else [loader]
    loaders = [DrawnLoader(item) if callable(item) else item for item in given]
    training = current_training.begin(
        *(whole, optimizers, loaders, state, virtual_shards),
        several=several,
        without_frozen=without_frozen,
        max_local_batch=max_local_batch,
    )
    elastic_loaders = [
        ElasticDraw(training.loops, source)
        if isinstance(own, DrawnLoader)
        else ElasticLoader(training.loops, source, own)
        for source, own in zip(training.sources, loaders, strict=True)
    ]
    return model, optimizer, elastic_loaders if isinstance(loader, (list, tuple)) else elastic_loaders[0]


def epochs(count: int, *, more: bool = False) -> Iterator[int]:
    """Iterate over the data epochs that are left of `count`, and end the training after the last one.

    A worker that joins a running job begins in the middle of the epoch that the others are in. A script may leave the
    loop by `break`; then the training ends when the script does.

    Args:
        count: how many passes over the data this loop makes.
        more: whether another loop follows, over `epochs()` or `steps()`: then the training does not end with this one.
            A worker that joins during a later loop goes there at once.

    Yields:
        The number of each epoch, counted from 0 since the job began this loop.

    Raises:
        InputError: there is no elastic training, it has ended, or the members' scripts differ.
    """
    return current("epochs").loops.epochs(count, more=more)


def evaluate(loader: Iterable[Any], fn: Callable[..., Any]) -> Any:
    """Return the mean of what `fn` returns over all samples of `loader`: the same number on every member, at any size.

    The members share the batches out. The model is in evaluation mode meanwhile, no gradients are kept, and the
    training's random numbers are as before afterwards. All members call it at the same place: after the loop over the
    loader, before it, or inside it by what all of them know.

    Args:
        loader: a DataLoader, or anything that yields the same batches on every member.
        fn: called with the fields of a batch, `fn(x, y)`. It returns a tensor with one value for each sample, or a
            tuple of such tensors.

    Returns:
        The mean as a float; a tuple of means if `fn` returns tuples.

    Raises:
        InputError: the loader has no batch, or `fn` returned no value for each sample.
    """
    training = current("evaluate")
    training.step.check_outside_shards("offcut.torch.evaluate()")
    return evaluation.evaluate(training, loader, fn)


def once() -> bool:
    """Return True on one member: for what must happen once, such as printing or saving the model.

    Returns:
        True on one member; False on all members after a step that was skipped, until the next batch.

    Raises:
        InputError: there is no elastic training.
    """
    training = current("once")
    training.loops.take_part()
    return not training.loops.failed and training.training.once()


@overload
def steps() -> int: ...
@overload
def steps(until: int, *, more: bool = False) -> Iterator[int]: ...
def steps(until: int | None = None, *, more: bool = False) -> int | Iterator[int]:
    """Return how many steps have been applied since the job began; with `until`, iterate over those that are left.

    A count of the script's own turns is smaller in a worker that has joined, and larger after a step that was skipped.
    `for step in steps(5000)` takes the place of `for step in range(5000)`: its turns end when 5000 steps have been
    applied, and then it ends the training. The batches come from an iterator over the loader, or a loop inside.

    Args:
        until: how many steps the whole training makes up to the end of this loop.
        more: whether another loop follows, over `epochs()` or `steps()`: then the training does not end with this one.

    Returns:
        Without `until` the number, 0 before the first step: the same number on every member. Before the first batch it
        waits until this worker is a member, and after a step that failed until the members are together again. With
        `until` an iterator that yields the number before each step.

    Raises:
        InputError: there is no elastic training, or it has ended.
    """
    loops = current("steps").loops
    return loops.steps() if until is None else loops.steps_until(until, more=more)


def reduce_gradients(optimizer: torch.optim.Optimizer | None = None, *, again: bool = False) -> bool:
    """Sum the gradients over the members now, before `optimizer.step()` would do it.

    For what a script does with the gradient of the whole batch: clip it, look at its norm, let a GradScaler unscale it.
    Call it after the step's last `backward()`. A hook of `optimizer.register_step_pre_hook` needs no such call: it runs
    between the sum and the update.

    Args:
        optimizer: whose gradients; it is needed where there are several.
        again: another backward pass follows before `optimizer.step()`, as in sharpness-aware minimisation, which first
            moves the parameters by this gradient: gradients will be summed again. The state is copied meanwhile, so
            that all is undone if the step fails.

    Returns:
        Whether the step counts. False: the generation broke, and `optimizer.step()` will be skipped.

    Raises:
        InputError: it was called outside the loop over the loader.
        OffcutError: the members' states, or the parameters that they train, are not the same.
    """
    return current("reduce_gradients").reduce(optimizer, again=again)


def report_loss(loss: torch.Tensor | float) -> None:
    """Tell offcut the loss of this member's share; `offcut status` and `last_loss()` have the mean.

    Args:
        loss: the mean loss over the share, or over the virtual shard. Call it before `optimizer.step()`.

    Raises:
        InputError: it was called outside of a step.
    """
    in_step("report_loss", alone=True).step.tell_loss(float(loss.detach() if isinstance(loss, torch.Tensor) else loss))


def draw_rows(draw: Callable[[int], Any]) -> Any:
    """Return this member's rows of random numbers for the global batch, which are the same at any size.

    For noise, timesteps of a diffusion model, and the like: in a job all members draw the numbers of all rows, and each
    uses those of its own samples.

    Args:
        draw: called with the number of rows; it draws that many, as `lambda rows: torch.randn(rows, 16)`, by torch's,
            numpy's or Python's global random numbers. It returns a tensor, or a tuple or dict of them.

    Returns:
        The rows, in the same containers. Alone it is what `draw` returns.

    Raises:
        InputError: it was called outside of a step or in the loop over virtual shards, or `draw` drew another number.
    """
    return in_step("draw_rows").step.draw_rows(draw)


def last_loss() -> float:
    """Return the mean loss over the last global batch whose step was applied: the same number on every member.

    Returns:
        The mean of what the members told by `report_loss()`; NaN if they told none. Before the first batch it waits
        until this worker is a member.

    Raises:
        InputError: there is no elastic training.
    """
    training = current("last_loss")
    training.loops.take_part()
    return training.state.loss


def log(**values: torch.Tensor | float) -> None:
    """Log numbers under names: `offcut.torch.log(loss=loss, accuracy=accuracy)`, once for each batch.

    In a job the means over the global batch are kept, in one record for each applied step: without the steps that were
    skipped, and none twice, whichever members come and go. `offcut loss JOB --name accuracy` shows them, and the file
    `metrics.jsonl` in the job's directory has them. All members log the same names. `loss` is reported too, as by
    `report_loss`. Alone it does nothing.

    Args:
        values: by name, the mean over this member's share, or over the virtual shard. Call it before
            `optimizer.step()`.

    Raises:
        InputError: it was called outside of a step.
    """
    step = in_step("log", alone=True).step
    if not step.metrics.active:
        return
    for name, value in values.items():
        number = float(value.detach() if isinstance(value, torch.Tensor) else value)
        step.log(name, number)
        if name == "loss":
            step.tell_loss(number)


def sum(value: torch.Tensor | float) -> Any:
    """Return the sum of a number over the members, between a batch and its `optimizer.step()`.

    Args:
        value: this member's, a number or a tensor of the same shape on all members, such as the tokens in its share.

    Returns:
        The sum, of the type of `value`; the same on all members. Where the generation breaks it is this member's own,
        and the step will be skipped.

    Raises:
        InputError: it was called outside of a step.
    """
    training = in_step("sum")
    return _sum_weighted(training, value, 1.0 if training.step.weight > 0.0 else 0.0)


def weight_by(count: torch.Tensor | float) -> None:
    """Weight this member's gradient by a count of its own, in place of its samples.

    For a loss that is the mean over something else than samples: over the tokens without padding, say. Call it once
    for each batch, on all members, before `mean()`, `report_loss()` and `optimizer.step()`; the members exchange their
    counts.

    Args:
        count: over how much this member's loss is the mean: the tokens in its share.

    Raises:
        InputError: it was called outside of a step, or after `reduce_gradients()`, or the counts' sum is not positive.
    """
    training = in_step("weight_by")
    step = training.step
    if step.reduced or step.updated:
        raise InputError(
            "offcut.torch.weight_by() after the gradients were summed.",
            next_step="Call it before reduce_gradients() and optimizer.step().",
        )
    own = float(count) if step.weight > 0.0 else 0.0
    total = _sum_weighted(training, own, 1.0)
    if not step.failed:
        if total <= 0.0:
            raise InputError(
                f"offcut.torch.weight_by(): the members' counts add up to {total:g}.",
                next_step="Give counts that are at least 0, and more than 0 on some member.",
            )
        step.set_weight(own / total)


def mean(value: torch.Tensor | float) -> Any:
    """Return the mean of a number over the global batch, between a batch and its `optimizer.step()`.

    Args:
        value: the mean over this member's share, a number or a tensor of the same shape on all members.

    Returns:
        The mean, weighted by the members' samples, of the type of `value`; the same on all members. Where the
        generation breaks it is this member's own, and the step will be skipped.

    Raises:
        InputError: it was called outside of a step.
    """
    training = in_step("mean")
    return _sum_weighted(training, value, training.step.weight)


def gather(value: torch.Tensor) -> list[torch.Tensor]:
    """Return every member's tensor, between a batch and its `optimizer.step()`.

    Args:
        value: this member's, of a type and number of dimensions that are the same on all members, with any length of
            the first dimension, which it must have.

    Returns:
        The tensors, by rank; without those of members that have no samples in this batch. Where the generation breaks
        it is this member's own, and the step will be skipped.

    Raises:
        InputError: it was called outside of a step.
    """
    training = in_step("gather")
    own = value.detach() if training.step.weight > 0.0 else value.detach()[:0]

    def exchange(group: Group) -> list[torch.Tensor]:
        return [rows for rows in gathered(group, own) if len(rows)]

    found: list[torch.Tensor] = exchanged(training, exchange, [value.detach()])
    return found


def _sum_weighted(training: ElasticTraining, value: torch.Tensor | float, weight: float) -> Any:
    tensor = torch.as_tensor(value, dtype=None if isinstance(value, torch.Tensor) else torch.float64).detach()

    def exchange(group: Group) -> torch.Tensor:
        # Without samples there is nothing to add, because 0 times an infinite number would be NaN.
        total = (tensor * weight if weight != 1.0 else tensor.clone()) if weight > 0.0 else torch.zeros_like(tensor)
        group.wait(group.start_all_reduce(total))
        return total

    total = exchanged(training, exchange, tensor)
    return total if isinstance(value, torch.Tensor) else type(value)(total.item())
