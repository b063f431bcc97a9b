"""The elastic training of a script that keeps its own loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from types import MethodType
from typing import Any

import torch
from torch.utils.data import DataLoader

from offcut.errors import InputError, OffcutError
from offcut.torch.elastic_parts.batch_division import BatchDivision
from offcut.torch.elastic_parts.data_order import DataOrder
from offcut.torch.elastic_parts.gradient_watch import GradientWatch
from offcut.torch.elastic_parts.loader_step import LoaderStep
from offcut.torch.elastic_parts.phases import Phases
from offcut.torch.elastic_parts.row_state import RowState
from offcut.torch.elastic_parts.script_errors import check_arguments, check_shards
from offcut.torch.elastic_parts.virtual_shards import Shards
from offcut.torch.fingerprint import fingerprint
from offcut.torch.membership.process_group import Abandoned, Group
from offcut.torch.membership.state_sync import join_with_replica
from offcut.torch.state.trained_parameters import parameters_of
from offcut.torch.state.training_state import Stateful, TrainingState
from offcut.torch.step.batch_policy import smallest_share
from offcut.torch.step.member_gradients import MemberGradients
from offcut.torch.step.share_loader import ShareLoader
from offcut.torch.training_member import TrainingMember
from offcut.wire.worker_env import ENV_AGENT


class ElasticTraining:
    """Ties a script's model, optimizer and loader to this member of the training.

    Args:
        model: what is trained; every member has all of it.
        optimizers: its optimizers; their `step` is replaced by one that takes part in the members' step.
        loader: the script's DataLoader, whose batches are the global ones.
        registered: what else belongs to the training's state.
        virtual_shards: into how many parts each global batch is cut, whatever the size; None: one for each member.

    Raises:
        InputError: the loader or the optimizer cannot be used so.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: list[torch.optim.Optimizer],
        loader: DataLoader[Any],
        registered: Sequence[Stateful],
        *,
        virtual_shards: int | None = None,
    ) -> None:
        check_arguments(model, optimizers, loader, registered)
        check_shards(virtual_shards)
        in_job = bool(os.environ.get(ENV_AGENT))
        # Shards have the same random numbers in a job and outside of one.
        seeded = in_job or virtual_shards is not None
        self.state = state = TrainingState(model, optimizers)
        self._order = DataOrder(loader, seeded=seeded)
        self._gradients = MemberGradients(state, self._visit, alone=not in_job)
        parameters = [p for item in optimizers for p in parameters_of(item)]
        device = next((p.device for p in parameters), torch.device("cpu"))
        self.step = LoaderStep(
            state,
            self._order,
            ShareLoader(loader, seeded=seeded),
            self._gradients,
            division=BatchDivision(smallest_share(model), virtual_shards),
            in_job=in_job,
            device=device,
        )
        kind = f"batches of {loader.batch_size or 'a sampler'}, drop_last={loader.drop_last}"
        if virtual_shards is not None:
            kind += f", {virtual_shards} virtual shards"
        state.settings = {
            "samples in the dataset": str(len(loader.dataset)) if hasattr(loader.dataset, "__len__") else "not known",
            "batches": f"{type(loader.batch_sampler).__name__}, {kind}",
        }

        self.training = TrainingMember(
            state,
            self._order,
            self.step,
            join=lambda context: join_with_replica(context, state),
            fingerprint=lambda data: fingerprint(model, kind, data.first if isinstance(data, Shards) else data),
        )
        self.training.register(self._order)
        for item in registered:
            self.training.register(item)
            if isinstance(item, RowState):
                item.attach(self.step)
        self.step.on_batch = self.training.reporter.step_begun
        self._watch = GradientWatch(parameters)
        #: The optimizers' own step, by optimizer.
        self._own_steps: dict[int, Callable[..., Any]] = {id(item): item.step for item in optimizers}

        def step(own: torch.optim.Optimizer, *args: Any, **options: Any) -> Any:
            return self._optimizer_step(own, *args, **options)

        # Schedulers warn if they do not find the mark of their own replacement.
        step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
        for optimizer in optimizers:
            # As torch's schedulers do it: on the object, so that its class, its hooks and its state stay.
            optimizer.step = MethodType(step, optimizer)
            optimizer.step_was_skipped = False
        #: The data epoch that the script is in, and the one in whose loop over the loader it was last.
        self._epoch: int | None = None
        self._looped: int | None = None
        #: Whether the script is in a loop over the loader.
        self.in_loop = False
        self._phases = Phases()
        self.training.register(self._phases)
        #: Whether the script goes on after a step that failed, with the state that it will have in its next step.
        self._recovered = False
        self._finished = False

    def _visit(self, point: str) -> bool:
        return self.training.visit(point)

    # -- loops --------------------------------------------------------------------------------------------------------

    def take_part(self) -> None:
        """Become a member of the training. Later calls do nothing."""
        self._order.record_start()
        waits = not self.training.joined
        self.training.take_part()
        if waits:
            self._order.share_start()

    def epochs(self, count: int, *, more: bool) -> Iterator[int]:
        """Iterate over the numbers of the data epochs that are left of `count`; then end the training, or the phase."""
        self._check_not_finished("epochs")
        self.take_part()
        training, state, phases = self.training, self.state, self._phases
        self._end_loop()
        phase = phases.enter(state.cursor.epoch)
        training.epochs = None if more else phases.start(phase) + count
        try:
            while not phases.over(phase) and not training.goal_reached:
                epoch = state.cursor.epoch
                number = epoch - phases.start(phase)
                if number >= count:
                    break
                self._epoch, self._looped = epoch, None
                yield number
                training.end_epoch(epoch)
        finally:
            self._epoch = None
        if not more:
            self.finish()

    def steps_until(self, count: int, *, more: bool) -> Iterator[int]:
        """Iterate over the numbers of the steps that are left of `count`; then end the training, or the phase."""
        self._check_not_finished("steps")
        while not self.goal_reached and (number := self.steps_in_script()) < count:
            yield number
            self._complete()
        if not more:
            self.finish()

    def steps_in_script(self) -> int:
        """Return how many steps were applied; after a step that failed, on all members the same before it goes on."""
        self.take_part()
        if self.failed and not self._recovered:
            # The others may have applied the step. What the script does until its next batch is for the failed one.
            self._recovered = True
            self.training.pass_boundary()
            self.state.copy_script_state()
        return self.state.step

    def _check_not_finished(self, call: str) -> None:
        if self._finished:
            raise InputError(
                f"offcut.torch: a loop over {call}() after another one has ended the training.",
                next_step="Write epochs(3, more=True), or steps(1000, more=True), for each loop that another one "
                "follows.",
            )

    def _begin_loop(self) -> int:
        """Return the data epoch of the loop over the loader that begins; outside of `epochs()` each is the next one."""
        if self._epoch is None:
            self._check_not_finished("the loader")
            self.take_part()
            self._end_loop()
            return self.state.cursor.epoch
        if self._looped == self._epoch:
            raise InputError(
                "offcut.torch: a second loop over the elastic loader in one epoch.",
                next_step="Loop over it once for each turn of offcut.torch.epochs(); for an evaluation use "
                "offcut.torch.evaluate(), with a loader of its own.",
            )
        return self._epoch

    def _end_loop(self) -> None:
        """Move to the next data epoch, if the script has been in a loop over the loader and has left it."""
        if self.in_loop:
            self._leave_loop()
        if self._looped is None:
            return
        if self.state.step == 0 and self.step.turns:
            raise InputError(
                "offcut.torch: a loop over the elastic loader was left before its first optimizer.step().",
                next_step="To look at a sample before the training, use the dataset.",
            )
        self.training.end_epoch(self._looped)

    def _leave_loop(self) -> None:
        """Leave the loop over the loader before its end, by `break` or because the script's steps are done."""
        assert self._looped is not None
        self._complete()
        self.training.leave_loop(self._looped)
        self.in_loop = False
        self._order.end_loop()

    def batches(self) -> Iterator[Any]:
        """Iterate over this member's shares of the data epoch's global batches."""
        epoch, training, step = self._begin_loop(), self.training, self.step
        self._looped, self.in_loop = epoch, True
        step.begin_loop(training.membership.group)
        while True:
            if self._looped != epoch or not self.in_loop:
                raise InputError(
                    "offcut.torch: the script goes on with a loop over the elastic loader that it has left.",
                    next_step="Have one loop at a time; a new one begins a new data epoch.",
                )
            self._complete()
            part = training.next_part(epoch)
            self._recovered = False
            if part is None:
                self.in_loop = False
                self._order.end_loop()
                if self.goal_reached and self._epoch is None:
                    # A loop outside of epochs() may be an endless one.
                    self.finish()
                    raise SystemExit(0)
                return
            try:
                yield part.data
            except GeneratorExit:
                if self._looped == epoch and self.in_loop:
                    self._leave_loop()
                raise

    def _complete(self) -> None:
        """Complete a step of several optimizers, or one that a GradScaler has left out, on all members alike."""
        step = self.step
        if step.updated and not step.stepped and not step.failed:
            self.training.reduce_step()
        if step.open and step.reduced and not step.stepped and not step.failed:
            self.training.apply_step()

    @property
    def turns(self) -> int:
        """How many batches the loop over the loader gets: of a whole data epoch, or inside the loop, of this loop."""
        return self.step.turns + self.step.turns_left if self.in_loop else self._order.length

    def completes(self, count: int) -> bool:
        """Return whether the last batch completes `count` batches of the data epoch, or the data epoch."""
        offset = self.step.offset
        return offset % count == 0 or not self._order.has(offset)

    # -- a step -------------------------------------------------------------------------------------------------------

    @property
    def in_step(self) -> bool:
        """Whether the script works on a batch for which it has not called step() yet."""
        return self.step.open and not self.step.stepped

    @property
    def failed(self) -> bool:
        """Whether the step that the script was or is in has failed, and its next batch has not come."""
        return self.step.open and self.step.failed

    @property
    def goal_reached(self) -> bool:
        """Whether the job has trained on as many samples as it was to."""
        return self.training.goal_reached

    def reduce(self, optimizer: torch.optim.Optimizer | None) -> bool:
        """Sum the gradients over the members, if that was not done in this step; return whether the step counts."""
        step, training = self.step, self.training
        step.check_outside_shards("reduce_gradients()")
        if not self.in_step:
            raise InputError(
                "offcut.torch: the gradients of a batch are reduced once, inside the loop over the loader.",
                next_step="Loop over the loader that elastic() returned, and call step() once for each batch, or for "
                "several.",
            )
        if step.several and optimizer is None:
            raise InputError(
                "offcut.torch.reduce_gradients() in a training with several optimizers.",
                next_step="Say whose gradients: offcut.torch.reduce_gradients(optimizer).",
            )
        if step.failed or (step.reduced and not step.several):
            return not step.failed
        self._watch.check()
        if optimizer is None or not step.several:
            return training.reduce_step()
        training.reporter.script_runs(False)
        try:
            with training.timing:
                step.sum_for(training.group, optimizer)
        except Abandoned as reason:
            training.fail_step(reason)
        finally:
            training.reporter.script_runs(True)
        return not step.failed

    def _optimizer_step(self, optimizer: torch.optim.Optimizer, *args: Any, **options: Any) -> Any:
        """Reduce, and update the parameters; leave them as they are if the generation broke."""
        own_step = self._own_steps[id(optimizer)]
        if self._finished:
            return own_step(*args, **options)
        if not self.in_step:
            raise InputError(
                "offcut.torch: optimizer.step() without a batch, or a second one for a batch.",
                next_step="Call it inside the loop over the loader, once for each batch, or for several.",
            )
        self.step.check_outside_shards("optimizer.step()")
        loss, args, options = self._run_closure(args, options)
        optimizer.step_was_skipped = not self.reduce(optimizer)
        # A scheduler warns if no step() came before its own; a step that is skipped is one.
        optimizer._opt_called = True
        if optimizer.step_was_skipped:
            return loss
        if self.step.several:
            if self.training.link is not None:
                self.state.copy_boundary()
            with self.training.changing:
                self.step.update_one(optimizer, lambda: own_step(*args, **options))
            return loss
        self.step.update = lambda: own_step(*args, **options)
        self.training.apply_step()
        return loss

    def _run_closure(self, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, tuple[Any, ...], Any]:
        """Run the closure that `optimizer.step` was given, which makes the gradients that are to be reduced."""
        closure = args[0] if args else options.get("closure")
        if closure is None:
            return None, args, options
        with torch.enable_grad():
            loss = closure()
        return loss, args[1:], {key: value for key, value in options.items() if key != "closure"}

    def abandon(self, reason: Abandoned) -> None:
        """Note that the generation broke while the members exchanged numbers; a step under way will come again.

        Args:
            reason: what broke it.
        """
        if self.in_step and not self.step.failed:
            self.training.fail_step(reason)
        else:
            self.training.membership.abandon(str(reason))

    @property
    def together(self) -> Group | None:
        """The group if there are other members, and all of them are at this place in the script; otherwise None."""
        self.take_part()
        membership = self.training.membership
        group = membership.group
        if group is None or group.world == 1 or self._finished or self.failed:
            return None
        if self.in_loop:
            return group
        epoch = self._looped if self._looped is not None else self.state.cursor.epoch - 1
        # What a worker does that joins, or begins again, the others have done before.
        before_first = not self.state.begun and membership.resumed
        return None if before_first or membership.furthest > epoch else group

    # -- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """End the training: wait until every member has come to the end, and keep the state. Later calls do nothing."""
        if self._finished:
            return
        try:
            if self.in_loop:
                self._leave_loop()
            self.training.finish()
        except OffcutError as error:
            self.training.report_failure(error)
            raise
        finally:
            self._finished = True
            self.step.drop()
            if self.step.shards is not None:
                self.step.shards.end()
            for optimizer in self.state.optimizers:
                optimizer.step = self._own_steps[id(optimizer)]

    @property
    def begun(self) -> bool:
        """Whether the training has begun and not ended."""
        return self.training.joined and not self._finished and not self.training.membership.left
