"""The step of a data-parallel job: its parts, their gradients, the reduce and the update."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch

from offcut.errors import InputError
from offcut.torch.membership.process_group import Group
from offcut.torch.state.cursor import Cursor
from offcut.torch.state.training_state import TrainingState
from offcut.torch.step.batch import Batch, seed_everything
from offcut.torch.step.batch_policy import BatchPolicy, Part
from offcut.torch.step.gradient_reduce import MemberFlags, StepOutcome
from offcut.torch.step.loader import PartLoader
from offcut.torch.step.member_gradients import MemberGradients
from offcut.torch.step.sampler import Sampler
from offcut.torch.step.sharded_update import ShardedUpdate


class DataParallelStep:
    """See `Step`.

    `visit` is called at the points where tests let something fail; if it returns True, the generation broke. `epochs`
    returns how many data epochs the training has, None while it is not known. `sharded` makes the update where members
    hold shards of the optimizers' state.
    """

    def __init__(
        self,
        state: TrainingState,
        *,
        policy: BatchPolicy,
        sampler: Sampler,
        loader: PartLoader,
        seed: int,
        clip_norm: float | None,
        scaler: Any,
        device: torch.device,
        visit: Callable[[str], bool],
        epochs: Callable[[], int | None],
        sharded: ShardedUpdate | None = None,
    ) -> None:
        self._state = state
        self._sharded = sharded
        #: Without shards no member applies the step before this one has its gradients too.
        self.commits_in_reduce = sharded is not None
        self._epochs = epochs
        self._policy = policy
        self._sampler = sampler
        self._loader = loader
        self._seed = seed
        self._clip_norm = clip_norm
        self._scaler = scaler
        self._device = device
        self._visit = visit
        self._gradients = MemberGradients(state, visit)
        #: The global batch, and this member's parts of it that have still to begin.
        self.batch = torch.empty(0, dtype=torch.int64, device="cpu")
        self._waiting: deque[Part] = deque()
        #: The part that the loop works on; None before the first and after its step().
        self._part: Part | None = None
        self._has_gradient = False
        self._loss_sum = 0.0
        #: Optimizers that have had their update() already.
        self._updated: list[torch.optim.Optimizer] = []
        #: Whether the generation broke: then the step will come again.
        self.failed = False

    # -- parts ------------------------------------------------------------------------------------------------------

    @property
    def more_parts(self) -> bool:
        """Return whether parts of this step have still to begin. InputError if the last one had no step()."""
        if self._part is not None:
            raise InputError(
                "Session: the last batch had no step().", next_step="Call session.step once for every batch."
            )
        return bool(self._waiting)

    def batch_size(self, group: Group) -> int:
        """See `Step`."""
        return self._policy.size(group.world)

    def begin(self, group: Group) -> torch.Tensor:
        """See `Step`."""
        state = self._state
        if self._scaler is not None:
            # A scaler sets its scale with the first loss, and a member may have no samples.
            self._scaler.scale(torch.zeros((), device=self._device))
            # A step that failed may have unscaled already, which a scaler's state_dict does not show.
            self._scaler._per_optimizer_states.clear()
        self.batch = self._sampler.batch(state.cursor, self._policy.size(group.world))
        self._waiting = deque(self._policy.parts(self.batch, group.rank, group.world))
        self._loss_sum, self.failed, self._updated = 0.0, False, []
        state.buffers.begin()
        self._gradients.begin(group)
        self._gradients.zero()
        return self._policy.share(self.batch, group.rank, group.world)

    def next_part(self, group: Group) -> Batch:
        state = self._state
        # Changes by an earlier part of the same step.
        state.restore()
        part = self._part = self._waiting.popleft()
        self._has_gradient = False
        batch = self._loader.load(
            part, state.step, lambda: self._upcoming(group, list(self._waiting), state.step, state.cursor)
        )
        seed_everything(self._seed, state.step, part.stream, self._device)
        self._visit("loaded")
        return batch

    def drop(self) -> None:
        """See `Step`."""
        self._waiting.clear()
        self._part = None

    def _upcoming(self, group: Group, waiting: list[Part], step: int, cursor: Cursor) -> Iterator[tuple[int, Part]]:
        """Yield (step, part) for the parts after one, to the end of the training, if nothing changes.

        Args:
            group: the members.
            waiting: the further parts of its step.
            step: its step.
            cursor: where its global batch begins.
        """
        size = self._policy.size(group.world)
        for part in waiting:
            yield step, part
        while True:
            cursor = self._sampler.after(cursor, size)
            if self._sampler.done(cursor):
                cursor = Cursor(cursor.epoch + 1, 0)
                epochs = self._epochs()
                if epochs is None or cursor.epoch >= epochs:
                    return
            step += 1
            batch = self._sampler.batch(cursor, size)
            for part in self._policy.parts(batch, group.rank, group.world):
                yield step, part

    def _current_part(self, call: str) -> Part:
        """Return the part that the loop works on; InputError if there is none."""
        if self._part is None:
            raise InputError(
                f"Session: {call}() without a batch.",
                next_step="Call it inside the loop over batches, and step() once for each.",
            )
        return self._part

    def backward(
        self, loss: torch.Tensor, optimizer: torch.optim.Optimizer | None = None, *, retain_graph: bool = False
    ) -> None:
        """Add the part's gradient, weighted by its share; with `optimizer`, to its parameters only."""
        part = self._current_part("backward" if optimizer is None else "update")
        self._has_gradient = True
        if self.failed or part.weight == 0.0:
            # Without samples there is no gradient at all, because 0 times an infinite one would be NaN.
            return
        self._loss_sum += float(loss.detach()) * part.weight
        weighted = loss * part.weight
        if self._scaler is not None:
            weighted = self._scaler.scale(weighted)
        inputs = None if optimizer is None else self._gradients.parameters[id(optimizer)]
        weighted.backward(retain_graph=retain_graph, inputs=inputs)

    def check_gradient(self) -> None:
        """Raise InputError if `backward` does not know the part's gradient, because it would have the wrong weight."""
        if not self._has_gradient and not self.failed and self._current_part("step").weight > 0.0:
            raise InputError(
                "Session: step() without a loss, and no backward() of the session before it.",
                next_step="Write session.step(loss), or session.backward(loss) in place of loss.backward().",
            )

    def end_part(self) -> bool:
        """Note that the part is done; return whether it was the step's last."""
        part = self._current_part("step")
        self._part = None
        self._state.buffers.add_part(part.weight)
        if self._waiting:
            self._state.copy_script_state()
        return not self._waiting

    # -- reduce and update ------------------------------------------------------------------------------------------

    @property
    def rest(self) -> list[torch.optim.Optimizer]:
        """The optimizers that had no update() in this step."""
        return [item for item in self._state.optimizers if item not in self._updated]

    def check_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Raise InputError unless `optimizer` may have an update() now."""
        if optimizer not in self.rest:
            raise InputError(
                "Session: update() takes each of the session's optimizers once per step.",
                next_step="Give all optimizers to Session(model, [a, b], ...).",
            )
        if self._policy.max_local_batch or self._policy.virtual_shards or self._sharded is not None:
            raise InputError(
                "Session: update() needs a member's whole share in one part, and all of the optimizers' state.",
                next_step="Use it without max_local_batch, virtual_shards and optimizer_copies.",
            )

    def compute(self, group: Group) -> None:
        """Compute nothing: the script's backward passes have made the gradients."""

    def reduce(self, group: Group, flags: MemberFlags) -> StepOutcome:
        """Sum over the members the gradients of all optimizers that had no update() in this step.

        Args:
            group: the members; all call this at once.
            flags: what this member tells the others.

        Returns:
            What every member knows now.

        Raises:
            Abandoned: the generation broke.
            OffcutError: on all members, if their states or the parameters that they train are not the same.
        """
        outcome = self.reduce_for(group, self.rest, flags, check=group.rank == 0)
        if self._sharded is not None and group.world > 1:
            self.update(group, self.rest)
            self._sharded.exchange(group)
        return outcome

    def reduce_for(
        self,
        group: Group,
        optimizers: list[torch.optim.Optimizer],
        flags: MemberFlags,
        *,
        check: bool = False,
    ) -> StepOutcome:
        """Sum the gradients of `optimizers` over the members; see `reduce`.

        With `check` this member asks all to compare their states in the next step, if that is due.
        """
        return self._gradients.reduce(group, optimizers, flags, loss=self._loss_sum, check=check)

    def fail(self) -> None:
        """Note that the generation broke: the step's batch will come again."""
        self.failed = True
        self._state.copy_script_state()
        self._gradients.fail()
        if self._sharded is not None:
            self._sharded.fail()

    def update(self, group: Group, optimizers: list[torch.optim.Optimizer]) -> None:
        """Clip the gradients by the norm of all of `optimizers` together, and let these change their parameters."""
        state = self._state
        with state.updating(), state.rate.during(optimizers, state.step, group.world):
            if self._scaler is not None:
                for optimizer in optimizers:
                    self._scaler.unscale_(optimizer)
            if self._clip_norm is not None:
                parameters = (p for item in optimizers for p in self._gradients.parameters[id(item)])
                torch.nn.utils.clip_grad_norm_(parameters, self._clip_norm)
            with self._sharded.updating() if self._sharded is not None and group.world > 1 else nullcontext():
                for optimizer in optimizers:
                    if self._scaler is None:
                        optimizer.step()
                    else:
                        self._scaler.step(optimizer)
        self._updated += optimizers

    def apply(self, group: Group, outcome: StepOutcome) -> None:
        """See `Step`."""
        state = self._state
        if self._sharded is not None and group.world > 1:
            self._sharded.apply()
        else:
            self.update(group, self.rest)
        if self._scaler is not None:
            self._scaler.update()
        state.buffers.apply(outcome.changes)
        state.drop_copies()
        self._gradients.applied(outcome)
        state.rate.applied(state.step, group.world)
        state.step += 1
        state.loss = outcome.loss
        state.samples += len(self.batch)
        state.cursor = self._sampler.after(state.cursor, self._policy.size(group.world))

    def settle(self, *, applied: bool) -> None:
        """See `Step`."""
        self._state.restore()
        if applied:
            self._state.buffers.copy_boundary()
