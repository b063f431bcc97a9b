"""`Session`: the one object between a training script and offcut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import torch

from offcut.errors import InputError
from offcut.torch.fingerprint import fingerprint
from offcut.torch.membership.job_context import JobContext
from offcut.torch.membership.process_exit import Left
from offcut.torch.membership.process_group import Abandoned
from offcut.torch.membership.sharded_sync import join_with_shards
from offcut.torch.membership.state_sync import StateSync, join_with_replica
from offcut.torch.state.checkpointer import Checkpointer
from offcut.torch.state.lr_scaling import LrScaling
from offcut.torch.state.optimizer_shards import OptimizerShards
from offcut.torch.state.trained_parameters import parameters_of
from offcut.torch.state.training_state import TrainingState
from offcut.torch.step.batch_policy import BatchPolicy, smallest_share
from offcut.torch.step.data_parallel import DataParallelStep
from offcut.torch.step.gradient_reduce import MemberFlags
from offcut.torch.step.loader import PartLoader
from offcut.torch.step.sampler import Sampler
from offcut.torch.step.sharded_update import ShardedUpdate
from offcut.torch.step.usage_checks import (
    check_dataset,
    check_loss,
    check_only_session,
    check_optimizers,
    explain_single_sample,
    warn_of_launcher,
)
from offcut.torch.training_loop import TrainingLoop
from offcut.torch.training_member import TrainingMember

__all__ = ["Left", "Session"]


class Session(TrainingLoop):
    """Trains a model on a dataset, alone or as one of a job's members.

    Every update uses the gradient of the mean loss over `global_batch` samples, whatever the number of members, so the
    loss curve does not depend on which members came and went. A member's share of a global batch may come in several
    *parts*, each one turn of the loop over batches. Started without offcut, the same script runs as a group of one.

    Args:
        model: what is trained; every member has all of it.
        optimizer: one optimizer of the model's parameters, or several.
        dataset: map-style: `len` and indexing; samples are tensors, or what `collate` takes.
        global_batch: samples in every update, at any size. Either this or `batch_per_rank` is given.
        batch_per_rank: samples per member in every update: the global batch grows with the size.
        max_local_batch: the most samples in a part; None: no limit.
        min_local_batch: the fewest samples that a member works on; it has none where its share would be smaller.
            None: 2 where the model has BatchNorm layers, which refuse a single sample, otherwise 1.
        drop_last: leave out the last batch of a data epoch if it is smaller.
        virtual_shards: cut the global batch into this many parts at any size, so that dropout and BatchNorm do not
            depend on the size.
        lr_rule: multiplies the learning rate with the size: "none", "linear" or "sqrt".
        warmup_steps: over how many steps the learning rate follows a resize.
        seed: random numbers (torch, numpy, random) are seeded for every part from this, the step and the part.
        collate: joins a list of samples, as in a DataLoader.
        loader_workers: processes that fetch samples ahead of time; 0: none.
        clip_norm: the largest norm of the reduced gradient; None: no limit.
        scaler: a `torch.amp.GradScaler`; the session scales, unscales and updates with it.
        optimizer_copies: how many members hold the optimizers' state of each parameter (ZeRO stage 1). With 1 the death
            of a member takes all back to the newest checkpoint, with 2 the death of one loses nothing. None: all
            members hold all of it.

    Raises:
        InputError: the options contradict each other, or the dataset is empty.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        dataset: Any,
        *,
        global_batch: int | None = None,
        batch_per_rank: int | None = None,
        max_local_batch: int | None = None,
        min_local_batch: int | None = None,
        drop_last: bool = False,
        virtual_shards: int | None = None,
        lr_rule: str = "none",
        warmup_steps: int = 0,
        seed: int = 0,
        collate: Callable[[list[Any]], Any] | None = None,
        loader_workers: int = 0,
        clip_norm: float | None = None,
        scaler: Any = None,
        optimizer_copies: int | None = None,
    ) -> None:
        check_only_session("Session")
        check_dataset("Session", dataset)
        optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
        check_optimizers("Session", optimizers)
        warn_of_launcher()
        policy = BatchPolicy(
            global_batch=global_batch,
            batch_per_rank=batch_per_rank,
            max_local_batch=max_local_batch,
            virtual_shards=virtual_shards,
            min_local_batch=smallest_share(model) if min_local_batch is None else min_local_batch,
        )
        if drop_last and policy.size(1) > len(dataset):
            raise InputError(
                f"Session: with drop_last nothing is left of {len(dataset)} samples in batches of {policy.size(1)}.",
                next_step="Choose smaller batches, or leave drop_last out.",
            )
        state = TrainingState(model, optimizers, LrScaling(lr_rule, warmup_steps))
        if scaler is not None:
            state.registered.append(scaler)
        if optimizer_copies is not None and optimizer_copies < 1:
            raise InputError(
                f"Session: optimizer_copies is {optimizer_copies}.", next_step="It must be 1 or more; None: no shards."
            )
        shards = None if optimizer_copies is None else OptimizerShards(state, optimizer_copies)
        state.settings = {
            "samples in the dataset": str(len(dataset)),
            "seed": str(seed),
            "batches": f"{policy}, drop_last={drop_last}",
            "clip_norm": str(clip_norm),
            "lr_rule": f"{lr_rule}, warm-up {warmup_steps}",
            "optimizer_copies": str(optimizer_copies),
        }
        sampler = Sampler(len(dataset), seed, drop_last=drop_last)
        device = next((p.device for item in optimizers for p in parameters_of(item)), torch.device("cpu"))
        # Before the connection to the agent is opened: processes that fetch must not inherit it.
        self._loader = PartLoader(dataset, collate, loader_workers, device, seed)
        self._data_parallel = DataParallelStep(
            state,
            policy=policy,
            sampler=sampler,
            loader=self._loader,
            seed=seed,
            clip_norm=clip_norm,
            scaler=scaler,
            device=device,
            visit=self._visit,
            epochs=lambda: self._training.epochs,
            sharded=None if shards is None else ShardedUpdate(shards, self._visit),
        )

        def join(context: JobContext) -> tuple[StateSync, Checkpointer[Any]]:
            return join_with_replica(context, state) if shards is None else join_with_shards(context, state, shards)

        super().__init__(
            TrainingMember(
                state,
                sampler,
                self._data_parallel,
                join=join,
                fingerprint=lambda data: fingerprint(model, policy, data),
            )
        )

    @property
    def model(self) -> torch.nn.Module:
        """The model that is trained."""
        return self._state.model

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        explain_single_sample(error)
        super().__exit__(kind, error, trace)
        self._loader.close()

    def backward(self, loss: torch.Tensor) -> None:
        """Accumulate the gradient of `loss`.

        Args:
            loss: the mean over this part of the batch, a scalar. Where a part is worked on in k portions, divide each
                portion's loss by k, as without offcut.

        Raises:
            InputError: it was called outside the loop over batches.
        """
        check_loss("Session.backward", loss)
        self._data_parallel.backward(loss)

    def step(self, loss: torch.Tensor | None = None) -> bool:
        """Run backward, reduce over the members, clip, and update.

        What a script does after a step that did not count (advancing a scheduler, say) is undone for registered objects
        and for the settings of the optimizers' groups; for anything else, look at the returned value.

        Args:
            loss: the mean over this part of the batch, a scalar; None if `backward` was called for it.

        Returns:
            True when a step counts. False where more parts of the same step follow, and where the step failed because
            the membership broke: then its batch will come again.

        Raises:
            InputError: it was called outside the loop over batches, or twice for a batch, or without a gradient.
            OffcutError: the members' states, or the parameters that they train, are not the same.
        """
        step, group = self._data_parallel, self._training.membership.group
        if loss is None:
            step.check_gradient()
        else:
            check_loss("Session.step", loss)
            # If a member has died meanwhile the step cannot count, so its gradient is not needed.
            if group is not None and not group.stale():
                step.backward(loss)
        if not step.end_part() or step.failed:
            return False
        return self._training.run_step()

    def update(self, loss: torch.Tensor, optimizer: torch.optim.Optimizer, *, retain_graph: bool = False) -> bool:
        """Do one of several updates within a step, as GANs need them: backward, reduce, clip, update one optimizer.

        `step(loss)` ends the step as always; it updates the optimizers that had no `update`. If a later part of the
        step fails, this update is undone, for which the session copies the state once per step.

        Args:
            loss: the mean over this member's part of the batch, a scalar.
            optimizer: one of the session's optimizers; it had no update in this step yet.
            retain_graph: as in `torch.Tensor.backward`.

        Returns:
            False when the step has failed already: go on to `step()`, the batch will come again.

        Raises:
            InputError: the optimizer is not the session's or had its update, or the share comes in several parts.
        """
        step, training = self._data_parallel, self._training
        step.check_update(optimizer)
        check_loss("Session.update", loss)
        step.backward(loss, optimizer, retain_graph=retain_graph)
        if step.failed:
            return False
        group = training.group
        if training.link is not None:
            self._state.copy_boundary()
        training.reporter.script_runs(False)
        try:
            with training.timing:
                # No flags: all members switch after whole steps only.
                step.reduce_for(group, [optimizer], MemberFlags())
        except Abandoned as reason:
            training.fail_step(reason)
            return False
        finally:
            training.reporter.script_runs(True)
        with training.changing:
            step.update(group, [optimizer])
        return True
