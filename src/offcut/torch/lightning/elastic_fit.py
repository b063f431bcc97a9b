"""Ties a Trainer's loops to an elastic training.

The loops stay Lightning's. Where they ask for a batch is the boundary between two steps; a step that fails ends the
turn of the loop at once, with the counters as they were before it, so that nothing that Lightning does after a step is
done for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.loops.fetchers import _DataLoaderIterDataFetcher

from offcut.errors import InputError
from offcut.torch.elastic_parts import current_training
from offcut.torch.elastic_parts.elastic_loader import ElasticLoader
from offcut.torch.elastic_parts.elastic_training import ElasticTraining
from offcut.torch.elastic_parts.member_exchange import exchanged
from offcut.torch.lightning.fit_loaders import FitLoader, ValidationLoader
from offcut.torch.lightning.log_files import write_logs, write_no_logs
from offcut.torch.lightning.logged_values import LoggedValues
from offcut.torch.lightning.trainer_state import TrainerState
from offcut.torch.membership.process_group import Group
from offcut.torch.state.training_state import Stateful
from offcut.torch.step.batch import seed_everything

_END = object()
#: More data epochs than a training has.
_NO_LIMIT = 2**31


class StepFailed(Exception):
    """The generation broke during a step, whose batch will come again."""


class ElasticFit:
    """One `Trainer.fit` in a job.

    Args:
        trainer: the Trainer.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self.logged = LoggedValues(trainer.fit_loop.epoch_loop._results)
        self._state = TrainerState(trainer, self.logged)
        self.training: ElasticTraining | None = None
        self._loader: FitLoader | None = None
        #: The data epochs that are left, and the shares of the one in whose loop the Trainer is.
        self._epochs: Iterator[int] = iter(())
        self._epoch = -1
        self._shares: Any = None
        #: Whether the last iterator over the training loader was not asked for a batch.
        self._unused = False
        #: The loops' counters when the last batch was asked for, and whether its step failed.
        self._counters: dict[str, Any] = {}
        self._failed = False
        #: Whether an epoch's end must be run although the training is to stop; then the limit on steps.
        self._epoch_end_due = False
        self._max_steps = -1
        #: Whether other members, or an earlier run, have trained before.
        self._resumed = False
        write_no_logs()
        fit, epoch, validation = trainer.fit_loop, trainer.fit_loop.epoch_loop, trainer.fit_loop.epoch_loop.val_loop
        self._replaced: list[tuple[Any, str]] = []
        self._replace(fit, "on_run_start", self._begin)
        self._replace(fit, "on_run_end", self._finish)
        self._replace(epoch, "run", self._run_epoch)
        self._replace(epoch, "advance", self._run_turn)
        self._replace(epoch, "on_advance_end", self._end_turn)
        self._replace(validation, "run", self._validate)

    def _replace(self, loop: Any, name: str, function: Callable[..., Any]) -> None:
        setattr(loop, name, partial(function, getattr(loop, name)))
        self._replaced.append((loop, name))

    def detach(self) -> None:
        """Give the loops their own methods again."""
        for loop, name in self._replaced:
            delattr(loop, name)
        self._replaced = []

    # -- loaders ------------------------------------------------------------------------------------------------------

    def training_loader(self, loader: Any) -> FitLoader:
        """Return what the Trainer loops over in place of the script's training loader."""
        if self._loader is not None:
            raise InputError(
                "offcut.torch.lightning: the Trainer has several training loaders.",
                next_step="Give one DataLoader; a dataset can return several things for an index.",
            )
        try:
            length: int | None = len(loader)
        except TypeError:
            length = None
        if length is None:
            raise InputError(
                "offcut.torch.lightning: the length of the training loader is not known.",
                next_step="Give a DataLoader of a dataset that can be indexed.",
            )
        self._loader = FitLoader(loader, self._iterate)
        return self._loader

    def validation_loader(self, loader: Any) -> Any:
        """Return what the Trainer loops over in place of one of the script's validation loaders."""
        return (
            ValidationLoader(loader, self._begin_validation)
            if isinstance(loader, torch.utils.data.DataLoader)
            else loader
        )

    def _begin_validation(self, draws: bool) -> None:
        if self.training is not None and draws:
            self._state.draws += 1

    def _iterate(self) -> Iterator[Any]:
        if self._unused and self.training is not None and self._loader is not None:
            # Lightning makes an iterator and does not use it, after a checkpoint of an epoch's end. A DataLoader draws.
            torch.empty((), dtype=torch.int64).random_(generator=self._loader.own.generator)
        self._unused = True
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        """Iterate over this member's shares of a data epoch's global batches."""
        assert self.training is not None
        self._unused = False
        training, trainer = self.training, self._trainer
        self._epoch = next(self._epochs, -1)
        if self._epoch < 0:
            trainer.should_stop = True
            return
        training.training.epochs = self._expected_epochs()
        assert self._loader is not None
        self._shares = shares = iter(ElasticLoader(training.loops, training.sources[0], self._loader.own))
        for data in shares:
            self._enter_epoch()
            progress = trainer.fit_loop.epoch_loop.batch_progress
            self._counters = self._state.counters()
            # How many were fetched before: another number in a worker that joined, or after a step that failed.
            trainer.fit_loop._data_fetcher.fetched = progress.current.ready
            yield data
        self._enter_epoch()

    def _expected_epochs(self) -> int | None:
        """Return how many data epochs the whole training has, as far as is known."""
        trainer, loop = self._trainer, self._trainer.fit_loop
        known = [loop.max_epochs] if loop.max_epochs >= 0 else []
        if trainer.max_steps >= 0:
            known.append(-(-trainer.max_steps // -(-loop.max_batches // trainer.accumulate_grad_batches)))
        return min(known, default=None)

    # -- the loops ----------------------------------------------------------------------------------------------------

    def _begin(self, own: Callable[[], None]) -> None:
        """Become a member, and take over the state, before the Trainer's callbacks hear of the training."""
        trainer, loop = self._trainer, self._trainer.fit_loop
        self._check()
        assert self._loader is not None
        self.training = training = current_training.begin(
            trainer.lightning_module,
            trainer.optimizers,
            [self._loader.own],
            self._registered(),
            None,
            several=len(trainer.optimizers) > 1,
        )
        # The agent ends the workers: Lightning's handlers would wait for the end of a batch first.
        trainer._signal_connector.teardown()
        training.loops.take_part()
        self._resumed = training.training.membership.resumed or training.state.step > 0
        if self._resumed:
            loop.restarting = False
            loop.reset_restart_stage()
            loop.epoch_loop.reset_restart_stage()
        self._epochs = training.loops.epochs(loop.max_epochs if loop.max_epochs >= 0 else _NO_LIMIT, more=False)
        write_logs(trainer, training.training.membership.rank, begun=self._resumed)
        own()
        progress = loop.epoch_progress.current
        if self._resumed and progress.started > progress.processed:
            # The end of this epoch is still to be run. The state comes again with the first batch.
            self._epoch_end_due, self._max_steps = True, loop.epoch_loop.max_steps
            trainer.should_stop, loop.epoch_loop.max_steps = False, -1

    def _enter_epoch(self) -> None:
        """Note that this worker has asked for a batch."""
        assert self.training is not None
        if self._epoch_end_due:
            self._epoch_end_due = False
            self._trainer.fit_loop.epoch_loop.max_steps = self._max_steps
        write_logs(self._trainer, self.training.training.membership.rank, begun=True)

    def _run_epoch(self, own: Callable[[Any], None], fetcher: Any) -> None:
        own(fetcher)
        shares, training = self._shares, self.training
        if shares is None or training is None:
            return
        if training.step.turns_left or next(shares, _END) is not _END:
            shares.close()
        self._shares = None
        # What a script by itself has drawn for its validations, the members draw now: samples come in the same order.
        draws, self._state.draws = self._state.draws, 0
        for _ in range(draws):
            torch.empty((), dtype=torch.int64).random_()
        if training.training.goal_reached:
            self._trainer.should_stop = True

    def _run_turn(self, own: Callable[[Any], None], fetcher: Any) -> None:
        module = self._trainer.lightning_module
        hook = module._current_fx_name
        # After a step that failed there is another batch, although the last one may have been fetched.
        fetcher.done = False
        try:
            own(fetcher)
        except StepFailed:
            module._current_fx_name = hook
            self._state.load_counters(self._counters)
            self._failed = True

    def _end_turn(self, own: Callable[[Any], None], fetcher: Any) -> None:
        failed, self._failed = self._failed, False
        if not failed:
            own(fetcher)

    def _validate(self, own: Callable[[], Any]) -> Any:
        if self.training is not None:
            # The same on all members, for a loader that shuffles.
            seed_everything(0, self.training.state.step, 1, torch.device("cpu"))
        return own()

    def _finish(self, own: Callable[[], None]) -> None:
        assert self.training is not None
        if self._epoch >= 0:
            self.training.training.end_epoch(self._epoch)
        self.training.finish()
        write_logs(self._trainer, self.training.training.membership.rank, begun=True)
        own()

    # -- a step -------------------------------------------------------------------------------------------------------

    def reduce(self, optimizer: torch.optim.Optimizer) -> None:
        """Sum the gradients over the members. Raises StepFailed in an automatic optimization."""
        assert self.training is not None
        if not self.training.reduce(optimizer) and self._trainer.lightning_module.automatic_optimization:
            raise StepFailed

    def end_training_step(self, output: Any) -> None:
        """Exchange what the module's `training_step` has logged, and complete a manual optimization.

        Args:
            output: what it returned.

        Raises:
            StepFailed: the generation broke.
            InputError: the loss is None, or a metric object was logged.
        """
        training = self.training
        assert training is not None
        manual = not self._trainer.lightning_module.automatic_optimization
        loss = output.get("loss") if isinstance(output, dict) else output
        if loss is None and not manual:
            raise InputError(
                "offcut.torch.lightning: training_step returned None.",
                next_step="Leave samples out in the dataset or by a loss of 0: the members' shares make one step.",
            )
        if training.in_step and isinstance(loss, torch.Tensor):
            training.step.tell_loss(float(loss.detach()))
        self.logged.end(training)
        if manual:
            training.loops.complete()
        if training.step.failed:
            raise StepFailed

    def together(self, exchange: Callable[[Group], Any], alone: Any) -> Any:
        """Return what `exchange` returns; `alone` where there are no other members, or the generation broke."""
        return exchanged(self.training, exchange, alone) if self.training is not None else alone

    # -- what is trained ----------------------------------------------------------------------------------------------

    def _registered(self) -> list[Stateful]:
        """Return what belongs to the training's state besides the model and its optimizers."""
        trainer = self._trainer
        modules = [
            item
            for callback in trainer.callbacks
            for item in vars(callback).values()
            if isinstance(item, torch.nn.Module) and item is not trainer.lightning_module
        ]
        return [self._state, *(config.scheduler for config in trainer.lr_scheduler_configs), *modules]

    def _check(self) -> None:
        """Raise InputError where the Trainer is asked for something that members cannot do together."""
        trainer = self._trainer
        for wrong, what, instead in (
            (
                trainer.reload_dataloaders_every_n_epochs,
                "Trainer(reload_dataloaders_every_n_epochs=...)",
                "One loader serves the whole training; its dataset may ask for the epoch.",
            ),
            (
                trainer._val_check_time_interval is not None,
                "a val_check_interval by the clock",
                "Give it as a number of batches, which is the same on all members.",
            ),
            (
                isinstance(trainer.fit_loop._data_fetcher, _DataLoaderIterDataFetcher),
                "training_step(dataloader_iter)",
                "Take the batch as an argument: training_step(batch, batch_idx).",
            ),
        ):
            if wrong:
                raise InputError(f"offcut.torch.lightning: {what} is not supported.", next_step=instead)
