"""The one object between a training script and offcut.

A *boundary* is the moment when the loop asks for its next batch: the last step has been applied and the script has done
whatever it does after a step. Membership changes, state moves and workers leave at boundaries only; a step that failed
because a peer died was never applied, and its batch comes again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from offcut.errors import InputError
from offcut.torch.batch import Batch, Fetcher
from offcut.torch.checkpoint import Checkpoints
from offcut.torch.faults import Faults
from offcut.torch.fingerprint import fingerprint
from offcut.torch.group import Abandoned, Group
from offcut.torch.link import AgentLink
from offcut.torch.loader import AheadLoader, Loader
from offcut.torch.pace import Pace
from offcut.torch.policy import BatchPolicy
from offcut.torch.rate import RateRule
from offcut.torch.reducer import Tally
from offcut.torch.sampler import Cursor, Sampler
from offcut.torch.seat import Alone, Left, Seat
from offcut.torch.state import Stateful, TrainingState, check_plain
from offcut.torch.work import Work, parameters_of
from offcut.wire.local import ENV_CHECKPOINT_AGE, ENV_GOAL, ENV_JOB_DIR, ENV_RECORDS
from offcut.wire.records import StepRecords

__all__ = ["Left", "Session"]


class Session:
    """Trains `model` on `dataset`, alone or as one of a job's members.

    Every update uses the gradient of the mean loss over `global_batch` samples, whatever the number of members, so the
    loss curve does not depend on who came and went. `dataset` is map-style (`len` and indexing); `collate` joins
    samples as in a DataLoader, `loader_workers` processes fetch them ahead of time. `clip_norm` limits the norm of the
    reduced gradient. `scaler` is a `torch.amp.GradScaler`; the session scales, unscales and updates with it. Random
    numbers (torch, numpy, random) are seeded anew for every part of every step from `seed`, the step and the stream.

    A member's share of a global batch may come in several *parts*, each one turn of the loop over batches: where it is
    larger than `max_local_batch`, and with `virtual_shards`, which make dropout and BatchNorm independent of the size.
    Instead of `global_batch`, `batch_per_rank` lets the global batch grow with the size; `lr_rule` ("none", "linear",
    "sqrt") then sets the learning rate, with `warmup_steps` after a resize. See `policy` and `rate`.

    Alone (started without offcut) the same script runs as a group of one.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        dataset: Any,
        *,
        global_batch: int | None = None,
        batch_per_rank: int | None = None,
        max_local_batch: int | None = None,
        virtual_shards: int | None = None,
        lr_rule: str = "none",
        warmup_steps: int = 0,
        seed: int = 0,
        collate: Callable[[list[Any]], Any] | None = None,
        loader_workers: int = 0,
        clip_norm: float | None = None,
        scaler: Any = None,
    ) -> None:
        policy = BatchPolicy(
            global_batch=global_batch,
            batch_per_rank=batch_per_rank,
            max_local_batch=max_local_batch,
            virtual_shards=virtual_shards,
        )
        if len(dataset) == 0:
            raise InputError("Session: the dataset is empty.", next_step="Give at least one sample.")
        optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
        self._state = TrainingState(model, optimizers, RateRule(lr_rule, warmup_steps))
        if scaler is not None:
            self._state.registered.append(scaler)
        self._sampler = Sampler(len(dataset), seed)
        fetcher = Fetcher(dataset, collate, seed)
        device = next((p.device for item in optimizers for p in parameters_of(item)), torch.device("cpu"))
        # Before the line to the agent is opened: processes that fetch must not inherit it.
        self._loader = AheadLoader(fetcher, device, loader_workers) if loader_workers else Loader(fetcher, device)
        self._work = Work(
            self._state,
            policy=policy,
            sampler=self._sampler,
            loader=self._loader,
            seed=seed,
            clip_norm=clip_norm,
            scaler=scaler,
            visit=self._at,
        )
        #: Held from applying a step until the next boundary is passed: outside it the state is that of a boundary.
        self._changing = threading.Lock()
        self._records: StepRecords | None = None
        self._checkpoints: Checkpoints | None = None
        self._goal_samples: int | None = None
        self._faults = Faults.from_environment()
        self._link = AgentLink.from_environment()
        self._configure(self._link.worker if self._link else "alone")
        self._seat: Seat | Alone = Alone() if self._link is None else self._take_seat(self._link)
        self._policy = policy
        self._pace = Pace()
        self._fingerprint = ""
        #: The part at hand.
        self._data: Any = None
        #: Of the last applied step, and whether a boundary has followed it.
        self._tally: Tally | None = None
        self._applied = False
        self._stable_step = 0
        self._stable_samples = 0
        self._stable_clock_s = 0.0
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
            self._faults,
        )
        return Seat(link, self._state, self._checkpoints, self._changing, self._faults)

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
        if not (hasattr(item, "state_dict") and hasattr(item, "load_state_dict")):
            raise InputError(
                f"Session: register() was given an object of the type {type(item).__name__}, which has no state.",
                next_step="It needs state_dict() and load_state_dict().",
            )
        self._state.registered.append(item)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        self._loader.close()

    def epochs(self, count: int) -> Iterator[Iterator[Batch]]:
        """The data epochs that are left of `count`, each an iterator of this member's parts of its global batches.

        A worker that joins a running job begins in the middle of the epoch that the others are in.
        """
        check_plain(self._state.tree(), "the state")
        if not self._seat.taken:
            self._seat.enter_next()
        state = self._state
        while state.cursor.epoch < count and not self._goal_reached:
            epoch = state.cursor.epoch
            yield self._batches(epoch)
            self._work.drop()
            # Leaving the inner loop early ends the epoch; a state that was received may be in the next one already.
            if state.cursor.epoch == epoch and not self._goal_reached:
                state.cursor = Cursor(epoch + 1, 0)

    def backward(self, loss: torch.Tensor) -> None:
        """Accumulate the gradient of `loss`, the mean over (a portion of) this part.

        Where a part is worked on in k portions, divide each portion's loss by k, as without offcut.
        """
        self._work.backward(loss)

    def step(self, loss: torch.Tensor | None = None) -> bool:
        """Backward, reduce, clip, update. True when a step counts.

        False where more parts of the same step follow, and where it failed: then its batch will come again. What a
        script does after a step that did not count (advancing a scheduler, say) is undone for registered objects and
        for the settings of the optimizers' groups; for anything else, look at what step() returns.
        """
        if loss is not None:
            self.backward(loss)
        work = self._work
        if not work.end_part() or work.failed:
            return False
        seat, group = self._seat, self._group()
        self._script_runs(False)
        try:
            save = self._checkpoints is not None and group.rank == 0 and self._checkpoints.due
            with self._pace:
                tally = work.reduce(group, work.rest, switch=seat.newer, save=save, leaving=seat.leaving)
        except Abandoned as reason:
            seat.abandon(str(reason))
            return False
        finally:
            self._script_runs(True)
        # Every member has applied the step before this one, or it could not have taken part in this reduce.
        self._note_stable()
        self._apply(group, tally)
        return True

    def update(self, loss: torch.Tensor, optimizer: torch.optim.Optimizer, *, retain_graph: bool = False) -> bool:
        """One of several updates within a step, as GANs need them: backward, reduce, clip, update for `optimizer` only.

        `step(loss)` ends the step as always; it updates the optimizers that had no `update`. If a later part of the
        step fails, this update is undone, for which the session copies the state once per step. False when the step has
        failed already: go on to `step()`, the batch will come again.
        """
        work = self._work
        work.check_update(optimizer)
        work.backward(loss, optimizer, retain_graph=retain_graph)
        if work.failed:
            return False
        group = self._group()
        if self._link is not None:
            self._state.keep_whole()
        self._script_runs(False)
        try:
            with self._pace:
                # All switch after whole steps only.
                work.reduce(group, [optimizer], switch=False, save=False, leaving=False)
        except Abandoned as reason:
            self._seat.abandon(str(reason))
            return False
        finally:
            self._script_runs(True)
        with self._changing:
            work.update(group, [optimizer])
        return True

    def once(self) -> bool:
        """True on one member: for what must happen once, such as evaluating, logging or saving the model."""
        return self.rank == 0

    # -- a step ---------------------------------------------------------------------------------------------------

    def _at(self, point: str) -> bool:
        """A point at which tests let something go wrong."""
        group = self._seat.group
        epoch = group.membership.epoch if group is not None else 0
        return self._faults.at(point, step=self._state.step, rank=self.rank, epoch=epoch)

    def _script_runs(self, runs: bool) -> None:
        """Whether the script has the word, or this session: the agent ends a script that keeps it for too long."""
        if self._link is not None:
            self._link.script_since_s = time.monotonic() if runs else None

    def _group(self) -> Group:
        assert self._seat.group is not None
        return self._seat.group

    def _batches(self, epoch: int) -> Iterator[Batch]:
        state, work = self._state, self._work
        while True:
            self._script_runs(False)
            if not work.more_parts:
                self._boundary()
                if state.cursor.epoch != epoch or self._sampler.done(state.cursor):
                    return
                if self._goal_samples is not None and state.samples >= self._goal_samples:
                    self._goal_reached = True
                    return
                self._begin_step(self._group())
            part = work.next_part(self._group())
            self._data = part.data
            self._script_runs(True)
            yield part

    def _begin_step(self, group: Group) -> None:
        state = self._state
        mine = self._work.begin(group)
        if self._records is not None:
            self._records.contribute(
                step=state.step + 1,
                epoch=group.membership.epoch,
                data_epoch=state.cursor.epoch,
                samples=mine.tolist(),
            )

    def _apply(self, group: Group, tally: Tally) -> None:
        """Update: from here on the step is part of this member's state."""
        state = self._state
        self._changing.acquire()
        self._work.apply(group, tally)
        self._tally, self._applied = tally, True
        if group.world == 1:
            self._note_stable()
        if self._records is not None:
            self._records.applied(step=state.step, epoch=group.membership.epoch, loss=tally.loss)
        self._report(group)
        self._at("after-update")

    def _note_stable(self) -> None:
        self._stable_step, self._stable_samples = self._state.step, self._state.samples
        self._stable_clock_s = time.monotonic()

    def _report(self, group: Group) -> None:
        link, epoch = self._link, group.membership.epoch
        if link is None:
            return
        link.progress(
            epoch=epoch,
            step=self._stable_step,
            samples=self._stable_samples,
            clock_s=self._stable_clock_s,
            own_s=self._pace.own_s,
            loss=self.loss,
            first=group.rank == 0,
        )
        if self._announced != epoch:
            self._announced = epoch
            if group.rank == 0:
                self._fingerprint = self._fingerprint or fingerprint(self.model, self._policy, self._data)
                link.send("formed", epoch=epoch, step=self._state.step, fingerprint=self._fingerprint)

    # -- boundaries -----------------------------------------------------------------------------------------------

    def _boundary(self) -> None:
        """The state is whole here: switch epochs, leave, or begin a checkpoint as needed."""
        self._at("boundary")
        try:
            self._work.settle(applied=self._applied)
            self._move_on()
        finally:
            if self._changing.locked():
                self._changing.release()

    def _move_on(self) -> None:
        seat, tally, applied = self._seat, self._tally, self._applied
        self._applied = False
        if applied and tally is not None and seat.group is not None and tally.save and not tally.leaving:
            self._begin_checkpoint(seat.group)
        if seat.group is None:
            self._pace.interrupt()
            seat.enter_next()
        elif applied and tally is not None and (tally.switch or tally.leaving):
            if isinstance(seat, Seat) and seat.group.rank in tally.leaving:
                seat.leave(save=len(tally.leaving) == seat.group.world and seat.group.rank == 0)
            self._pace.interrupt()
            seat.enter_next(tally.leaving)
        if self._checkpoints is not None:
            self._checkpoints.publish(self._stable_step)

    def _begin_checkpoint(self, group: Group) -> None:
        if self._checkpoints is not None:
            membership = group.membership
            self._checkpoints.begin(
                self._state.step, membership.epoch, membership.workers, group.rank, self._state.tree
            )

    def _finish(self) -> None:
        """The final barrier: every member has applied the last step, and the state is kept for the script's end."""
        if not self._seat.taken:
            self._seat.enter_next()
        seat, link = self._seat, self._link
        while True:
            self._boundary()
            assert seat.group is not None
            try:
                if self._at("finishing"):
                    raise Abandoned("injected at the end")
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
