"""The step of a script that keeps its own loop: batches of its DataLoader, its backward passes, its optimizer."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from offcut.errors import InputError
from offcut.torch.elastic_parts.batch_source import BatchSource, CurrentSource, sample_numbers
from offcut.torch.elastic_parts.logged_metrics import LoggedMetrics
from offcut.torch.elastic_parts.loop_random import LoopRandom
from offcut.torch.elastic_parts.rows import rows_in, rows_of
from offcut.torch.elastic_parts.virtual_shards import ShardLoop
from offcut.torch.membership.process_group import Group
from offcut.torch.state.cursor import Cursor
from offcut.torch.state.training_state import TrainingState
from offcut.torch.step.batch import seed_everything
from offcut.torch.step.gradient_reduce import MemberFlags, StepOutcome
from offcut.torch.step.member_gradients import MemberGradients
from offcut.wire.worker_env import ENV_JOB_DIR


@dataclass(frozen=True, slots=True)
class LoadedShare:
    """This member's share of a global batch."""

    data: Any


class LoaderStep:
    """See `Step`. A step has as many batches of the loader as the script asks for before `optimizer.step()`.

    Args:
        state: the training's state.
        batches: the global batches, and this member's portions of them.
        gradients: sums the gradients.
        random: has what random numbers in the loops are seeded with.
        virtual_shards: whether the script loops over virtual shards.
        several: whether each optimizer is updated by itself, any number of times, and the step ends with the batch.
        in_job: whether there are, or may be, other members.
        device: where the training draws random numbers besides the CPU.
    """

    #: No member applies the step before this one has its gradients too.
    commits_in_reduce = False

    def __init__(
        self,
        state: TrainingState,
        batches: CurrentSource,
        gradients: MemberGradients,
        *,
        random: LoopRandom,
        virtual_shards: bool,
        several: bool,
        in_job: bool,
        device: torch.device,
    ) -> None:
        self._state = state
        self._batches = batches
        self._gradients = gradients
        self._random = random
        self.several = several
        self._in_job = in_job
        self._device = device
        #: Runs the loops over virtual shards; None where the script has none.
        self.shards = ShardLoop(state.buffers, device) if virtual_shards else None
        #: Called with the samples of each further batch of a step.
        self.on_batch: Callable[[Group, torch.Tensor], None] = lambda group, samples: None
        #: Whether the script works on batches of a step; whether these are reduced; whether it has called step().
        self.open = self.reduced = self.stepped = False
        #: Whether the generation broke: then the step will come again.
        self.failed = False
        #: Whether the script has come to the step's end: it has asked for the sum of the gradients, or for the update.
        self.over = False
        #: What the script got last.
        self._last = LoadedShare(None)
        #: The offset of the next batch, the samples of the step so far, and this member's part of the last batch.
        self.offset = 0
        self._samples = 0
        self.weight = 1.0
        #: The positions in the last global batch of this member's samples, and how many samples that batch has.
        self._rows: list[int] = []
        self.batch_rows = 0
        #: Called before the gradients are summed, on all members; they may exchange something and raise Abandoned.
        self.before_reduce: list[Callable[[Group], None]] = []
        #: Whether the script weights batches by counts of its own, which are known once it works on a batch.
        self._weighs = False
        #: The weighted losses that the script has told in this step: one for each loop over shards, or each call.
        self._losses: dict[tuple[int, int], float] = {}
        #: The loss over the global batch of the last step that was reduced; NaN if the script has told none.
        self.reduced_loss = math.nan
        #: What the script logs.
        self.metrics = LoggedMetrics(Path(os.environ[ENV_JOB_DIR]) if in_job else None)
        #: Updates the parameters; None: the script has not called step().
        self.update: Callable[[], Any] | None = None
        #: With several optimizers: whether one of them was updated in this step, and those whose gradients are summed.
        self.updated = False
        self._summed: list[torch.optim.Optimizer] = []
        #: How many batches the loop has got from this member.
        self.turns = 0

    # -- the loop over the loader -----------------------------------------------------------------------------------

    def begin_loop(self, source: BatchSource, group: Group | None) -> None:
        """Begin the loop over the batches of the data epoch at the cursor.

        Args:
            source: the batches of the loader that the script loops over.
            group: the members; None between two generations.
        """
        if source is not self._batches.source:
            self._batches.source.drop()
        self._batches.source = source
        source.begin(self._state.cursor.epoch, group)
        self.turns = 0

    @property
    def turns_left(self) -> int:
        """How many more batches the loop over this data epoch will get. TypeError if the sampler does not know."""
        offset = self.offset if self.open and not self.failed else self._state.cursor.offset
        return max(0, self._batches.source.length - offset)

    def has_more(self) -> bool:
        """Return whether the data epoch has a batch after the last one."""
        return self._batches.source.has(self.offset)

    # -- Step -------------------------------------------------------------------------------------------------------

    @property
    def more_parts(self) -> bool:
        """Return whether the step goes on with another batch, because the script has not called step() for it."""
        if not self.open or self.failed or self.stepped:
            return False
        if self.has_more():
            return True
        raise InputError(
            "offcut.torch: the loader has no more batches in this epoch, and there was no optimizer.step() after the "
            "last one.",
            next_step="Call it for what is left too, as in: if loader.completes(4): optimizer.step(). Where a step has "
            "a fixed number of batches, let the epoch have a multiple of it. docs/pitfalls.md says more.",
        )

    def batch_size(self, group: Group) -> int:
        """See `Step`."""
        return self._samples

    def begin(self, group: Group) -> torch.Tensor:
        """See `Step`."""
        state = self._state
        self._gradients.begin(group, lambda: self._own_weight)
        if self.shards is not None:
            self.shards.begin_step([p for several in self._gradients.parameters.values() for p in several])
        state.buffers.begin()
        self.open, self.reduced, self.stepped, self.failed = True, False, False, False
        self.offset, self._samples, self._losses, self.update = state.cursor.offset, 0, {}, None
        self.updated, self._summed, self.over = False, [], False
        self.metrics.begin_step()
        self.weight = -1.0
        if self._in_job:
            # The script may change registered objects before its optimizer.step(), which may fail.
            state.copy_script_state()
        return sample_numbers(self._batches.source.portions(group, self.offset))

    def next_part(self, group: Group) -> LoadedShare:
        """Return this member's share of the next global batch of this step."""
        epoch, source = self._state.cursor.epoch, self._batches.source
        if self.weight >= 0.0:
            source.look(group, self._state.cursor, self.offset)
        portions = source.portions(group, self.offset)
        weight = sum(portion.weight for portion in portions)
        if self.weight >= 0.0:
            self.on_batch(group, sample_numbers(portions))
            if self.shards is None and (self.weight != weight or self._weighs):
                self._gradients.fold(self.weight)
        data = source.load(group, Cursor(epoch, self.offset))
        self.weight = weight
        self._rows = [row for portion in portions for row in portion.rows]
        self.batch_rows = source.size(self.offset)
        self.offset += 1
        self._samples += self.batch_rows
        self.turns += 1
        place_in_all = epoch * 1_000_003 + self.offset
        if self.shards is not None:
            self._last = LoadedShare(self.shards.begin_batch(portions, data, self._random.seed, place_in_all))
        else:
            if self._in_job:
                seed_everything(self._random.seed, place_in_all, portions[0].stream, self._device)
            self._last = LoadedShare(data[0])
        return self._last

    @property
    def runs_on(self) -> bool:
        """Whether the step has failed before its last batch. The script goes on to its end, which may be by a count."""
        return self.open and self.failed and not (self.over or self.stepped or self.several) and self.has_more()

    def same_again(self) -> LoadedShare:
        """Return the last share again, in place of the next one: nothing that a step does counts once it has failed."""
        self.offset += 1
        self.turns += 1
        return self._last

    @property
    def rows(self) -> list[int]:
        """The positions in the last global batch of the samples that the script works on now."""
        portion = self.shards.portion if self.shards is not None else None
        return portion.rows if portion is not None else self._rows

    def draw_rows(self, draw: Callable[[int], Any]) -> Any:
        """Return this member's rows of what a function draws for the global batch; see `offcut.torch.draw_rows`."""
        drawn = self._random.draw_rows(lambda: draw(self.batch_rows))
        if rows_in(drawn) != self.batch_rows:
            raise InputError(
                f"offcut.torch.draw_rows(): the function drew {rows_in(drawn)} rows for {self.batch_rows} samples.",
                next_step="Let it draw as many rows as it is told to.",
            )
        return rows_of(drawn, self._rows)

    def check_outside_shards(self, call: str) -> None:
        """Raise InputError if the script is in the loop over its virtual shards, or has left it early."""
        if self.shards is not None:
            self.shards.check_outside(call)

    def drop(self) -> None:
        """See `Step`."""
        if self.open and not self.failed and not self.stepped:
            self._state.drop_script_copy()
        self.open = False
        self._batches.source.drop()

    def set_weight(self, weight: float) -> None:
        """Weight the last batch by the script's own count.

        Args:
            weight: this member's part of all members' counts.
        """
        self.weight = weight
        self._weighs = True

    def tell_loss(self, loss: float) -> None:
        """Note the mean loss over this member's share of the last batch."""
        weight, call = self._share()
        call = call or (-1, len(self._losses))
        self._losses[call] = self._losses.get(call, 0.0) + (loss * weight if weight > 0.0 else 0.0)

    def tell_weighted_loss(self, loss: float) -> None:
        """Note a loss that is weighted already: the members' add up to the loss over the global batch."""
        self._losses[-1, len(self._losses)] = loss

    def fold(self, weight: float) -> None:
        """Weight the gradients so far by this member's part of a batch; the step's next batch has another weight."""
        self._gradients.fold(weight)

    def log(self, name: str, value: float) -> None:
        """Note a mean over this member's share of the last batch, under a name."""
        self.metrics.add(name, value, *self._share())

    def _share(self) -> tuple[float, tuple[int, int] | None]:
        """Return how much of the batch the script works on now, and which loop over shards that is; None: it is all."""
        if self.shards is not None and self.shards.portion is not None:
            return self.shards.portion.weight, (self.offset, self.shards.passes)
        return self.weight, None

    def compute(self, group: Group) -> None:
        """Compute nothing: the script's backward passes have made the gradients."""

    @property
    def _own_weight(self) -> float:
        """What this member's gradients are multiplied by when they are summed. Those of shards are weighted already."""
        return self.weight if self.shards is None else float(self.shards.contributes)

    def sum_for(self, group: Group, optimizer: torch.optim.Optimizer, *, again: bool = False) -> None:
        """Sum the gradients of one of several optimizers, unless that was done since its last update.

        Args:
            group: the members.
            optimizer: the optimizer.
            again: whether they will be summed once more before its update.

        Raises:
            Abandoned: the generation broke.
            OffcutError: on all members, if their states or the parameters that they train are not the same.
        """
        if optimizer not in self._summed:
            # No flags: all members switch after whole steps only.
            self._gradients.reduce(
                group, [optimizer], MemberFlags(), loss=0.0, check=False, weight=self._own_weight, place=self.offset
            )
            if not again:
                self._summed.append(optimizer)

    def update_one(self, optimizer: torch.optim.Optimizer, update: Callable[[], Any]) -> None:
        """Update the parameters of one of several optimizers. It is undone if the step fails later.

        Args:
            optimizer: the optimizer; its gradients are summed.
            update: does it.
        """
        update()
        self._summed.remove(optimizer)
        self.updated = True

    def reduce(self, group: Group, flags: MemberFlags) -> StepOutcome:
        """Sum the gradients over the members, weighted by their shares; see `Step`."""
        for exchange in self.before_reduce:
            exchange(group)
        if self.shards is not None:
            self.shards.add_buffers(self._samples)
        elif group.world > 1:
            self._state.buffers.add_part(self.weight)
        loss = sum(self._losses.values()) / len(self._losses) if self._losses else math.nan
        outcome = self._gradients.reduce(
            group,
            [] if self.several else self._state.optimizers,
            flags,
            loss=loss,
            check=group.rank == 0,
            weight=self._own_weight,
            place=self.offset,
            logged=self.metrics.names,
        )
        self.metrics.exchange(group)
        self.reduced, self.reduced_loss = True, outcome.loss
        return outcome

    def apply(self, group: Group, outcome: StepOutcome) -> None:
        """Update the parameters, if the script has called step(); the step counts in any case. See `Step`."""
        state = self._state
        self.stepped = True
        if self.update is not None:
            self.update()
        if group.world > 1 or self.shards is not None:
            state.buffers.apply(outcome.changes)
        state.drop_copies()
        self._gradients.applied(outcome)
        self._batches.per_step = max(1, self.offset - state.cursor.offset)
        state.step += 1
        state.loss = outcome.loss
        state.samples += self._samples
        self.metrics.applied(group, step=state.step, epoch=state.cursor.epoch, samples=state.samples)
        state.cursor = Cursor(state.cursor.epoch, self.offset)

    def fail(self) -> None:
        """Note that the generation broke: the step's batches will come again."""
        self.failed = True
        if not self._in_job:
            self._state.copy_script_state()
        self._gradients.fail()

    def settle(self, *, applied: bool) -> None:
        """See `Step`."""
        if self.failed:
            self._gradients.drop()
        self._state.restore()
        if applied and (self._in_job or self.shards is not None):
            self._state.buffers.copy_boundary()
