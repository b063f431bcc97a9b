"""The one object between a training script and offcut; `loop` says what a boundary is."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from offcut.errors import InputError
from offcut.torch.fingerprint import fingerprint
from offcut.torch.membership.agent_link import AgentLink
from offcut.torch.membership.member import Left, Member
from offcut.torch.membership.process_group import Abandoned, Group
from offcut.torch.membership.state_checksum import Checksum
from offcut.torch.state.checkpoints import Checkpoints
from offcut.torch.state.lr_scaling import LrScaling
from offcut.torch.state.trained_parameters import parameters_of
from offcut.torch.state.training_state import TrainingState
from offcut.torch.step.batch import Fetcher
from offcut.torch.step.batch_policy import BatchPolicy
from offcut.torch.step.data_parallel import DataParallelStep
from offcut.torch.step.gradient_reduce import StepOutcome
from offcut.torch.step.loader import AheadLoader, Loader
from offcut.torch.step.sampler import Sampler
from offcut.torch.training_loop import TrainingLoop
from offcut.wire.worker_env import ENV_CHECKPOINT_AGE, ENV_JOB_DIR

__all__ = ["Left", "Session"]


class Session(TrainingLoop):
    """Trains `model` on `dataset`, alone or as one of a job's members.

    Every update uses the gradient of the mean loss over `global_batch` samples, whatever the number of members, so the
    loss curve does not depend on who came and went. `dataset` is map-style (`len` and indexing); `collate` joins
    samples as in a DataLoader, `loader_workers` processes fetch them ahead of time. `clip_norm` limits the norm of the
    reduced gradient. `scaler` is a `torch.amp.GradScaler`; the session scales, unscales and updates with it. Random
    numbers (torch, numpy, random) are seeded anew for every part of every step from `seed`, the step and the stream.

    A member's share of a global batch may come in several *parts*, each one turn of the loop over batches: where it is
    larger than `max_local_batch`, and with `virtual_shards`, which make dropout and BatchNorm independent of the size.
    With `drop_last` the last batch of a data epoch is left out where it is smaller. No member works on fewer samples
    than `min_local_batch`, but has none at all then; by default that is 2 where the model has BatchNorm layers, which
    refuse a single sample, and 1 elsewhere. Instead of `global_batch`, `batch_per_rank` lets the global batch grow with
    the size; `lr_rule` ("none", "linear", "sqrt") then sets the learning rate, with `warmup_steps` after a resize. See
    `policy` and `rate`.

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
        min_local_batch: int | None = None,
        drop_last: bool = False,
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
            min_local_batch=_smallest_share(model) if min_local_batch is None else min_local_batch,
        )
        if drop_last and policy.size(1) > len(dataset):
            raise InputError(
                f"Session: with drop_last nothing is left of {len(dataset)} samples in batches of {policy.size(1)}.",
                next_step="Choose smaller batches, or leave drop_last out.",
            )
        if len(dataset) == 0:
            raise InputError("Session: the dataset is empty.", next_step="Give at least one sample.")
        optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
        self._state = TrainingState(model, optimizers, LrScaling(lr_rule, warmup_steps))
        if scaler is not None:
            self._state.registered.append(scaler)
        self._sampler = Sampler(len(dataset), seed, drop_last=drop_last)
        fetcher = Fetcher(dataset, collate, seed)
        device = next((p.device for item in optimizers for p in parameters_of(item)), torch.device("cpu"))
        # Before the line to the agent is opened: processes that fetch must not inherit it.
        self._loader = AheadLoader(fetcher, device, loader_workers) if loader_workers else Loader(fetcher, device)
        self._work = DataParallelStep(
            self._state,
            policy=policy,
            sampler=self._sampler,
            loader=self._loader,
            seed=seed,
            clip_norm=clip_norm,
            scaler=scaler,
            device=device,
            visit=self._at,
        )
        self._checkpoints: Checkpoints | None = None
        self._policy = policy
        self._state.settings = {
            "samples in the dataset": str(len(dataset)),
            "seed": str(seed),
            "batches": f"{policy}, drop_last={drop_last}",
            "clip_norm": str(clip_norm),
            "lr_rule": f"{lr_rule}, warm-up {warmup_steps}",
        }
        super().__init__(self._state, self._sampler)

    def _take_seat(self, link: AgentLink) -> Member:
        self._checkpoints = Checkpoints(
            Path(os.environ[ENV_JOB_DIR]) / "checkpoints",
            float(os.environ.get(ENV_CHECKPOINT_AGE, "30")),
            lambda text: link.send("note", text=text),
            self._faults,
        )
        return Member(link, self._state, self._checkpoints, self._changing, self._faults, self._pace)

    # -- what a script uses ---------------------------------------------------------------------------------------

    @property
    def model(self) -> torch.nn.Module:
        return self._state.model

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._loader.close()

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
        work, seat = self._work, self._seat
        # Where a member has died meanwhile the step cannot count: no need to work on it any longer.
        if loss is None:
            work.check_gradient()
        elif seat.group is not None and not seat.group.stale():
            self.backward(loss)
        if not work.end_part() or work.failed:
            return False
        group = self._group()
        self._script_runs(False)
        try:
            save = self._checkpoints is not None and group.rank == 0 and self._checkpoints.due
            with self._pace:
                tally = work.reduce(
                    group, work.rest, switch=seat.newer, save=save, check=group.rank == 0, leaving=seat.leaving
                )
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
                work.reduce(group, [optimizer])
        except Abandoned as reason:
            self._seat.abandon(str(reason))
            return False
        finally:
            self._script_runs(True)
        with self._changing:
            work.update(group, [optimizer])
        return True

    def _begin_step(self, group: Group) -> None:
        state = self._state
        mine = self._work.begin(group)
        if self._records is not None:
            self._records.contribute(
                step=state.step + 1,
                generation=group.membership.generation,
                epoch=state.cursor.epoch,
                samples=mine.tolist(),
            )

    def _apply(self, group: Group, tally: StepOutcome) -> None:
        """Update: from here on the step is part of this member's state."""
        state = self._state
        self._begin_change()
        self._work.apply(group, tally)
        self._tally, self._applied = tally, True
        if group.world == 1:
            self._note_stable()
        if self._records is not None:
            self._records.applied(step=state.step, generation=group.membership.generation, loss=tally.loss)
        self._report(group)
        self._at("after-update")

    def _checksum(self, group: Group) -> Checksum:
        return Checksum(self._state, exact=group.exact)

    def _look_at(self) -> str:
        return fingerprint(self.model, self._policy, self._data)

    def _begin_checkpoint(self, group: Group) -> None:
        if self._checkpoints is not None:
            membership = group.membership
            self._checkpoints.begin(
                self._state.step,
                membership.generation,
                membership.workers,
                group.rank,
                lambda: self._state.tree_for(-1),
            )

    def _keep(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.publish(self._stable_step)

    def _keep_last(self, group: Group) -> None:
        assert self._checkpoints is not None
        if group.rank == 0:
            self._checkpoints.save_now(self._state.step, self._state.tree_for(-1))


def _smallest_share(model: torch.nn.Module) -> int:
    """BatchNorm in training refuses a single value per channel, which only some members might have."""
    return 2 if any(isinstance(module, torch.nn.modules.batchnorm._BatchNorm) for module in model.modules()) else 1
