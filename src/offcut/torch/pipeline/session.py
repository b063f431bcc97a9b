"""The one object between a training script and offcut, for a model that is cut into stages."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from offcut.errors import InputError
from offcut.pipeline.plan_set import PlanSet, read_plans
from offcut.torch.fingerprint import fingerprint
from offcut.torch.membership.agent_link import AgentLink
from offcut.torch.membership.process_group import Abandoned, Group
from offcut.torch.pipeline.layer_checkpoints import LayerCheckpoints
from offcut.torch.pipeline.layer_state import LayerState
from offcut.torch.pipeline.layer_sync import PipelineMember
from offcut.torch.pipeline.pipeline_step import PipelineStep
from offcut.torch.pipeline.runtime.engine import LossFn
from offcut.torch.step.batch import Fetcher
from offcut.torch.step.sampler import Sampler
from offcut.torch.training_loop import TrainingLoop
from offcut.wire.worker_env import ENV_CHECKPOINT_AGE, ENV_JOB_DIR, ENV_PLANS


class PipelineSession(TrainingLoop):
    """Trains `model` on `dataset` as a pipeline, alone or as one of a job's members.

    At every size the job runs the plan for that many devices of `plans`: a file written by `offcut plan --save`, or a
    PlanSet; without it, the file that the job was submitted with. A member holds only the layers and optimizer state of
    its stages; at a resize each fetches what it lacks from a member that has it.

    `loss_fn(output, target)` is the mean over the samples of a micro-batch; `dataset` gives (input, target) pairs, and
    `collate` joins them as in a DataLoader. `optimizer` has `model.parameters()` and keeps its state per parameter, as
    all of torch.optim but LBFGS do. `clip_norm` limits the norm of the gradient over all stages. The batch of every
    update is the plans'; the last one of a data epoch may be smaller.
    """

    _seat: PipelineMember

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        dataset: Any,
        *,
        loss_fn: LossFn,
        plans: PlanSet | Path | str | None = None,
        seed: int = 0,
        collate: Callable[[list[Any]], Any] | None = None,
        clip_norm: float | None = None,
    ) -> None:
        if len(dataset) == 0:
            raise InputError("PipelineSession: the dataset is empty.", next_step="Give at least one sample.")
        optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
        self._placed = LayerState(model, optimizers)
        self._plans = _plans(plans)
        if self._plans.layers != len(self._placed.chain):
            raise InputError(
                f"PipelineSession: the plans cover {self._plans.layers} layers, the model has "
                f"{len(self._placed.chain)}.",
                next_step="Plan again from a profile of this model.",
            )
        self._placed.settings = {
            "samples in the dataset": str(len(dataset)),
            "seed": str(seed),
            "plans": repr(self._plans),
            "clip_norm": str(clip_norm),
        }
        # While all layers are here.
        whole = fingerprint(model, self._plans, None)
        sampler = Sampler(len(dataset), seed)
        self._stages = PipelineStep(
            self._placed,
            sampler=sampler,
            fetcher=Fetcher(dataset, collate, seed),
            loss_fn=loss_fn,
            seed=seed,
            clip_norm=clip_norm,
            device=next((p.device for p in model.parameters()), torch.device("cpu")),
            visit=self._at,
        )
        self._work = self._stages
        self._parts: LayerCheckpoints | None = None
        #: A batch has been given to the loop and had no step() yet.
        self._open = False
        super().__init__(self._placed, sampler)
        self._fingerprint = whole
        if self._link is None:
            self._stages.place(self._group(), self._plans.one_device_plan())

    def _take_seat(self, link: AgentLink) -> PipelineMember:
        self._parts = LayerCheckpoints(
            Path(os.environ[ENV_JOB_DIR]) / "checkpoints",
            self._plans.layers,
            float(os.environ.get(ENV_CHECKPOINT_AGE, "30")),
            lambda text: link.send("note", text=text),
            self._faults,
        )
        return PipelineMember(
            link, self._placed, self._stages, self._plans, self._parts, self._changing, self._faults, self._pace
        )

    # -- what a script uses -------------------------------------------------------------------------------------------

    @property
    def model(self) -> nn.Module:
        """The model; on this member only the layers of its stages have parameters. See `whole_model`."""
        return self._placed.model

    def step(self) -> bool:
        """One update on the global batch: forward and backward over all stages, clip, update. True when it counts.

        False where the membership broke: the batch will come again. What a script does after a step that did not count
        is undone for registered objects and for the settings of the optimizers' groups.
        """
        if not self._open:
            raise InputError(
                "PipelineSession: step() without a batch.", next_step="Call it once for each turn of the inner loop."
            )
        self._open = False
        seat, work, group = self._seat, self._stages, self._group()
        self._script_runs(False)
        try:
            work.compute(group)
            self._begin_change()
            with self._pace:
                tally = work.vote(
                    group,
                    switch=seat.newer,
                    leaving=seat.leaving,
                    save=group.rank == 0 and self._parts is not None and self._parts.due,
                )
        except Abandoned as reason:
            self._pace.interrupt()
            work.fail()
            self._end_change()
            seat.abandon(str(reason))
            return False
        finally:
            self._script_runs(True)
        # Every member has applied the step before this one, or it could not have taken part in this vote.
        self._note_stable()
        work.apply(tally)
        self._tally, self._applied = tally, True
        if group.world == 1:
            self._note_stable()
        if self._records is not None:
            self._records.applied(step=self._placed.step, generation=group.membership.generation, loss=tally.loss)
        self._report(group)
        self._at("after-update")
        return True

    def whole_model(self) -> nn.Module:
        """After the `with` block: the model with all its layers, read from the last checkpoint where they are not here.

        For saving or evaluating it, on the member for which `once()` is true.
        """
        state = self._placed
        for i in sorted(set(range(self._plans.layers)) - state.held):
            assert self._parts is not None
            state.take(i, self._parts.layer(state.step, i))
        return state.model

    # -- what the loop asks for ---------------------------------------------------------------------------------------

    def _begin_step(self, group: Group) -> None:
        state = self._placed
        mine = self._stages.begin()
        self._open = True
        if self._records is not None:
            self._records.contribute(
                step=state.step + 1,
                generation=group.membership.generation,
                epoch=state.cursor.epoch,
                samples=mine.tolist(),
            )

    def _look_at(self) -> str:
        return self._fingerprint

    def _begin_checkpoint(self, group: Group) -> None:
        if self._parts is not None:
            self._parts.begin(self._placed.step, self._mine)

    def _keep(self) -> None:
        parts, state = self._parts, self._placed
        assert parts is not None
        if state.step < self._stable_step:
            self._note_stable()  # all members have gone back to a checkpoint
        if self._seat.rank == 0:
            parts.publish(self._stable_step)

    def _mine(self) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
        return self._placed.common_for(-1), {i: self._placed.layer(i) for i in self._stages.owned}

    def _keep_last(self, group: Group) -> None:
        assert self._parts is not None
        self._parts.save_now(self._placed.step, *self._mine())
        group.gather([0])
        self._parts.publish(self._placed.step)


def _plans(given: PlanSet | Path | str | None) -> PlanSet:
    if isinstance(given, PlanSet):
        return given
    path = given if given is not None else os.environ.get(ENV_PLANS)
    if not path:
        raise InputError(
            "PipelineSession: no plans.", next_step="Write them with `offcut plan --save FILE`, and give plans=FILE."
        )
    return read_plans(Path(path))
