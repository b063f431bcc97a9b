"""One step of a pipeline job: forward and backward over all stages, the vote, the update.

A member's gradients are final before it enters the vote, so once the vote has ended anywhere, every member is able to
apply the step. If the vote broke for some members, they keep their gradients until the next generation knows whether
any member has applied the step: if one did, all do.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from offcut.errors import InputError
from offcut.torch.membership.process_group import Abandoned, Group
from offcut.torch.pipeline.layer_checks import LayerChecks
from offcut.torch.pipeline.layer_state import LayerState
from offcut.torch.pipeline.member_stages import MemberStages
from offcut.torch.step.batch import Batch, Fetcher
from offcut.torch.step.gradient_reduce import MemberFlags, StepOutcome, StepSignals
from offcut.torch.step.sampler import Sampler


class PipelineStep:
    """See `Step`.

    `visit` is called at the points where tests let something fail; if it returns True, the generation broke.
    """

    #: A step has one part.
    more_parts = False
    #: A member for which the vote has ended applies the step, whether it has ended for this one or not.
    commits_in_reduce = True

    def __init__(
        self,
        state: LayerState,
        stages: MemberStages,
        *,
        sampler: Sampler,
        fetcher: Fetcher,
        clip_norm: float | None,
        visit: Callable[[str], bool],
    ) -> None:
        self._state = state
        self._stages = stages
        self._checks = LayerChecks(state, stages)
        self._sampler = sampler
        self._fetcher = fetcher
        self._clip_norm = clip_norm
        self._visit = visit
        self.batch = torch.empty(0, dtype=torch.int64, device="cpu")
        #: The script's loop has got the batch and has not called step() for it yet.
        self._waits_for_step = False
        #: The gradients of step `state.step + 1` are final and not applied.
        self.prepared = False
        #: The buffers after such a step.
        self._made: list[torch.Tensor] = []
        self._loss = 0.0

    def batch_size(self, group: Group) -> int:
        """See `Step`."""
        return self._stages.plan.batch

    def begin(self, group: Group) -> torch.Tensor:
        """Begin a step (see `Step`). Return the samples whose loss this member computes."""
        state = self._state
        self._checks.begin(group)
        self.batch = self._sampler.batch(state.cursor, self._stages.plan.batch)
        self.prepared = False
        self._waits_for_step = True
        for p in state.parameters(state.held):
            p.grad = None
        pieces = self.batch.tensor_split(self._stages.plan.micro_batches)
        return torch.cat([self.batch[:0], *(pieces[i] for i in self._stages.target_batches)])

    def next_part(self, group: Group) -> Batch:
        """Return the positions of the whole global batch: the plan decides which part of it a member computes."""
        return Batch(None, self.batch)

    def drop(self) -> None:
        """Do nothing: a step has one part."""

    def check_batch(self) -> None:
        """Raise InputError if the batch has had its step() already."""
        if not self._waits_for_step:
            raise InputError(
                "PipelineSession: step() without a batch.", next_step="Call it once for each turn of the inner loop."
            )
        self._waits_for_step = False

    def compute(self, group: Group) -> None:
        """Run forward and backward, and sum gradients over each stage's replicas. Raises Abandoned."""
        plan, stages, state = self._stages.plan, self._stages, self._state
        # Micro-batches of the last batch of a data epoch may be smaller, or empty; empty ones do not count.
        pieces = self.batch.tensor_split(plan.micro_batches)
        shares = [len(piece) / len(self.batch) for piece in pieces]
        pieces = tuple(piece if len(piece) else self.batch[:1] for piece in pieces)
        wanted = sorted({*stages.input_batches, *stages.target_batches})
        fetched = {i: self._fetcher.fetch(pieces[i], state.step, i) for i in wanted}
        self._visit("loaded")
        loss = stages.run(
            {i: fetched[i][0] for i in stages.input_batches},
            {i: fetched[i][1] for i in stages.target_batches},
            rows=[len(piece) for piece in pieces],
            shares=shares,
        )
        self._loss = loss / plan.micro_batches
        for p in state.parameters(state.held):
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        self._stages.sum_over_replicas()
        self.prepared = True

    def reduce(self, group: Group, flags: MemberFlags) -> StepOutcome:
        """Take the vote, which ends when all members have the step's gradients.

        Args:
            group: the members; all call this at once.
            flags: what this member tells the others.

        Returns:
            What every member knows now; its `changes` is the square of the gradient's norm, float64 [1]; 0 where
            nothing is clipped.

        Raises:
            Abandoned: the generation broke.
            OffcutError: on all members, if those that should have the same have not.
        """
        self._checks.compare(group)
        mine = 0.0
        if self._clip_norm is not None:
            mine = sum(float(p.grad.double().square().sum()) for p in self._state.parameters(self._stages.owned))
        if self._visit("before-reduce"):
            raise Abandoned("injected before the vote")
        signals = StepSignals(
            group,
            loss=self._loss,
            switch=flags.switch,
            save=flags.save,
            leaving=flags.leaving,
            changes=torch.tensor([mine], dtype=torch.float64, device="cpu"),
            check=group.rank == 0 and self._checks.times.due,
        )
        pending = signals.start(group)
        if self._visit("inside-reduce"):
            raise Abandoned("injected inside the vote")
        group.wait(pending)
        if self._visit("after-reduce"):
            raise Abandoned("injected after the vote")
        return signals.outcome()

    def apply(self, group: Group, outcome: StepOutcome) -> None:
        """See `Step`."""
        state = self._state
        state.update(self._clip_norm, float(outcome.changes[0]))
        state.drop_copies()
        # What is saved is compared before it is published, because no member publishes before the next step.
        self._checks.times.wanted = outcome.check or outcome.save
        self.prepared = False
        state.step += 1
        state.loss = outcome.loss
        state.layer_step = state.step
        state.samples += len(self.batch)
        state.cursor = self._sampler.after(state.cursor, self._stages.plan.batch)

    def fail(self) -> None:
        """Note that the step broke here; it may have been applied on other members."""
        self._state.copy_script_state()
        self._made = [b.clone() for b in self._state.buffers_in(self._state.held)] if self.prepared else []

    def apply_late(self, norm_squared: float) -> None:
        """Apply the step whose vote broke here to the layers that are held, because another member has applied it."""
        state = self._state
        with torch.no_grad():
            for buffer, made in zip(state.buffers_in(state.held), self._made, strict=True):
                buffer.copy_(made)
        state.buffers.copy_boundary()
        state.update(self._clip_norm, norm_squared)
        state.layer_step += 1
        self.prepared = False

    def compare_at_end(self, group: Group) -> None:
        """Compare what the members have at the end of the training; see `reduce`."""
        self._checks.compare_at_end(group)

    def settle(self, *, applied: bool) -> None:
        """See `Step`."""
        self._state.restore()
        if applied:
            self._state.buffers.copy_boundary()
