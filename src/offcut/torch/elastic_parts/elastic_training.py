"""The elastic training of a script that keeps its own loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

import torch
from torch.utils.data import DataLoader

from offcut.errors import InputError, OffcutError
from offcut.torch.elastic_parts.batch_division import BatchDivision
from offcut.torch.elastic_parts.batch_source import BatchSource, CurrentSource
from offcut.torch.elastic_parts.drawn_batches import DrawnBatches, DrawnLoader
from offcut.torch.elastic_parts.gradient_watch import GradientWatch
from offcut.torch.elastic_parts.indexed_batches import IndexedBatches
from offcut.torch.elastic_parts.loader_step import LoaderStep
from offcut.torch.elastic_parts.loop_random import LoopRandom
from offcut.torch.elastic_parts.row_state import RowState
from offcut.torch.elastic_parts.script_errors import check_arguments, check_largest, check_shards
from offcut.torch.elastic_parts.script_loops import ScriptLoops
from offcut.torch.elastic_parts.sharded_stream import is_sharded
from offcut.torch.elastic_parts.stream_batches import StreamBatches
from offcut.torch.elastic_parts.virtual_shards import Shards
from offcut.torch.fingerprint import fingerprint
from offcut.torch.membership.process_group import Abandoned, Group
from offcut.torch.membership.state_sync import join_with_replica
from offcut.torch.objective import follow_rank
from offcut.torch.state.trained_parameters import parameters_of
from offcut.torch.state.training_state import Stateful, TrainingState
from offcut.torch.step.batch_policy import smallest_share
from offcut.torch.step.member_gradients import MemberGradients
from offcut.torch.training_member import TrainingMember
from offcut.wire.worker_env import ENV_AGENT


class ElasticTraining:
    """Ties a script's model, optimizer and loader to this member of the training.

    Args:
        model: what is trained; every member has all of it.
        optimizers: its optimizers; their `step` is replaced by one that takes part in the members' step.
        loaders: the script's DataLoaders, whose batches are the global ones.
        registered: what else belongs to the training's state.
        several: whether each optimizer is updated by itself, any number of times, and the step ends with the batch.
        virtual_shards: into how many parts each global batch is cut, whatever the size; None: one for each member.
        max_local_batch: the most samples that a member of a job may work on at once; None: no limit.

    Raises:
        InputError: a loader or an optimizer cannot be used so.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: list[torch.optim.Optimizer],
        loaders: Sequence[DataLoader[Any]],
        registered: Sequence[Stateful],
        *,
        several: bool,
        virtual_shards: int | None = None,
        max_local_batch: int | None = None,
    ) -> None:
        check_arguments(model, optimizers, loaders, registered)
        check_shards(virtual_shards)
        check_largest(max_local_batch)
        in_job = bool(os.environ.get(ENV_AGENT))
        self.state = state = TrainingState(model, optimizers)
        # Shards have the same random numbers in a job and outside of one.
        random = LoopRandom(loaders, seeded=in_job or virtual_shards is not None)
        division = BatchDivision(smallest_share(model), virtual_shards, max_local_batch if in_job else None)
        #: The batches of each loader.
        self.sources = [source_of(loader, division, random) for loader in loaders]
        batches = CurrentSource(self.sources[0], lambda: self.training.group)
        self._gradients = MemberGradients(state, self._visit, alone=not in_job)
        parameters = [p for item in optimizers for p in parameters_of(item)]
        self.step = LoaderStep(
            state,
            batches,
            self._gradients,
            random=random,
            virtual_shards=virtual_shards is not None,
            several=several,
            in_job=in_job,
            device=next((p.device for p in parameters), torch.device("cpu")),
        )
        kind = "; ".join(map(kind_of_batches, loaders))
        if virtual_shards is not None:
            kind += f", {virtual_shards} virtual shards"
        state.settings = {
            "samples in the dataset": ", ".join(map(samples_of, loaders)),
            "batches": f"{', '.join(type(loader.batch_sampler).__name__ for loader in loaders)}, {kind}",
        }

        self.training = TrainingMember(
            state,
            batches,
            self.step,
            join=lambda context: join_with_replica(context, state),
            fingerprint=lambda data: fingerprint(model, kind, data.first if isinstance(data, Shards) else data),
        )
        follow_rank(lambda: self.training.membership.rank)
        own: list[Stateful] = [random, *self.sources, self.step.metrics]
        for item in own:
            self.training.register(item)
        #: The script's loops.
        self.loops = ScriptLoops(self.training, self.step, batches, random, self.finish)
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

    def _visit(self, point: str) -> bool:
        return self.training.visit(point)

    # -- a step -------------------------------------------------------------------------------------------------------

    @property
    def in_step(self) -> bool:
        """Whether the script works on a batch for which it has not called step() yet."""
        return self.step.open and not self.step.stepped

    def reduce(self, optimizer: torch.optim.Optimizer | None, *, again: bool = False) -> bool:
        """Sum the gradients, if that was not done in this step or is to be done `again`; return whether it counts."""
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
        step.over = not again
        if step.failed or (step.reduced and not step.several):
            return not step.failed
        self._watch.check()
        if not again and (optimizer is None or not step.several):
            return training.reduce_step()
        if again and training.link is not None:
            # The script may change parameters before the step counts.
            self.state.copy_boundary()
        training.reporter.script_runs(False)
        try:
            with training.timing:
                step.sum_for(training.group, optimizer or self.state.optimizers[0], again=again)
        except Abandoned as reason:
            training.fail_step(reason)
        finally:
            training.reporter.script_runs(True)
        return not step.failed

    def _optimizer_step(self, optimizer: torch.optim.Optimizer, *args: Any, **options: Any) -> Any:
        """Reduce, and update the parameters; leave them as they are if the generation broke."""
        own_step = self._own_steps[id(optimizer)]
        if self.loops.finished:
            return own_step(*args, **options)
        if not self.in_step:
            raise InputError(
                "offcut.torch: optimizer.step() without a batch, or a second one for a batch.",
                next_step="Call it inside the loop over the loader, once for each batch, or for several. For several "
                "updates with a batch (PPO), give elastic() a list: elastic(model, [optimizer], loader).",
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
        return self.loops.together

    # -- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """End the training: wait until every member has come to the end, and keep the state. Later calls do nothing."""
        if self.loops.finished:
            return
        try:
            self.loops.leave()
            self.training.finish()
            self.step.metrics.write(first=self.training.membership.rank == 0)
        except OffcutError as error:
            self.training.report_failure(error)
            raise
        finally:
            self.loops.finished = True
            self.step.drop()
            self._gradients.end()
            if self.step.shards is not None:
                self.step.shards.end()
            for optimizer in self.state.optimizers:
                optimizer.step = self._own_steps[id(optimizer)]

    @property
    def begun(self) -> bool:
        """Whether the training has begun and not ended."""
        return self.training.joined and not self.loops.finished and not self.training.membership.left


def source_of(loader: DataLoader[Any], division: BatchDivision, random: LoopRandom) -> BatchSource:
    """Return the global batches of a loader."""
    if isinstance(loader, DrawnLoader):
        return DrawnBatches(loader.draw, division, random)
    if is_sharded(loader.dataset):
        return StreamBatches(loader, division, random)
    return IndexedBatches(loader, division, random)


def kind_of_batches(loader: DataLoader[Any]) -> str:
    """Return how a loader makes batches, as far as its scaling and its fingerprint go."""
    shards = f", {loader.dataset.shards} shards" if is_sharded(loader.dataset) else ""
    return f"batches of {loader.batch_size or 'a sampler'}, drop_last={loader.drop_last}{shards}"


def samples_of(loader: DataLoader[Any]) -> str:
    """Return the number of samples of a loader's dataset, if that is known."""
    return str(len(loader.dataset)) if hasattr(loader.dataset, "__len__") else "not known"
