"""A transformers Trainer whose steps are shared out among the members of a job.

The Trainer trains as a world of one: it knows of no other process. The elastic parts are below it, at three places: its
loader's batches are the global ones, of which each member gets its share; its gradients are summed before they are
clipped; its progress belongs to the training's state. The loop over the batches of an epoch is written again here,
because a step that failed must leave no trace: nothing is logged, evaluated or saved after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.trainer_callback import ProgressCallback

from offcut.errors import InputError
from offcut.torch.elastic_parts.current_training import current
from offcut.torch.elastic_parts.elastic_training import ElasticTraining
from offcut.torch.elastic_parts.functions import elastic
from offcut.torch.integrations import shared_predictions
from offcut.torch.integrations.trainer_progress import TrainerProgress
from offcut.torch.integrations.trainer_step import MicroBatch, Totals, add_up
from offcut.torch.integrations.world_of_one import in_job, set_process_index


class Trainer(transformers.Trainer):
    """transformers' Trainer; in a job of mode `session` its training is elastic. Elsewhere it is transformers' own.

    In a job `per_device_train_batch_size` is the size of a global batch, whatever the number of members, and
    `gradient_accumulation_steps` the number of them in a step. All members run the whole script; what transformers does
    on the main process only happens on one of them.

    With another subclass of transformers' it comes first: `class Mine(offcut.torch.transformers.Trainer, SFTTrainer)`.
    """

    control: Any
    _elastic: ElasticTraining | None = None
    #: The numbers of the data epochs that are left, and this member's shares of the batches of the current one.
    _epochs: Iterator[int]
    _batches: Iterator[Any]
    #: This member's rank as accelerate knows it; the step of the last checkpoint that this or another member began.
    _rank: int | None = None
    _saved_step = -1
    #: The loader of the training as it was made, as it is looped over, and what `_prepare_for_training` has returned.
    _train_loader: Any = None
    _loader: Any = None
    _prepared: tuple[Any, Any] | None = None

    # -- the beginning ------------------------------------------------------------------------------------------------

    def _get_dataloader(self, *args: Any, is_training: bool = False, **options: Any) -> Any:
        if not in_job() or is_training:
            return super()._get_dataloader(*args, is_training=is_training, **options)
        # Processes that are forked beside connections to other members could end these.
        names = ("num_workers", "prefetch_factor", "persistent_workers", "multiprocessing_context")
        before = {name: getattr(self.args, f"dataloader_{name}") for name in names}
        try:
            for name, value in zip(names, (0, None, False, None), strict=True):
                setattr(self.args, f"dataloader_{name}", value)
            return super()._get_dataloader(*args, **options)
        finally:
            for name, value in before.items():
                setattr(self.args, f"dataloader_{name}", value)

    def set_initial_training_values(self, args: Any, dataloader: Any) -> Any:
        """Note the loader of the training; see transformers."""
        self._train_loader = dataloader
        return super().set_initial_training_values(args, dataloader)

    def _init_training_state(
        self, max_steps: int, num_update_steps_per_epoch: int, num_train_epochs: int, checkpoint: Any, trial: Any
    ) -> tuple[int, int]:
        first, batches = super()._init_training_state(
            max_steps, num_update_steps_per_epoch, num_train_epochs, checkpoint, trial
        )
        if not in_job():
            return first, batches
        check_supported(self, trial)
        # The number of the first epoch is known once this worker is a member, for which it needs all that is trained.
        self._prepared = super()._prepare_for_training(max_steps, self._train_loader, checkpoint)
        self._elastic = training = self._begin()
        # A checkpoint of transformers' counts if no other member has a newer state.
        training.loops.start_at(first, batches)
        self._epochs = training.loops.epochs(num_train_epochs, more=False)
        epoch = next(self._epochs, None)
        self._note_rank()
        return (num_train_epochs if epoch is None else epoch), 0

    def _prepare_for_training(self, *args: Any, **options: Any) -> Any:
        if self._prepared is None:
            return super()._prepare_for_training(*args, **options)
        prepared, self._prepared = self._prepared, None
        return prepared

    def _begin(self) -> ElasticTraining:
        # Accelerate's optimizer and loader are wrappers of torch's.
        optimizer = getattr(self.optimizer, "optimizer", self.optimizer)
        scaler = getattr(self.accelerator, "scaler", None)
        loader = getattr(self._train_loader, "base_dataloader", self._train_loader)
        state = [self.lr_scheduler, TrainerProgress(self), *([scaler] if scaler is not None else [])]
        # The base model of PEFT is made by every member's script.
        frozen = hasattr(self.model, "peft_config")
        _, _, self._loader = elastic(self.model, optimizer, loader, state=state, without_frozen=frozen)
        if scaler is not None and optimizer is not self.optimizer:
            self.optimizer.__setstate__({})  # it looks up the optimizer's step() again, which has been replaced
        return current("elastic")

    def _note_rank(self) -> None:
        """Tell transformers and accelerate this member's rank, which changes with the generation."""
        assert self._elastic is not None
        before, rank = self._rank, self._elastic.training.membership.rank
        if rank == before:
            return
        self._rank = rank
        set_process_index(rank)
        self.state.is_world_process_zero = self.state.is_local_process_zero = rank == 0
        if rank == 0 and before is not None:
            for callback in self.callback_handler.callbacks:
                if isinstance(callback, ProgressCallback) and callback.training_bar is None:
                    callback.on_train_begin(self.args, self.state, self.control)

    # -- the loop over the batches of an epoch ------------------------------------------------------------------------

    def _run_epoch(self, **call: Any) -> None:
        training = self._elastic
        if training is None:
            super()._run_epoch(**call)
            return
        epoch: int = call["epoch"]
        model, trial, ignored, began_s = (
            call[name] for name in ("model", "trial", "ignore_keys_for_eval", "start_time")
        )
        if hasattr(self._train_loader, "set_epoch"):
            self._train_loader.set_epoch(epoch)
        grad_norm = learning_rate = None
        self._batches = iter(self._loader)
        while (micro_batches := self._next_micro_batches(training)) and not self._stops():
            if not self._make_gradients(training, model, micro_batches):
                continue
            if self.args.max_grad_norm > 0:
                grad_norm = self._clip_grad_norm(model)
            grad_norm = self._get_grad_norm(model, grad_norm=grad_norm if self.args.max_grad_norm > 0 else None)
            self.control = self.callback_handler.on_pre_optimizer_step(self.args, self.state, self.control)
            self.optimizer.step()
            self.control = self.callback_handler.on_optimizer_step(self.args, self.state, self.control)
            learning_rate = self._get_learning_rate()
            by_metric = isinstance(self.lr_scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
            if not self.accelerator.optimizer_step_was_skipped and not by_metric:
                self.lr_scheduler.step()
            model.zero_grad()
            self.state.global_step += 1
            self.state.epoch = epoch + training.step.offset / call["steps_in_epoch"]
            self.control = self.callback_handler.on_step_end(self.args, self.state, self.control)
            self._maybe_log_save_evaluate(
                self._tr_loss, grad_norm, model, trial, epoch, ignored, began_s, learning_rate=learning_rate
            )
            if self._stops():
                break
        self._batches.close()  # type: ignore[attr-defined]  # a generator
        self.control = self.callback_handler.on_epoch_end(self.args, self.state, self.control)
        self._maybe_log_save_evaluate(
            self._tr_loss, grad_norm, model, trial, epoch, ignored, began_s, learning_rate=learning_rate
        )
        if not self.control.should_training_stop:
            next(self._epochs, None)
            # The job's goal may be reached before the last epoch.
            self.control.should_training_stop = training.training.goal_reached

    def _stops(self) -> bool:
        return bool(self.control.should_epoch_stop or self.control.should_training_stop)

    def _next_micro_batches(self, training: ElasticTraining) -> list[MicroBatch]:
        """Return this member's shares of the global batches of the next step; none at the end of the epoch."""
        found: list[MicroBatch] = []
        for inputs in self._batches:
            found.append(MicroBatch(inputs, training.step.weight))
            if self._loader.completes(self.args.gradient_accumulation_steps):
                break
        self._note_rank()
        if found and self._saved_step == self.state.global_step and self.args.should_save:
            self._save_again()
        return found

    def _make_gradients(self, training: ElasticTraining, model: Any, micro_batches: list[MicroBatch]) -> bool:
        """Compute a step's gradients and sum them over the members; return whether the step counts."""
        step = training.step
        items, totals, weights = self._exchange(training, micro_batches)
        if step.failed:
            return training.reduce(None)  # which says that nothing of this step follows
        self.current_gradient_accumulation_steps = len(micro_batches)
        self.control = self.callback_handler.on_step_begin(self.args, self.state, self.control)
        alike = len(set(weights)) == 1
        loss = torch.zeros((), dtype=torch.float64)
        for i, (batch, weight) in enumerate(zip(micro_batches, weights, strict=True)):
            last = i == len(micro_batches) - 1
            self.accelerator.gradient_state._set_sync_gradients(last)
            if weight > 0.0:
                loss = loss.to(self.args.device) + weight * self.training_step(model, batch.inputs, items).double()
            if not last:
                if not alike:
                    step.fold(weight)
                self.control = self.callback_handler.on_substep_end(self.args, self.state, self.control)
        step.set_weight(weights[-1])
        step.tell_weighted_loss(loss.item())
        if not training.reduce(None):
            return False
        self._note_totals(training, totals)
        return True

    def _exchange(
        self, training: ElasticTraining, micro_batches: list[MicroBatch]
    ) -> tuple[torch.Tensor | None, Totals, list[float]]:
        """Exchange what the members' gradients count by.

        Returns:
            Over how many items (tokens, say) this member's loss is to be the mean, None: over the samples; what all
            members' numbers add up to; and this member's part in each micro-batch, 0 to 1.
        """
        own = [batch.inputs for batch in micro_batches if batch.weight > 0.0]
        items = self._get_num_items_in_batch(own, self.args.device)
        flos = sum(float(self.floating_point_ops(inputs)) for inputs in own)
        before = self.state.num_input_tokens_seen
        for inputs in own:
            self._track_num_input_tokens(inputs)
        tokens, self.state.num_input_tokens_seen = self.state.num_input_tokens_seen - before, before
        by_items = self.loss_is_scaled_for_ga is not False
        mine = float(items) if items is not None and by_items else 0.0
        totals = add_up(training, Totals(mine, flos, tokens))
        if totals.items > 0.0:
            return items, totals, [mine / totals.items if batch.weight > 0.0 else 0.0 for batch in micro_batches]
        return items, totals, [batch.weight for batch in micro_batches]

    def _note_totals(self, training: ElasticTraining, totals: Totals) -> None:
        """Note what the Trainer counts, for the whole global batch: all members count the same."""
        loss = self._global_loss(training)
        if self.args.logging_nan_inf_filter and not loss.isfinite():
            self._tr_loss += self._tr_loss / (1 + self.state.global_step - self._globalstep_last_logged)
        else:
            self._tr_loss += loss
        self.current_flos += totals.flos
        self.state.num_input_tokens_seen += int(totals.input_tokens)

    def _global_loss(self, training: ElasticTraining) -> torch.Tensor:
        return torch.tensor(training.step.reduced_loss, device=self._tr_loss.device, dtype=self._tr_loss.dtype)

    # -- evaluation, checkpoints, the end -----------------------------------------------------------------------------

    def _evaluate(self, trial: Any, ignore_keys_for_eval: Any, skip_scheduler: bool = False) -> dict[str, float]:
        training = self._elastic
        if skip_scheduler and training is not None and training.training.membership.resumed:
            return {}  # before the training, which the other members have begun
        found: dict[str, float] = super()._evaluate(trial, ignore_keys_for_eval, skip_scheduler)
        return found

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> Any:
        """Evaluate; in a training each member computes its part of the batches, and all get the same numbers."""
        group = self._elastic.together if self._elastic is not None else None
        if self._elastic is None or group is None:
            return super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
            )
        loss_only = prediction_loss_only if prediction_loss_only is not None else self.args.prediction_loss_only
        found = shared_predictions.predict(self, self._elastic, group, dataloader, loss_only, ignore_keys)
        results = iter(found)
        # For this loop only, and for subclasses that predict in their own way too.
        self.prediction_step = lambda *args, **options: next(results)
        try:
            return super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
            )
        finally:
            del self.prediction_step

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self._elastic is None:
            super()._save_checkpoint(model, trial)
            return
        self._saved_step = self.state.global_step
        if self.args.should_save:
            super()._save_checkpoint(model, trial)
        else:
            self.store_flos()
        if self.state.best_global_step == self.state.global_step:
            # transformers looks whether the folder is there, which other members cannot know yet.
            self.state.best_model_checkpoint = str(self._checkpoint_path())

    def _checkpoint_path(self) -> Path:
        return Path(self._get_output_dir(None)) / f"checkpoint-{self.state.global_step}"

    def _save_again(self) -> None:
        """Write a checkpoint whose writer has died before it was whole."""
        if not (self._checkpoint_path() / "trainer_state.json").exists():
            super()._save_checkpoint(self.model, None)
        self._saved_step = -1

    def _finalize_training(self, *args: Any, **options: Any) -> Any:
        if self._elastic is not None:
            self._elastic.finish()
        return super()._finalize_training(*args, **options)


def check_supported(trainer: Any, trial: Any) -> None:
    """Raise InputError if the Trainer is to share out the training itself, or members would not train alike.

    Args:
        trainer: the Trainer.
        trial: its trial of a search; None: it is not in one.
    """
    args = trainer.args
    wrong = {
        "DeepSpeed": trainer.is_deepspeed_enabled,
        "FSDP": trainer.is_fsdp_enabled,
        "auto_find_batch_size": args.auto_find_batch_size,
        "hyperparameter_search": trial is not None,
        "tensor, context or sequence parallelism": max(
            trainer.get_tp_size(), trainer.get_cp_size(), trainer.get_sp_size()
        )
        > 1,
        "several GPUs in one process": args.n_gpu > 1,
        "several processes that were started by another launcher": args.world_size > 1,
    }
    for what, asked in wrong.items():
        if asked:
            raise InputError(
                f"offcut.torch.transformers: {what} cannot be used in a job of mode session.",
                next_step="Leave it out, or submit the job with mode = 'restart', which runs the script as torchrun "
                "would.",
            )
