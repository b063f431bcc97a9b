"""`PipelineSession`: the one object between a training script and offcut, for a model that is cut into stages."""

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
from offcut.torch.membership.job_context import JobContext
from offcut.torch.pipeline.layer_state import LayerState
from offcut.torch.pipeline.layer_sync import LayeredSync
from offcut.torch.pipeline.member_stages import MemberStages
from offcut.torch.pipeline.pipeline_step import PipelineStep
from offcut.torch.pipeline.runtime.engine import LossFn
from offcut.torch.state.checkpoint_layout import ByLayer, SavedLayers
from offcut.torch.state.checkpoints import Checkpoints
from offcut.torch.step.batch import Fetcher
from offcut.torch.step.sampler import Sampler
from offcut.torch.step.usage_checks import check_dataset, check_only_session, check_optimizers, warn_of_launcher
from offcut.torch.training_loop import TrainingLoop
from offcut.torch.training_member import TrainingMember
from offcut.wire.worker_env import ENV_PLANS


class PipelineSession(TrainingLoop):
    """Trains a model on a dataset as a pipeline, alone or as one of a job's members.

    At every size the job runs the plan for that many devices. A member holds only the layers and optimizer state of its
    stages; at a resize each fetches what it lacks from a member that has it. The plans set the batch of every update;
    the last one of a data epoch may be smaller.

    Args:
        model: what is trained: an `nn.Sequential`, or a module that torch.fx can trace.
        optimizer: one optimizer of `model.parameters()`, or several. They keep their state per parameter, as all of
            torch.optim but LBFGS do.
        dataset: map-style: `len` and indexing; gives (input, target) pairs.
        loss_fn: returns the mean loss over the samples of a micro-batch, from output and target.
        plans: a file written by `offcut plan --save`, or a PlanSet; None: the file that the job was submitted with.
        seed: random numbers are seeded from this, the step, the stage and the micro-batch.
        collate: joins a list of samples, as in a DataLoader.
        clip_norm: the largest norm of the gradient over all stages; None: no limit.

    Raises:
        InputError: there are no plans, or they are not for this model, or the dataset is empty.
    """

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
        check_only_session("PipelineSession")
        check_dataset("PipelineSession", dataset)
        optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
        check_optimizers("PipelineSession", optimizers)
        warn_of_launcher()
        self._layers = LayerState(model, optimizers)
        self._plans = _plans(plans)
        if self._plans.layers != len(self._layers.chain):
            raise InputError(
                f"PipelineSession: the plans cover {self._plans.layers} layers, the model has "
                f"{len(self._layers.chain)}.",
                next_step="Plan again from a profile of this model.",
            )
        self._layers.settings = {
            "samples in the dataset": str(len(dataset)),
            "seed": str(seed),
            "plans": repr(self._plans),
            "clip_norm": str(clip_norm),
        }
        # Now, while this member has all layers.
        whole = fingerprint(model, self._plans, None)
        sampler = Sampler(len(dataset), seed)
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self._stages = MemberStages(self._layers, loss_fn, seed, device)
        self._pipeline_step = PipelineStep(
            self._layers,
            self._stages,
            sampler=sampler,
            fetcher=Fetcher(dataset, collate, seed),
            clip_norm=clip_norm,
            visit=self._visit,
        )
        self._checkpoints: Checkpoints[SavedLayers] | None = None
        super().__init__(
            TrainingMember(self._layers, sampler, self._pipeline_step, join=self._join, fingerprint=lambda data: whole)
        )
        if self._training.link is None:
            self._stages.place(self._training.group, self._plans.one_device_plan())

    def _join(self, context: JobContext) -> tuple[LayeredSync, Checkpoints[SavedLayers]]:
        self._checkpoints = Checkpoints(
            context.checkpoints,
            context.checkpoint_age_s,
            context.note,
            ByLayer(self._plans.layers),
            context.faults,
            context.mark.overtaken_by,
        )
        sync = LayeredSync(context, self._layers, self._stages, self._pipeline_step, self._plans, self._checkpoints)
        return sync, self._checkpoints

    @property
    def model(self) -> nn.Module:
        """The model; on this member only the layers of its stages have parameters. See `whole_model`."""
        return self._layers.model

    def step(self) -> bool:
        """Do one update on the global batch: forward and backward over all stages, clip, update.

        What a script does after a step that did not count is undone for registered objects and for the settings of the
        optimizers' groups.

        Returns:
            True when the step counts. False where the membership broke: the batch will come again.

        Raises:
            InputError: it was called without a batch, or twice for one.
        """
        self._pipeline_step.check_batch()
        return self._training.run_step()

    def whole_model(self) -> nn.Module:
        """Return the model with all its layers, for saving or evaluating it.

        Call it after the `with` block, on the member for which `once()` is true. Layers that are not on this member are
        read from the last checkpoint.
        """
        state = self._layers
        for i in sorted(set(range(self._plans.layers)) - state.held):
            assert self._checkpoints is not None
            state.load_layer(i, self._checkpoints.piece(state.step, ByLayer.name(i)))
        return state.model


def _plans(given: PlanSet | Path | str | None) -> PlanSet:
    if isinstance(given, PlanSet):
        return given
    path = given if given is not None else os.environ.get(ENV_PLANS)
    if not path:
        raise InputError(
            "PipelineSession: no plans.", next_step="Write them with `offcut plan --save FILE`, and give plans=FILE."
        )
    return read_plans(Path(path))
