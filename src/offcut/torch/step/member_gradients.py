"""The gradients of what a member trains: which parameters these are, and their sum over the members."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import blake2b

import torch

from offcut.torch.membership.differences import difference
from offcut.torch.membership.process_group import Abandoned, Group
from offcut.torch.membership.state_checksum import StateChecks
from offcut.torch.state.trained_parameters import Trained, names_in, parameters_in, parameters_of, trained_now
from offcut.torch.state.training_state import TrainingState
from offcut.torch.step import gradient_buckets
from offcut.torch.step.backward_overlap import BackwardOverlap, OverlappedSum
from offcut.torch.step.gradient_buckets import bucketed, gradient_bytes
from offcut.torch.step.gradient_reduce import WHOLE_BITS, MemberFlags, Reducer, StepOutcome, StepSignals


class MemberGradients:
    """Finds out what is trained, sums the gradients of it, and compares the members' states on the way.

    Args:
        state: the training's state.
        visit: called at the points where tests let something fail; if it returns True, the generation broke.
        alone: whether no other member will ever come: then there are no buffers for the sums.
    """

    def __init__(self, state: TrainingState, visit: Callable[[str], bool], *, alone: bool = False) -> None:
        self._state = state
        self._visit = visit
        self._alone = alone
        #: The parameters that are trained in this step, by optimizer; their names, and those as a number.
        self.parameters: dict[int, list[torch.nn.Parameter]] = {}
        self._trained: Trained = []
        self._trained_hash = 0
        #: The reducers of what the last step trained (`_built`), and of what this step trains in addition.
        self._reducers: dict[int, Reducer] = {}
        self._built: Trained | None = None
        self._built_hash = 0
        self._added: dict[int, Reducer] = {}
        #: In place of `_reducers`, for more gradients than a bucket has.
        self._overlap: BackwardOverlap | None = None
        #: Weighted gradients of earlier batches of this step, where the batches have other weights; see `fold`.
        self._folded: dict[torch.nn.Parameter, torch.Tensor] = {}
        self._find_trained_parameters()
        self._checks = StateChecks(state)

    def begin(self, group: Group, weight: Callable[[], float] | None = None) -> None:
        """Begin a step on the state of a boundary.

        Args:
            group: the members.
            weight: returns this member's share of the global batch, by which its gradients are multiplied, as it is
                during a backward pass; None: they are weighted already.

        Raises:
            Abandoned: the generation broke.
        """
        self._checks.begin(group)
        self._state.buffers.begin_generation(group.membership.generation)
        self._folded = {}
        self._find_trained_parameters()
        if self._overlap is not None:
            self._overlap.begin(group, weight)

    def zero(self) -> None:
        """Set the gradients to zero in the buffers in which they will be summed, or remove them."""
        if self._overlap is not None:
            self._overlap.zero()
        for reducer in (*self._reducers.values(), *self._added.values()):
            reducer.zero()

    def fold(self, weight: float, optimizers: Iterable[torch.optim.Optimizer] | None = None) -> None:
        """Weight the gradients so far and put them aside, because the next batch of this step has another weight.

        Args:
            weight: this member's share of the batch that they are of.
            optimizers: whose parameters' gradients; None: all.
        """
        for p in (p for item in optimizers or self._state.optimizers for p in self.parameters[id(item)]):
            if p.grad is not None and weight > 0.0:
                weighted = p.grad * weight
                self._folded[p] = self._folded[p] + weighted if p in self._folded else weighted
            p.grad = None

    def _find_trained_parameters(self) -> None:
        """Find out which parameters are trained; a script may have changed that since the last step.

        All members have to reduce the same, and only the reduce shows whether they do. So new parameters are reduced
        after the others, once all members have said that they are new.
        """
        state = self._state
        now = trained_now(state.optimizers)
        if state.trained is None or [list(map(id, several)) for several in now] != [
            list(map(id, self.parameters.get(id(item), ()))) for item in state.optimizers
        ]:
            self.parameters = {id(item): several for item, several in zip(state.optimizers, now, strict=True)}
            self._trained = names_in(state.model, now)
            self._trained_hash = _short(self._trained)
        if state.trained is None:
            state.trained = self._trained
        if self._alone:
            return
        if state.trained is not self._built:
            there = parameters_in(state.model, state.trained)
            self._build(there)
            self._built, self._built_hash = state.trained, _short(state.trained)
        self._added = {}
        if self._trained_hash != self._built_hash:
            for item, names, before in zip(state.optimizers, self._trained, map(set, state.trained), strict=True):
                new = [p for p, name in zip(self.parameters[id(item)], names, strict=True) if name not in before]
                if new:
                    self._added[id(item)] = Reducer(new)

    def _build(self, parameters: list[list[torch.nn.Parameter]]) -> None:
        """Make the buffers for the gradients of `parameters`, which are by optimizer."""
        state = self._state
        if self._overlap is not None:
            self._overlap.end()
        self._overlap, self._reducers = None, {}
        owner = {p: i for i, several in enumerate(parameters) for p in several}
        # One that two optimizers train is in no single bucket.
        shared = len(owner) < sum(map(len, parameters))
        if gradient_bytes(owner) > gradient_buckets.BUCKET_BYTES and not shared:
            buckets = bucketed([(owner[p], p) for p in state.model.parameters() if p in owner])
            self._overlap = BackwardOverlap(buckets, self._visit, lambda: bool(self._folded))
        else:
            pairs = zip(state.optimizers, parameters, strict=True)
            self._reducers = {id(item): Reducer(several) for item, several in pairs}

    def reduce(
        self,
        group: Group,
        optimizers: list[torch.optim.Optimizer],
        flags: MemberFlags,
        *,
        loss: float,
        check: bool,
        weight: float | None = None,
        place: int = 0,
        logged: str = "",
    ) -> StepOutcome:
        """Sum the gradients of `optimizers` over the members.

        Args:
            group: the members; all call this at once.
            optimizers: whose parameters' gradients are summed.
            flags: what this member tells the others.
            loss: this member's weighted sum of losses.
            check: this member asks all to compare their states in the next step, if that is due.
            weight: this member's share of the global batch, by which its gradients are multiplied; None: they are
                weighted already. A member by itself leaves gradients that are not weighted as they are.
            place: where in the data epoch the step ends, if a script decides that: all members have to agree.
            logged: the names of what the script logs in the step: all members have to agree.

        Returns:
            What every member knows now.

        Raises:
            Abandoned: the generation broke.
            OffcutError: on all members, if their states or the parameters that they train are not the same.
        """
        if group.stale():
            raise Abandoned("a newer generation came")
        if self._visit("before-reduce"):
            raise Abandoned("injected before the reduce")
        agreed = place + zlib.crc32(logged.encode())
        scale = self._weighted(weight, optimizers) if weight is not None else None
        sums = self._start_buckets(group, optimizers, scale) if group.world > 1 else None
        signals = StepSignals(
            group,
            loss=loss,
            switch=flags.switch,
            save=flags.save,
            leaving=flags.leaving,
            changes=self._state.buffers.changes,
            more_changes=any(self._state.buffers.changed_unsent),
            check=check and self._checks.times.due,
            sum_again=sums is not None and sums.changed,
            trains=_at(self._trained_hash, agreed),
            state=self._checks.total,
        )
        alone = scale is not None and group.world == 1
        reducers = [] if alone or self._overlap is not None else [self._reducers[id(item)] for item in optimizers]
        under_way = [work for reducer in reducers for work in reducer.start(group, signals, scale)]
        if not signals.sent:
            under_way.append(signals.start(group))
        if self._visit("inside-reduce"):
            raise Abandoned("injected inside the reduce")
        for work in under_way:
            group.wait(work)
        outcome = signals.outcome()
        if sums is not None:
            sums.finish(again=outcome.sum_again)
        for reducer in reducers:
            reducer.drop_missing()
        if self._visit("after-reduce"):
            raise Abandoned("injected after the reduce")
        self._check_agreed(group, outcome, place, logged)
        if outcome.more_changes:
            outcome = self._reduce_more_changes(group, outcome)
        summed = reducers or sums is not None
        if summed and any(trains != _at(self._built_hash, agreed) for trains in outcome.trains):
            self._reduce_added(group, optimizers, scale)
        self._checks.compare(group, outcome.states)
        return outcome

    def _start_buckets(
        self, group: Group, optimizers: list[torch.optim.Optimizer], scale: float | None
    ) -> OverlappedSum | None:
        """Start what the backward pass has not started; return None where gradients are not in buckets."""
        if self._overlap is None:
            return None
        numbers = [i for i, item in enumerate(self._state.optimizers) if item in optimizers]
        return self._overlap.start(group, numbers, scale)

    def _weighted(self, weight: float, optimizers: list[torch.optim.Optimizer]) -> float:
        """Return the factor that the gradients still need, once those that were put aside are back."""
        aside = [p for item in optimizers for p in self.parameters[id(item)] if p in self._folded]
        if not aside:
            return weight
        self.fold(weight, optimizers)
        for p in [p for item in optimizers for p in self.parameters[id(item)] if p in self._folded]:
            p.grad = self._folded.pop(p)
        return 1.0

    def _reduce_more_changes(self, group: Group, outcome: StepOutcome) -> StepOutcome:
        """Sum the changes of large buffers of which some member has the first in this generation, on all alike."""
        buffers = self._state.buffers
        rows = group.gather(buffers.changed_unsent)
        changes = buffers.send_too([i for i, column in enumerate(zip(*rows, strict=True)) if any(column)])
        group.wait(group.start_all_reduce(changes))
        return replace(outcome, changes=torch.cat([outcome.changes, changes]))

    def _check_agreed(self, group: Group, outcome: StepOutcome, place: int, logged: str) -> None:
        """Raise OffcutError, on all members, if they do not train and log the same at the same place."""
        if len(set(outcome.trains)) == 1:
            return
        raise difference(
            group,
            f"offcut.torch: in step {self._state.step + 1} the members do not train the same parameters",
            {
                **{name: "trained" for several in self._trained for name in several},
                **({"the batch after which optimizer.step() is called": str(place)} if place else {}),
                **({"what is logged": logged} if place else {}),
            },
            "Freeze, unfreeze and add parameters by what all members know: epoch.number, session.steps. Add up the "
            "gradients of several batches by loader.completes(count). Log the same names on all members.",
        )

    def _reduce_added(self, group: Group, optimizers: list[torch.optim.Optimizer], scale: float | None) -> None:
        """Reduce what this step trains and the last one did not, on all members alike."""
        added = [self._added[id(item)] for item in optimizers if id(item) in self._added]
        for work in [work for reducer in added for work in reducer.start(group, scale=scale)]:
            group.wait(work)
        for reducer in added:
            reducer.drop_missing()
        for item in optimizers:
            for p in parameters_of(item):
                if not p.requires_grad:
                    p.grad = None  # frozen: the optimizer must not change it

    def fail(self) -> None:
        """Note that the generation broke: a reduce that this member did not wait for may still write when it ends."""
        if self._overlap is not None:
            self._overlap.fail()
        for reducer in (*self._reducers.values(), *self._added.values()):
            reducer.abandon_buffers()

    def drop(self) -> None:
        """Remove all gradients, because the step will be done again."""
        self._folded = {}
        for p in (p for several in self.parameters.values() for p in several):
            p.grad = None

    def end(self) -> None:
        """End the training: backward passes are as in plain torch from now on."""
        if self._overlap is not None:
            self._overlap.end()

    def applied(self, outcome: StepOutcome) -> None:
        """Note that the step was applied.

        Args:
            outcome: what `reduce` returned.
        """
        # What is saved is compared before it is published, because no member publishes before the next step.
        self._checks.times.wanted = outcome.check or outcome.save
        if self._trained_hash != self._built_hash:
            self._state.trained = self._trained


def _at(trained: int, place: int) -> int:
    """Return the hash of what a member trains at a place in the data epoch: not 0."""
    return (trained - 1 + place * 7919) % ((1 << WHOLE_BITS) - 1) + 1


def _short(trained: Trained) -> int:
    """Return a hash of what a member trains: not 0, and small enough for `StepSignals`."""
    text = repr(trained).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") % ((1 << WHOLE_BITS) - 1) + 1
