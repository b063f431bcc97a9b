"""The loop of a session over data epochs and batches, for all kinds of steps."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from offcut.errors import InputError, OffcutError
from offcut.torch.epoch import Epoch
from offcut.torch.membership.process_exit import Left
from offcut.torch.objective import follow_rank
from offcut.torch.state.training_state import Stateful
from offcut.torch.step.usage_checks import MORE, note_session
from offcut.torch.training_member import TrainingMember

__all__ = ["Left", "TrainingLoop"]


class TrainingLoop:
    """The common part of all sessions: what a script uses of its member, and the loops over epochs and batches.

    Args:
        training: this member's part in the training.
    """

    def __init__(self, training: TrainingMember) -> None:
        self._training = training
        self._state = training.state
        self._state.guard()
        follow_rank(lambda: training.membership.rank)
        self._entered = False
        note_session()

    @property
    def rank(self) -> int:
        """This member's number in the current generation, or in the last one after a step that failed.

        It changes with the generation. Before the first batch it waits until this worker is a member: call it when the
        script is ready to train.
        """
        return self._training.rank

    @property
    def world(self) -> int:
        """How many members (ranks) the current generation has, or the last one had. See `rank`."""
        return self._training.world

    @property
    def steps(self) -> int:
        """How many steps have been applied since the job began, restarts and resizes included."""
        return self._training.steps

    @property
    def loss(self) -> float:
        """Mean loss over the last applied step's global batch; NaN before the first step."""
        return self._state.loss

    def register(self, item: Stateful) -> None:
        """Make a scheduler, an average of weights or the like part of the training's state.

        Register the same objects in the same order in every run, before the first batch, and before `once()`, `rank`
        and `world` are asked for, because the state arrives with these.

        Args:
            item: anything with `state_dict()` and `load_state_dict()`.

        Raises:
            InputError: `item` has no such methods, or the training has begun.
        """
        self._training.register(item)

    def __enter__(self) -> Self:
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._training.finish()
        except OffcutError as found:
            error = found
            raise
        finally:
            self._state.unguard()
            if isinstance(error, OffcutError):
                self._training.report_failure(error)

    def epochs(self, count: int) -> Iterator[Epoch]:
        """Iterate over the data epochs that are left of `count`.

        A worker that joins a running job begins in the middle of the epoch that the others are in.

        Args:
            count: how many passes over the data the whole training makes.

        Yields:
            Each epoch: an iterator of this member's parts of its global batches.

        Raises:
            InputError: the session was not entered.
        """
        training, state = self._training, self._state
        if not self._entered:
            raise InputError(
                f"{type(self).__name__}: epochs() outside of the session's `with` block.",
                next_step=f"Write `with {type(self).__name__}(...) as session:` around the loop, because the end of "
                f"that block ends the training. {MORE}",
            )
        training.take_part()
        training.epochs = count
        while state.cursor.epoch < count and not training.goal_reached:
            epoch = state.cursor.epoch
            yield Epoch(epoch, self._batches)
            training.end_epoch(epoch)

    def _batches(self, epoch: int) -> Iterator[Any]:
        while (part := self._training.next_part(epoch)) is not None:
            try:
                yield part
            except GeneratorExit:
                self._training.leave_loop(epoch)
                raise

    def once(self) -> bool:
        """Return True on one member: for what must happen once, such as evaluating, logging or saving the model.

        After a step that failed it returns False on all members until the next batch, because it is not known yet which
        members are left. Before the first batch it waits until this worker is a member.
        """
        return self._training.once()

    def _visit(self, point: str) -> bool:
        """Pass a point at which tests let something fail; return whether the generation is to count as broken."""
        return self._training.visit(point)
