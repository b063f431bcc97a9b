"""Sums gradients over the members while the backward pass still computes others.

Gradients are in buckets, in an order that is the same on all members. A bucket is copied and its sum started when its
gradients are complete and the buckets before it are started. Whether they are complete nobody knows for sure: the
script may add to them in another backward pass. So it is assumed that each gradient is added to as often as in the step
before. If a gradient has changed after its bucket was started, its member says so with the step's signals, and all
members sum all buckets once more. The gradients that a member has made stay as they are until that is known.

A step is *ahead* if buckets may be started in its backward pass. All members have to agree on that, because they all
have to start all buckets of such a step, even if it fails or the script drops it. So a step is ahead if the step before
it, in the same generation, has summed the gradients of all optimizers at once and without a repetition; after a
repetition the next ones are not, for a number of steps that doubles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from offcut.torch.membership.process_group import Abandoned, Group, Pending
from offcut.torch.step.gradient_buckets import FlatGradients

#: The most steps that are not ahead after a repetition.
_MOST_PAUSED = 256


class BackwardOverlap:
    """Sums the buckets of a training's gradients, as early as it can.

    Args:
        buckets: the buckets in their order, each with the number of its optimizer.
        visit: called at the points where tests let something fail; if it returns True, the generation broke.
        aside: returns whether gradients of this step were put aside; what is there then is not complete.
    """

    def __init__(
        self,
        buckets: Sequence[tuple[int, FlatGradients]],
        visit: Callable[[str], bool],
        aside: Callable[[], bool],
    ) -> None:
        self._optimizers = [number for number, _ in buckets]
        self._buckets = [bucket for _, bucket in buckets]
        self._visit = visit
        self._aside = aside
        self._bucket_of = {p: i for i, bucket in enumerate(self._buckets) for p in bucket.parameters}
        #: How often each gradient was added to in the last step, and in this one so far.
        self._usual = dict.fromkeys(self._bucket_of, 1)
        self._times = dict.fromkeys(self._bucket_of, 0)
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._group: Group | None = None
        self._weight: Callable[[], float] | None = None
        #: Whether this step is ahead, whether the next one is, and how many steps are not.
        self._ahead = self._next_ahead = False
        self._paused = self._pause = 0
        #: Whether the gradients of this step were summed.
        self._summed = False
        #: How many gradients each bucket still lacks.
        self._lacks: list[int] = []
        #: The sums of this step that were started, in the buckets' order, and what was copied into each bucket.
        self._under_way: list[Pending] = []
        self._copied: list[tuple[float | None, list[tuple[int, int] | None]]] = []
        #: Why no more buckets can be started in this backward pass.
        self._broken: Abandoned | None = None

    # -- a step -------------------------------------------------------------------------------------------------------

    def begin(self, group: Group, weight: Callable[[], float] | None) -> None:
        """Begin a step.

        Args:
            group: the members.
            weight: returns what this member's gradients are multiplied by; None: they are weighted already.

        Raises:
            Abandoned: the generation broke in sums of a step that was dropped.
        """
        if group is not self._group:
            self.fail()
            self._group, self._next_ahead, self._paused, self._pause = group, False, 0, 0
        elif self._ahead and not self._summed:
            # The script has left its loop. Other members may have started more buckets than this one, or fewer.
            self._start_rest(None)
            self._wait()
        if group.world > 1:
            group.begin_data()
            self._watch()
        else:
            self.end()
        self._ahead = self._next_ahead and group.world > 1 and not self._paused
        self._paused = max(0, self._paused - 1)
        self._next_ahead = False
        self._weight, self._broken, self._summed = weight, None, False
        self._under_way, self._copied = [], []
        self._times = dict.fromkeys(self._bucket_of, 0)
        self._lacks = [sum(self._usual[p] > 0 for p in bucket.parameters) for bucket in self._buckets]

    def _watch(self) -> None:
        if not self._hooks:
            trained = [p for p in self._bucket_of if p.requires_grad]
            self._hooks = [p.register_post_accumulate_grad_hook(self._added) for p in trained]

    def _added(self, p: torch.Tensor) -> None:
        """Note that a backward pass has added to a gradient; start the buckets that are complete now."""
        assert isinstance(p, torch.nn.Parameter)
        self._times[p] += 1
        if not self._ahead or self._summed or self._times[p] != self._usual[p]:
            return
        self._lacks[self._bucket_of[p]] -= 1
        if self._aside() or self._broken is not None:
            return
        while len(self._under_way) < len(self._buckets) and self._lacks[len(self._under_way)] == 0:
            try:
                if self._visit("bucket"):
                    raise Abandoned("injected during the backward pass")
                self._start_next(self._weight() if self._weight is not None else None)
            except Abandoned as reason:  # not through the script's backward(): the step fails when it is to be summed
                self._broken = reason
                return

    def _start_next(self, factor: float | None) -> None:
        bucket, group = self._buckets[len(self._under_way)], self._group
        assert group is not None
        self._copied.append((factor, [_version(p) for p in bucket.parameters]))
        bucket.copy_scaled(factor)
        self._under_way.append(group.start_bucket(bucket.buffer))

    def _start_rest(self, factor: float | None) -> None:
        while len(self._under_way) < len(self._buckets):
            self._start_next(factor)

    def _wait(self) -> None:
        assert self._group is not None
        for work in self._under_way:
            self._group.wait(work)

    def start(self, group: Group, optimizers: Sequence[int], factor: float | None) -> OverlappedSum:
        """Start the sums that were not started in the backward pass, of the gradients of some optimizers.

        Args:
            group: the members; all call this at once.
            optimizers: their numbers.
            factor: what this member's gradients are multiplied by; None: they are weighted already.

        Returns:
            The sums under way.

        Raises:
            Abandoned: the generation broke.
        """
        if self._broken is not None:
            raise self._broken
        whole = set(optimizers) >= set(self._optimizers)
        ahead = self._ahead and not self._summed
        if ahead and not whole:
            self._start_rest(factor)
            self._wait()
            ahead = False
        if not self._summed:
            self._next_ahead = whole
            if whole:
                self._usual = dict(self._times)
        self._summed = True
        if ahead:
            changed = self._changed(factor)
            self._start_rest(factor)
            return OverlappedSum(self, group, self._buckets, self._under_way, factor, changed=changed)
        buckets = [b for b, number in zip(self._buckets, self._optimizers, strict=True) if number in optimizers]
        self._under_way = []
        for bucket in buckets:
            bucket.gather()
            if factor is not None:
                bucket.scale(factor)
            self._under_way.append(group.start_bucket(bucket.buffer))
        return OverlappedSum(self, group, buckets, self._under_way, factor)

    def _changed(self, factor: float | None) -> bool:
        """Return whether this member's gradients are others than those that were copied."""
        return any(
            copied_factor != factor or versions != [_version(p) for p in bucket.parameters]
            for (copied_factor, versions), bucket in zip(self._copied, self._buckets, strict=False)
        )

    def repeated(self) -> None:
        """Note that all members had to sum again."""
        self._pause = min(_MOST_PAUSED, 2 * self._pause + 1)
        self._paused = self._pause

    def zero(self) -> None:
        """Remove the gradients of earlier steps."""
        for p in self._bucket_of:
            p.grad = None

    def fail(self) -> None:
        """Note that the generation broke: sums that this member did not wait for may still write when they end."""
        if not all(work.ended for work in self._under_way):
            self._buckets = [bucket.remade() for bucket in self._buckets]
        self._ahead, self._under_way, self._copied = False, [], []
        self._group = None

    def end(self) -> None:
        """Let backward passes be as in plain torch."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


class OverlappedSum:
    """Sums of buckets that are under way.

    Args:
        overlap: what has started them.
        group: the members.
        buckets: the buckets.
        under_way: their sums, in the same order.
        factor: what this member's gradients are multiplied by.
        changed: whether this member asks all to sum again.
    """

    def __init__(
        self,
        overlap: BackwardOverlap,
        group: Group,
        buckets: Sequence[FlatGradients],
        under_way: Sequence[Pending],
        factor: float | None,
        *,
        changed: bool = False,
    ) -> None:
        self._overlap = overlap
        self._group = group
        self._buckets = buckets
        self._under_way = under_way
        self._factor = factor
        self.changed = changed

    def finish(self, *, again: bool) -> None:
        """Wait until the sums are there; they are the gradients then. Raises Abandoned.

        Args:
            again: whether some member asks all to sum again.
        """
        for work in self._under_way:
            self._group.wait(work)
        if again:
            self._overlap.repeated()
            for bucket in self._buckets:
                bucket.copy_scaled(self._factor)
            for work in [self._group.start_bucket(bucket.buffer) for bucket in self._buckets]:
                self._group.wait(work)
        for bucket in self._buckets:
            bucket.assign()
            bucket.drop_missing()


def _version(p: torch.nn.Parameter) -> tuple[int, int] | None:
    """Return what changes when a parameter's gradient does."""
    return None if p.grad is None else (p.grad.data_ptr(), p.grad._version)
