"""The loops of a script that keeps its own: over data epochs, over steps, and over the batches of a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from offcut.errors import InputError
from offcut.torch.elastic_parts.batch_source import BatchSource, CurrentSource
from offcut.torch.elastic_parts.loader_step import LoaderStep
from offcut.torch.elastic_parts.loop_random import LoopRandom
from offcut.torch.elastic_parts.phases import Phases
from offcut.torch.membership.process_group import Group
from offcut.torch.state.cursor import Cursor
from offcut.torch.training_member import TrainingMember


class ScriptLoops:
    """Runs a script's loops.

    Args:
        training: this member's part in the training.
        step: the step.
        batches: the batches of the loader that the script loops over.
        random: the random numbers around the loops over a loader.
        finish: ends the training.
    """

    def __init__(
        self,
        training: TrainingMember,
        step: LoaderStep,
        batches: CurrentSource,
        random: LoopRandom,
        finish: Callable[[], None],
    ) -> None:
        self._training = training
        self._state = training.state
        self._step = step
        self._batches = batches
        self._random = random
        self._finish = finish
        self._phases = Phases()
        training.register(self._phases)
        #: The data epoch of `epochs()` that the script is in, and the one in whose loop over a loader it was last.
        self._epoch: int | None = None
        self._looped: int | None = None
        #: Whether the script is in a loop over a loader.
        self.in_loop = False
        #: Whether the script goes on after a step that failed, with the state that it will have in its next step.
        self._recovered = False
        #: Whether the training has ended.
        self.finished = False

    def take_part(self) -> None:
        """Become a member of the training. Later calls do nothing."""
        self._random.record_start()
        waits = not self._training.joined
        self._training.take_part()
        if waits:
            self._random.share_start()

    def start_at(self, epoch: int, offset: int) -> None:
        """Begin the first loop over `epochs()` within the data, unless other members or a checkpoint have a state.

        Args:
            epoch: the data epoch.
            offset: how many of its batches are left out.
        """
        self._phases.load_state_dict({"starts": [0]})
        self._state.cursor = Cursor(epoch, offset)

    # -- over epochs and steps ----------------------------------------------------------------------------------------

    def epochs(self, count: int, *, more: bool) -> Iterator[int]:
        """Iterate over the numbers of the data epochs that are left of `count`; then end the training, or the phase."""
        self._check_not_finished("epochs()")
        self.take_part()
        training, state, phases = self._training, self._state, self._phases
        self._end_loop()
        phase = phases.enter(state.cursor.epoch)
        training.epochs = None if more else phases.start(phase) + count
        training.until_step = None
        try:
            while not phases.over(phase) and not training.goal_reached:
                epoch = state.cursor.epoch
                number = epoch - phases.start(phase)
                if number >= count:
                    break
                self._epoch, self._looped = epoch, None
                yield number
                self.leave()
                training.end_epoch(epoch)
        finally:
            self._epoch = None
        if not more:
            self._finish()

    def steps_until(self, count: int, *, more: bool) -> Iterator[int]:
        """Iterate over the numbers of the steps that are left of `count`; then end the training, or the phase."""
        self._check_not_finished("steps()")
        self._training.until_step = None if more else count
        while (number := self.steps()) < count and not self._training.at_goal:
            yield number
            self.complete()
        if not more:
            self._finish()

    def steps(self) -> int:
        """Return how many steps were applied; after a step that failed, how many the members go on with."""
        self.take_part()
        if self.failed and not self._recovered:
            # The others may have applied the step. What the script does until its next batch is for the failed one.
            self._recovered = True
            self._training.pass_boundary()
            self._state.copy_script_state()
        return self._state.step

    def _check_not_finished(self, what: str) -> None:
        if self.finished:
            raise InputError(
                f"offcut.torch: a loop over {what} after another one has ended the training.",
                next_step="Write epochs(3, more=True), or steps(1000, more=True), for each loop that another one "
                "follows.",
            )

    # -- over batches -------------------------------------------------------------------------------------------------

    def batches(self, source: BatchSource) -> Iterator[Any]:
        """Iterate over this member's shares of a data epoch's global batches.

        Args:
            source: the batches of a loader.
        """
        epoch, training = self._begin_loop(), self._training
        self._looped, self.in_loop = epoch, True
        self._step.begin_loop(source, training.membership.group)
        while True:
            if self._looped != epoch or not self.in_loop:
                raise InputError(
                    "offcut.torch: the script goes on with a loop over the elastic loader that it has left.",
                    next_step="Have one loop at a time; a new one begins a new data epoch.",
                )
            self.complete()
            part: Any
            if self._step.runs_on:
                part = self._step.same_again()
            else:
                part = training.next_part(epoch)
                self._recovered = False
            if part is None:
                self.in_loop = False
                self._random.end_loop()
                return
            try:
                yield part.data
            except GeneratorExit:
                if self._looped == epoch:
                    self.leave()
                raise

    def _begin_loop(self) -> int:
        """Return the data epoch of the loop over a loader that begins; outside of `epochs()` each is the next one."""
        if self._epoch is None:
            self._check_not_finished("the loader")
            if self._training.goal_reached:
                # The script goes over the loader again and again.
                self._finish()
                raise SystemExit(0)
            self.take_part()
            self._end_loop()
            return self._state.cursor.epoch
        if self._looped == self._epoch:
            raise InputError(
                "offcut.torch: a second loop over the elastic loader in one epoch.",
                next_step="Loop over it once for each turn of offcut.torch.epochs(); for an evaluation use "
                "offcut.torch.evaluate(), with a loader of its own.",
            )
        return self._epoch

    def _end_loop(self) -> None:
        """Move to the next data epoch, if the script has been in a loop over a loader."""
        self.leave()
        if self._looped is None:
            return
        if self._state.step == 0 and self._step.turns:
            raise InputError(
                "offcut.torch: a loop over the elastic loader was left before its first optimizer.step().",
                next_step="To look at a sample before the training, use the dataset.",
            )
        self._training.end_epoch(self._looped)

    def leave(self) -> None:
        """Leave the loop over a loader, if the script is in one: by `break`, or because its steps are done."""
        if not self.in_loop:
            return
        assert self._looped is not None
        self.complete()
        self._training.leave_loop(self._looped)
        self.in_loop = False
        self._random.end_loop()

    def complete(self) -> None:
        """Complete a step of several optimizers, or one that a GradScaler has left out, on all members alike."""
        step = self._step
        if step.updated and not step.stepped and not step.failed:
            self._training.reduce_step()
        if step.open and step.reduced and not step.stepped and not step.failed:
            self._training.apply_step()

    def turns(self, source: BatchSource) -> int:
        """Return how many batches the loop gets: of a whole data epoch, or inside the loop, of this member's loop."""
        inside = self.in_loop and self._batches.source is source
        return self._step.turns + self._step.turns_left if inside else source.length

    def completes(self, count: int) -> bool:
        """Return whether the last batch completes `count` batches of the data epoch, or the data epoch."""
        return self._step.offset % count == 0 or not self._step.has_more()

    # -- where the script is ------------------------------------------------------------------------------------------

    @property
    def failed(self) -> bool:
        """Whether the step that the script was or is in has failed, and its next batch has not come."""
        return self._step.open and self._step.failed

    @property
    def together(self) -> Group | None:
        """The group if there are other members, and all of them are at this place in the script; otherwise None."""
        self.take_part()
        membership = self._training.membership
        group = membership.group
        if group is None or group.world == 1 or self.finished or self.failed:
            return None
        if self.in_loop:
            return group
        epoch = self._looped if self._looped is not None else self._state.cursor.epoch - 1
        # What a worker does that joins, or begins again, the others have done before.
        before_first = not self._state.begun and membership.resumed
        return None if before_first or membership.furthest > epoch else group
