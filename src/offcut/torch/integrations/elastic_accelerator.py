"""An Accelerator of accelerate's whose training is shared out among the members of a job.

Each member's Accelerator knows of no other process. What it prepares is tied together by the elastic parts when the
loop over the epochs begins: the first loader's batches are the global ones, of which each member gets its share.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import accelerate
import torch
from accelerate.utils import DistributedType, recursively_apply, send_to_device

from offcut.errors import InputError
from offcut.torch.elastic_parts.current_training import current
from offcut.torch.elastic_parts.elastic_training import ElasticTraining
from offcut.torch.elastic_parts.functions import elastic
from offcut.torch.elastic_parts.member_exchange import gathered, summed
from offcut.torch.integrations.world_of_one import in_job, set_process_index
from offcut.torch.membership.process_group import Abandoned


class Accelerator(accelerate.Accelerator):
    """accelerate's Accelerator; in a job of mode `session` its training is elastic. Elsewhere it is accelerate's own.

    The first loader that is prepared is that of the training, and its batches are the global ones. All members run the
    whole script, evaluations included; what accelerate does on the main process only happens on one of them.
    """

    _elastic: ElasticTraining | None = None
    _train_loader: TrainLoader | None = None

    def epochs(self, count: int) -> Iterator[int]:
        """Iterate over the numbers of the data epochs that are left of `count`, and end the training after the last.

        Args:
            count: how many passes over the data the whole training makes.

        Yields:
            The number of each epoch, counted from 0 since the job began.

        Raises:
            InputError: not all that a training needs was prepared, or the Accelerator is to use several processes.
        """
        if not in_job():
            yield from range(count)
            return
        training = self._begin()
        for epoch in training.loops.epochs(count, more=False):
            set_process_index(training.training.membership.rank)
            assert self._train_loader is not None
            self._train_loader.set_epoch(epoch)
            yield epoch

    def _begin(self) -> ElasticTraining:
        loader = self._train_loader
        if self.distributed_type != DistributedType.NO:
            raise InputError(
                f"offcut.torch.accelerate: an Accelerator of the kind {self.distributed_type} in a job of mode "
                "session.",
                next_step="Leave the plugin out, or submit the job with mode = 'restart', which runs the script as "
                "torchrun would.",
            )
        if loader is None or not self._models or not self._optimizers:
            raise InputError(
                "offcut.torch.accelerate: epochs() before a model, an optimizer and a loader were prepared.",
                next_step="Call accelerator.prepare(model, optimizer, loader) first.",
            )
        models = [self.unwrap_model(model) for model in self._models]
        scalers = [self.scaler] if self.scaler is not None else []
        state = [*self._schedulers, *scalers, *self._custom_objects]
        optimizers = [item.optimizer for item in self._optimizers]
        found = elastic(
            models if len(models) > 1 else models[0],
            optimizers if len(optimizers) > 1 else optimizers[0],
            loader.base_dataloader,
            state=state,
            # The base model of PEFT is made by every member's script.
            without_frozen=any(hasattr(model, "peft_config") for model in models),
        )
        self._elastic, loader.elastic = current("elastic"), found[2]
        for item in self._optimizers:
            item.__setstate__({})  # it looks up the optimizer's step() again, which has been replaced
            item.step = self._step_of(item, item.step)
        return self._elastic

    def _step_of(self, item: Any, own_step: Any) -> Any:
        def step(closure: Any = None) -> None:
            sync = self.gradient_state.sync_gradients
            if sync and item.scaler is not None:
                self._reduce(item.optimizer)
            own_step(closure)
            if sync and item.optimizer.step_was_skipped:
                item._is_overflow = True
            elif item.scaler is None:
                item._is_overflow = False

        return step

    def _reduce(self, optimizer: torch.optim.Optimizer) -> None:
        assert self._elastic is not None
        if self._elastic.in_step:
            optimizer.step_was_skipped = not self._elastic.reduce(optimizer)

    # -- loaders ------------------------------------------------------------------------------------------------------

    def prepare_data_loader(self, data_loader: Any, *args: Any, **options: Any) -> Any:
        """Prepare a loader: the first one is that of the training; see accelerate."""
        if not in_job() or isinstance(data_loader, TrainLoader):
            return super().prepare_data_loader(data_loader, *args, **options)
        if self._train_loader is None:
            prepared = super().prepare_data_loader(data_loader, *args, **options)
            self._train_loader = TrainLoader(self, prepared)
            self._dataloaders[-1] = self._train_loader
            return self._train_loader
        # Processes that are forked beside connections to other members could end these.
        alone = copy.copy(data_loader)
        vars(alone).update(num_workers=0, prefetch_factor=None, persistent_workers=False, timeout=0)
        vars(alone)["_DataLoader__multiprocessing_context"] = None
        return super().prepare_data_loader(alone, *args, **options)

    def skip_first_batches(self, dataloader: Any, num_batches: int = 0) -> Any:
        """Skip batches of a loader that is not the training's; see accelerate."""
        if isinstance(dataloader, TrainLoader) and num_batches:
            raise InputError(
                "offcut.torch.accelerate: skip_first_batches() of the training's loader.",
                next_step="Leave it out: a job continues by itself where it was, at any number of members.",
            )
        return super().skip_first_batches(dataloader, num_batches)

    # -- a step -------------------------------------------------------------------------------------------------------

    @contextmanager
    def accumulate(self, *models: Any) -> Iterator[None]:
        """Let the gradients of several batches add up: for as many as accelerate was told, or what an epoch has left.

        Args:
            models: see accelerate.
        """
        if self._elastic is None or self._train_loader is None or not self._elastic.in_step:
            with super().accumulate(*models):
                yield
            return
        # Counts of this member's own differ where a worker has joined.
        self.gradient_state._set_sync_gradients(self._train_loader.elastic.completes(self.gradient_accumulation_steps))
        yield

    def unscale_gradients(self, optimizer: Any = None) -> None:
        """Sum the gradients over the members, and undo their scaling; clipping calls it. See accelerate.

        Args:
            optimizer: see accelerate.
        """
        if self._elastic is not None and self.gradient_state.sync_gradients:
            chosen = self._optimizers if optimizer is None else optimizer
            for item in chosen if isinstance(chosen, (list, tuple)) else [chosen]:
                self._reduce(getattr(item, "optimizer", item))
        super().unscale_gradients(optimizer)

    def gather(self, tensor: Any) -> Any:
        """Return all members' tensors, one after the other, in the loop of the training. See accelerate.

        Elsewhere, as in an evaluation, every member has computed everything, and `tensor` is all there is.

        Args:
            tensor: a tensor, or containers of tensors.
        """
        return self._exchanged(tensor, _gather, super().gather)

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        """Return the sum or the mean of all members' tensors, in the loop of the training. See accelerate.

        Args:
            tensor: a tensor, or containers of tensors.
            reduction: "sum", "mean" or "none".
            scale: a factor for the result.
        """

        def add_up(group: Any, own: torch.Tensor) -> torch.Tensor:
            total = summed(group, own.detach())
            return total / group.world if reduction == "mean" else total

        if reduction == "none":
            return super().reduce(tensor, reduction, scale)
        return super().reduce(self._exchanged(tensor, add_up, lambda own: own), "none", scale)

    def _exchanged(self, tensor: Any, exchange: Any, alone: Any) -> Any:
        training = self._elastic
        group = training.together if training is not None and training.loops.in_loop else None
        # A loader that is not the training's says that it is iterated over.
        if training is None or group is None or self.gradient_state.in_dataloader:
            return alone(tensor)
        try:
            return recursively_apply(lambda own: exchange(group, own), tensor, error_on_other_type=True)
        except Abandoned as reason:
            training.abandon(reason)
            return alone(tensor)


