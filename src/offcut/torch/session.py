"""The one object between a training script and offcut.

A *boundary* is the moment when the loop asks for its next batch: the last step has been applied and the script has done
whatever it does after a step. Membership changes, state moves and workers leave at boundaries only; a step that failed
because a peer died was never applied, and its batch comes again.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch

from offcut.errors import InputError
from offcut.torch.batch import Batch, Loader
from offcut.torch.checkpoint import Checkpoints
from offcut.torch.group import Abandoned, Group
from offcut.torch.link import AgentLink
from offcut.torch.reducer import Reducer, Tally
from offcut.torch.sampler import Cursor, Sampler, share
from offcut.torch.seat import Alone, Left, Seat
from offcut.torch.state import Stateful, TrainingState
from offcut.wire.local import ENV_CHECKPOINT_AGE, ENV_GOAL, ENV_JOB_DIR, ENV_RECORDS
from offcut.wire.records import StepRecords

__all__ = ["Left", "Session"]


class Session:
    """Trains `model` on `dataset`, alone or as one of a job's members.

    Every update uses the gradient of the mean loss over `global_batch` samples, whatever the number of members, so the
    loss curve does not depend on who came and went. `dataset` is map-style (`len` and indexing); `collate` joins
    samples as in a DataLoader. `clip_norm` limits the norm of the reduced gradient. Random numbers (torch, numpy,
    random) are seeded anew for every step from `seed`, the step and the rank.

    Alone (started without offcut) the same script runs as a group of one.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        dataset: Any,
        *,
        global_batch: int,
        seed: int = 0,
        collate: Callable[[list[Any]], Any] | None = None,
        clip_norm: float | None = None,
    ) -> None:
        if global_batch < 1:
            raise InputError(f"Session: global_batch is {global_batch}.", next_step="It is at least 1.")
        if len(dataset) == 0:
            raise InputError("Session: the dataset is empty.", next_step="Give at least one sample.")
        optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
        self._state = TrainingState(model, optimizers)
        self._parameters = [p for item in optimizers for settings in item.param_groups for p in settings["params"]]
        self._reducer = Reducer(self._parameters)
        self._sampler = Sampler(len(dataset), global_batch, seed)
        device = next((p.device for p in self._parameters), torch.device("cpu"))
        self._loader = Loader(dataset, collate, device)
        self._seed = seed
        self._clip_norm = clip_norm
        #: Held from applying a step until the next boundary is passed: outside it the state is that of a boundary.
        self._changing = threading.Lock()
        self._records: StepRecords | None = None
        self._checkpoints: Checkpoints | None = None
        self._goal_samples: int | None = None
        self._link = AgentLink.from_environment()
        self._configure(self._link.worker if self._link else "alone")
        self._seat: Seat | Alone = Alone() if self._link is None else self._take_seat(self._link)
        #: The batch being worked on and this member's share of it; None before the first batch and after a step.
        self._batch: torch.Tensor | None = None
        self._share: torch.Tensor | None = None
        self._loss_sum = 0.0
        #: Of the last applied step, and whether a boundary has followed it.
        self._tally: Tally | None = None
        self._applied = False
        #: After a step that failed: what the script may change before the boundary, as it was.
        self._failed: list[dict[str, Any]] | None = None
        self._stable_step = 0
        self._stable_samples = 0
        self._announced = -1
        self._goal_reached = False

    def _configure(self, worker: str) -> None:
        """What the job asks for by environment; a script that runs alone may be asked the same, for comparison."""
        goal = os.environ.get(ENV_GOAL)
        self._goal_samples = int(goal) if goal else None
        if os.environ.get(ENV_RECORDS):
            self._records = StepRecords(Path(os.environ[ENV_JOB_DIR]) / "records", worker)

    def _take_seat(self, link: AgentLink) -> Seat:
        self._checkpoints = Checkpoints(
            Path(os.environ[ENV_JOB_DIR]) / "checkpoints",
            float(os.environ.get(ENV_CHECKPOINT_AGE, "30")),
            lambda text: link.send("note", text=text),
        )
        return Seat(link, self._state, self._checkpoints, self._changing)

    # -- what a script uses ---------------------------------------------------------------------------------------

    @property
    def model(self) -> torch.nn.Module:
        return self._state.model

    @property
    def rank(self) -> int:
        """This member's number in the current epoch; changes with it."""
        return self._seat.group.rank if self._seat.group else 0

    @property
    def world(self) -> int:
        """How many members (ranks) the current epoch has; changes with it."""
        return self._seat.group.world if self._seat.group else 1

    @property
    def steps(self) -> int:
        """How many steps have been applied since the job began, restarts and resizes included."""
        return self._state.step

    @property
    def loss(self) -> float:
        """Mean loss over the last applied step's global batch."""
        return self._tally.loss if self._tally else float("nan")

    def register(self, item: Stateful) -> None:
        """Make anything with `state_dict` and `load_state_dict` (a scheduler, an average of weights) part of the state.

        Register the same objects in the same order in every run, before the first batch.
        """
        self._state.registered.append(item)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()

    def epochs(self, count: int) -> Iterator[Iterator[Batch]]:
        """The data epochs that are left of `count`, each an iterator of this member's share of its global batches.

        A worker that joins a running job begins in the middle of the epoch that the others are in.
        """
        if not self._seat.taken:
            self._seat.enter_next()
        state = self._state
        while state.cursor.epoch < count and not self._goal_reached:
            epoch = state.cursor.epoch
            yield self._batches(epoch)
            # Leaving the inner loop early ends the epoch; a state that was received may be in the next one already.
            if state.cursor.epoch == epoch and not self._goal_reached:
                state.cursor = Cursor(epoch + 1, 0)

    def backward(self, loss: torch.Tensor) -> None:
        """Accumulate the gradient of `loss`, the mean over (a part of) this member's share.

        Where a share is worked on in k parts, divide each part's loss by k, as without offcut.
        """
        batch, mine = self._working("backward")
        weight = len(mine) / len(batch)
        self._loss_sum += float(loss.detach()) * weight
        (loss * weight).backward()

    def step(self, loss: torch.Tensor | None = None) -> bool:
        """Backward, reduce, clip, update. True when the step counts; False when its batch will come again.

        What a script does after a step that did not count (advancing a scheduler, say) is undone for registered
        objects and for the settings of the optimizers' groups.
        """
        if loss is not None:
            self.backward(loss)
        batch, _ = self._working("step")
        self._share = None
        seat = self._seat
        assert seat.group is not None
        try:
            tally = self._reducer.reduce(seat.group, loss=self._loss_sum, switch=seat.newer, leaving=seat.leaving)
        except Abandoned as reason:
            self._failed = self._state.outside_model()
            self._reducer.abandon_buffers()
            seat.abandon(str(reason))
            return False
        # Every member has applied the step before this one, or it could not have taken part in this reduce.
        self._note_stable()
        self._changing.acquire()
        self._apply(seat.group, tally, len(batch))
        return True

    def once(self) -> bool:
        """True on one member: for what must happen once, such as evaluating, logging or saving the model."""
        return self.rank == 0

    # -- a step ---------------------------------------------------------------------------------------------------

    def _working(self, call: str) -> tuple[torch.Tensor, torch.Tensor]:
        if self._batch is None or self._share is None:
            raise InputError(
                f"Session: {call}() without a batch.",
                next_step="Call it inside the loop over batches, and step() once for each.",
            )
        return self._batch, self._share

    def _batches(self, epoch: int) -> Iterator[Batch]:
        state = self._state
        while True:
            self._boundary()
            if state.cursor.epoch != epoch or self._sampler.done(state.cursor):
                return
            if self._goal_samples is not None and state.samples >= self._goal_samples:
                self._goal_reached = True
                return
            yield self._next_batch()

    def _next_batch(self) -> Batch:
        state, group = self._state, self._seat.group
        assert group is not None
        if self._share is not None:
            raise InputError(
                "Session: the last batch had no step().", next_step="Call session.step once for every batch."
            )
        batch = self._sampler.batch(state.cursor)
        mine = share(batch, group.rank, group.world)
        self._batch, self._share = batch, mine
        self._loss_sum = 0.0
        if self._records is not None:
            self._records.contribute(
                step=state.step + 1,
                epoch=group.membership.epoch,
                data_epoch=state.cursor.epoch,
                samples=mine.tolist(),
            )
        self._reducer.zero()
        _seed_everything(self._seed, state.step, group.rank)
        # A member without a share works on one sample that weighs nothing: every script can take a batch of one.
        return self._loader.load(mine if len(mine) else batch[:1])

    def _apply(self, group: Group, tally: Tally, samples: int) -> None:
        """Update: from here on the step is part of this member's state."""
        if self._clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._parameters, self._clip_norm)
        for optimizer in self._state.optimizers:
            optimizer.step()
        state, epoch = self._state, group.membership.epoch
        state.step += 1
        state.samples += samples
        state.cursor = self._sampler.after(state.cursor)
        self._tally, self._applied = tally, True
        if group.world == 1:
            self._note_stable()
        if self._records is not None:
            self._records.applied(step=state.step, epoch=epoch, loss=tally.loss)
        self._report(group)

    def _note_stable(self) -> None:
        self._stable_step, self._stable_samples = self._state.step, self._state.samples

    def _report(self, group: Group) -> None:
        link, epoch = self._link, group.membership.epoch
        if link is None:
            return
        link.progress(
            epoch=epoch, step=self._stable_step, samples=self._stable_samples, loss=self.loss, first=group.rank == 0
        )
        if self._announced != epoch:
            self._announced = epoch
            if group.rank == 0:
                link.send("formed", epoch=epoch, step=self._state.step)

    # -- boundaries -----------------------------------------------------------------------------------------------

    def _boundary(self) -> None:
        """The state is whole here: switch epochs, leave, or begin a checkpoint as needed."""
        try:
            self._settle_last_step()
            self._move_on()
        finally:
            if self._changing.locked():
                self._changing.release()

    def _settle_last_step(self) -> None:
        if self._failed is not None:
            self._state.restore_outside_model(self._failed)
            self._state.restore_buffers()
            self._failed = None
        elif self._applied:
            self._state.keep_buffers()

    def _move_on(self) -> None:
        seat, tally, applied = self._seat, self._tally, self._applied
        self._applied = False
        if seat.group is None:
            seat.enter_next()
        elif applied and tally is not None and (tally.switch or tally.leaving):
            if isinstance(seat, Seat) and seat.group.rank in tally.leaving:
                seat.leave(save=len(tally.leaving) == seat.group.world and seat.group.rank == 0)
            seat.enter_next(tally.leaving)
        if self._checkpoints is not None:
            self._checkpoints.publish(self._stable_step)
            if self.rank == 0:
                self._checkpoints.maybe_begin(self._state.step, self._state.tree)

    def _finish(self) -> None:
        """The final barrier: every member has applied the last step, and the state is kept for the script's end."""
        if not self._seat.taken:
            self._seat.enter_next()
        seat, link = self._seat, self._link
        while True:
            self._boundary()
            assert seat.group is not None
            try:
                newer = any(row[0] for row in seat.group.gather([int(seat.newer)]))
            except Abandoned as reason:
                seat.abandon(str(reason))
                continue
            if not newer:
                break
            seat.enter_next()
        self._note_stable()
        if link is None or self._checkpoints is None:
            return
        if self.rank == 0:
            self._checkpoints.save_now(self._state.step, self._state.tree())
        self._report(seat.group)
        link.beat_now()
        link.send("finished", epoch=seat.group.membership.epoch, step=self._state.step, first=self.rank == 0)


def _seed_everything(seed: int, step: int, rank: int) -> None:
    """Random numbers as a function of where the training is, not of what this process did before."""
    number = (seed * 1_000_003 + step) * 65_537 + rank
    torch.manual_seed(number % 2**63)
    random.seed(number)
    np.random.seed(number % 2**32)
