"""What Lightning's Trainer asks of its strategy, answered by an elastic training."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import SingleDeviceStrategy, StrategyRegistry
from lightning.pytorch.trainer.states import RunningStage, TrainerFn

from offcut.torch.elastic_parts import functions
from offcut.torch.elastic_parts.sync_batch_norm import SyncBatchNorm
from offcut.torch.lightning.elastic_fit import ElasticFit
from offcut.torch.lightning.logged_values import check_no_metrics
from offcut.torch.membership.process_group import Group
from offcut.wire.worker_env import ENV_AGENT


class OffcutStrategy(SingleDeviceStrategy):
    """Trains on one device: alone as `SingleDeviceStrategy` does, in a job as one of its members.

    In a job the batches of the training loader are the global ones. All members run the whole validation, and get the
    same numbers. What `training_step` logs is that of the global batch. Files are written by the first member.
    """

    strategy_name = "offcut"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._in_job = bool(os.environ.get(ENV_AGENT))
        self._fit: ElasticFit | None = None
        self._trainer: Trainer | None = None
        #: Set by Lightning: the devices that the Trainer was given.
        self.parallel_devices: list[torch.device] = []
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0")) if self._in_job else 0
        #: In a job it is not that of torchrun, Slurm or MPI, whatever their variables say.
        self.cluster_environment = LightningEnvironment() if self._in_job else None

    # -- where this process is ----------------------------------------------------------------------------------------

    @property
    def root_device(self) -> torch.device:
        """This worker's device."""
        devices = self.parallel_devices
        return devices[self.local_rank % len(devices)] if devices else self._root_device

    @property
    def global_rank(self) -> int:
        """This member's number, which changes with the generation. In a job it is 1 before the training begins."""
        if self._fit is not None and self._fit.training is not None:
            return self._fit.training.training.membership.rank
        return 1 if self._in_job else 0

    @global_rank.setter
    def global_rank(self, rank: int) -> None:
        """Leave it to the generation; Lightning sets it in its constructors."""

    @property
    def world_size(self) -> int:
        """How many members the generation has, or the last one had."""
        if self._fit is not None and self._fit.training is not None:
            return self._fit.training.training.membership.world
        return 1

    @world_size.setter
    def world_size(self, size: int) -> None:
        """Leave it to the generation."""

    @property
    def is_global_zero(self) -> bool:
        """Whether this is the first member, which writes the files."""
        return self.global_rank == 0

    # -- the training -------------------------------------------------------------------------------------------------

    def setup(self, trainer: Trainer) -> None:
        """See Lightning's `Strategy`."""
        self._trainer = trainer
        if self._in_job and trainer.state.fn == TrainerFn.FITTING:
            self._fit = ElasticFit(trainer)
        if trainer._accelerator_connector._layer_sync is not None:
            SyncBatchNorm.convert_sync_batchnorm(trainer.lightning_module)
        super().setup(trainer)
        if self._fit is not None:
            own = self.precision_plugin.clip_gradients

            def clip_reduced(optimizer: torch.optim.Optimizer, *args: Any, **options: Any) -> None:
                """Clip the gradients of the global batch, also where a manual optimization clips before its step."""
                fit = self._fit
                if fit is not None and fit.training is not None and fit.training.in_step:
                    fit.reduce(getattr(optimizer, "_optimizer", optimizer))
                own(optimizer, *args, **options)

            self.precision_plugin.clip_gradients = clip_reduced

    def process_dataloader(self, dataloader: Any) -> Any:
        """Return the loader that the Trainer's loop gets in place of `dataloader`."""
        if self._fit is None or self._trainer is None or self._trainer.state.fn != TrainerFn.FITTING:
            return dataloader
        if self._trainer.state.stage == RunningStage.TRAINING:
            return self._fit.training_loader(dataloader)
        return self._fit.validation_loader(dataloader)

    def training_step(self, *args: Any, **options: Any) -> Any:
        """See Lightning's `Strategy`."""
        if self._fit is None:
            output = super().training_step(*args, **options)
            if self._trainer is not None:
                check_no_metrics(self._trainer.fit_loop.epoch_loop._results)
            return output
        self._fit.logged.begin()
        output = super().training_step(*args, **options)
        self._fit.end_training_step(output)
        return output

    def optimizer_step(
        self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any], model: Any = None, **options: Any
    ) -> Any:
        """Run the closure, sum the gradients over the members, and update the parameters: in this order."""
        fit = self._fit
        if fit is None:
            return super().optimizer_step(optimizer, closure, model, **options)

        def reduced() -> Any:
            result = closure()
            fit.reduce(optimizer)
            return result

        return super().optimizer_step(optimizer, reduced, model, **options)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Write a checkpoint on the first member, unless it is leaving."""
        fit = self._fit
        if fit is None or fit.training is None or not fit.training.training.membership.left:
            super().save_checkpoint(checkpoint, filepath, storage_options)

    def teardown(self) -> None:
        """See Lightning's `Strategy`."""
        if self._fit is not None:
            self._fit.detach()
            self.precision_plugin.__dict__.pop("clip_gradients", None)
        super().teardown()

    # -- exchanges ----------------------------------------------------------------------------------------------------

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Return a number of the global batch, from this member's share of it.

        Between steps the members have the same numbers already, and `tensor` is returned.

        Args:
            tensor: the number, or a tensor of the same shape on all members.
            group: not used.
            reduce_op: "mean", weighted by samples, "sum", "max" or "min"; others count as "mean".
        """
        if self._fit is None or self._fit.training is None or not self._fit.training.in_step:
            return tensor
        name = str(getattr(reduce_op, "name", reduce_op) or "mean").lower()
        if name == "sum":
            return functions.sum(tensor)
        if name in ("max", "min"):
            values = torch.stack(functions.gather(torch.as_tensor(tensor).unsqueeze(0)))
            return (values.amax(0) if name == "max" else values.amin(0)).squeeze(0)
        return functions.mean(tensor)

    def all_gather(self, tensor: torch.Tensor, group: Any = None, sync_grads: bool = False) -> torch.Tensor:
        """Return every member's tensor within a step, stacked; between steps, `tensor`.

        Args:
            tensor: this member's, of the same shape on all members.
            group: not used.
            sync_grads: not used: no gradient comes back from other members.
        """
        if self._fit is None or self._fit.training is None or not self._fit.training.in_step:
            return tensor
        return torch.cat(functions.gather(tensor.unsqueeze(0)))

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Return the first member's number or truth value; anything else is the same on all members.

        Args:
            obj: what to return.
            src: not used: the first member's counts.
        """
        if self._fit is None or not isinstance(obj, (bool, int, float)):
            return obj

        def exchange(group: Group) -> Any:
            value = torch.tensor([float(obj) if group.rank == 0 else 0.0], dtype=torch.float64)
            group.wait(group.start_all_reduce(value))
            return type(obj)(value.item())

        return self._fit.together(exchange, obj)

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """Return the members' decision.

        Args:
            decision: this member's.
            all: whether all must be for it; otherwise one is enough.
        """
        if self._fit is None:
            return decision

        def exchange(group: Group) -> bool:
            votes = [row[0] for row in group.gather([int(decision)])]
            return min(votes) > 0 if all else max(votes) > 0

        return bool(self._fit.together(exchange, decision))


if OffcutStrategy.strategy_name not in StrategyRegistry:
    OffcutStrategy.register_strategies(StrategyRegistry)