class TrainLoader:
    """The loader of the training: it yields this member's share of each global batch.

    Args:
        accelerator: the Accelerator.
        loader: what accelerate has made of the script's loader.
    """

    _is_accelerate_prepared = True

    def __init__(self, accelerator: Accelerator, loader: Any) -> None:
        self._accelerator = accelerator
        self._loader = loader
        #: Yields the shares, once the training has begun.
        self.elastic: Any = None

    def __iter__(self) -> Iterator[Any]:
        accelerator, training = self._accelerator, self._accelerator._elastic
        if training is None:
            raise InputError(
                "offcut.torch.accelerate: a loop over the training's loader outside of accelerator.epochs().",
                next_step="Write `for epoch in accelerator.epochs(count):` in place of `for epoch in range(count):`.",
            )
        batches = iter(self.elastic)
        try:
            for batch in batches:
                set_process_index(training.training.membership.rank)
                accelerator.gradient_state._set_sync_gradients(True)
                device = self._loader.device
                yield batch if device is None else send_to_device(batch, device, non_blocking=accelerator.non_blocking)
        finally:
            batches.close()  # a generator

    def __len__(self) -> int:
        training = self._accelerator._elastic
        return len(self._loader) if training is None else len(self.elastic)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _gather(group: Any, own: torch.Tensor) -> torch.Tensor:
    """Return all members' rows; they may have different numbers of them."""
    rows = own.detach().reshape(1) if own.dim() == 0 else own.detach()
    return torch.cat(gathered(group, rows))
