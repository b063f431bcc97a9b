"""A training state that is spread over the members by layers: each has only those that its stages compute."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from offcut.errors import InputError
from offcut.torch.pipeline.layer_chain import layer_chain
from offcut.torch.state.trained_parameters import freeze, frozen_in
from offcut.torch.state.training_state import ScriptState, TrainingState


class LayerState(TrainingState):
    """A member's part of the state. `held` layers are here, as of `layer_step`; other layers have no parameters here.

    What belongs to no layer (the optimizers' settings, registered objects, progress) is the *common* part, the same on
    every member, as of `step`. A layer's part is its parameters, its buffers and what the optimizers keep of its
    parameters. The two steps differ only while members are brought to the most advanced one's step.
    """

    def __init__(self, model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
        super().__init__(model, optimizers)
        self.chain = layer_chain(model)
        count = len(self.chain)
        self._parameters = [self.chain.parameters_of(i, i + 1) for i in range(count)]
        self._buffers_of = [self.chain.buffers_of(i, i + 1) for i in range(count)]
        #: Bytes of each layer's parameters: what is moved is proportional to that.
        self.layer_bytes = [sum(p.numel() * p.element_size() for p in named.values()) for named in self._parameters]
        self._layer_shapes = {
            name: tuple(tensor.shape)
            for tensors in (*self._parameters, *self._buffers_of)
            for name, tensor in tensors.items()
        }
        self.held = set(range(count))
        self.layer_step = 0
        #: Square of the last applied step's gradient norm, over all stages.
        self.norm_squared = 0.0
        optimized = {id(p) for item in optimizers for group in item.param_groups for p in group["params"]}
        inside = {id(p) for named in self._parameters for p in named.values()}
        if optimized - inside:
            raise InputError(
                "PipelineSession: an optimizer has parameters that belong to no layer of the model.",
                next_step="Give it model.parameters(), and use every parameter in the model's forward.",
            )

    def parameters(self, layers: Iterable[int]) -> list[nn.Parameter]:
        """Return the trained parameters of those layers."""
        return [p for i in layers for p in self._parameters[i].values() if p.requires_grad]

    def buffers_in(self, layers: Iterable[int]) -> list[torch.Tensor]:
        """Return the real-valued buffers of those layers."""
        return [b for i in layers for b in self._buffers_of[i].values() if b.is_floating_point()]

    # -- a layer ------------------------------------------------------------------------------------------------------

    def layer(self, i: int) -> dict[str, Any]:
        """Return layer i as of the last boundary, as a tree; its tensors are the living ones, not copies."""
        named, kept = self._parameters[i], self.buffers.kept
        return {
            "model": {
                **{name: p.data for name, p in named.items()},
                **{name: kept[name] for name in self._buffers_of[i]},
            },
            "optimizers": [
                {name: dict(item.state[p]) for name, p in named.items() if p in item.state} for item in self.optimizers
            ],
        }

    def load_layer(self, i: int, tree: dict[str, Any]) -> None:
        """Hold layer i, with the values in `tree`."""
        named = self._parameters[i]
        self.check_layer(i, tree)
        for name, p in named.items():
            p.data = tree["model"][name].to(p.device)
        with torch.no_grad():
            for name, buffer in self._buffers_of[i].items():
                buffer.copy_(tree["model"][name])
        for item, states in zip(self.optimizers, tree["optimizers"], strict=True):
            for name, p in named.items():
                item.state.pop(p, None)
                if name in states:
                    item.state[p] = {key: _beside(p, key, value) for key, value in states[name].items()}
        self.held.add(i)
        self.buffers.copy_boundary()

    def check_layer(self, i: int, tree: dict[str, Any]) -> None:
        """Raise InputError if `tree` is not of this model's layer i."""
        # Layers that are not held have parameters without elements.
        shapes = {name: self._layer_shapes[name] for name in (*self._parameters[i], *self._buffers_of[i])}
        found = {name: tuple(tensor.shape) for name, tensor in tree["model"].items()}
        if found != shapes or len(tree["optimizers"]) != len(self.optimizers):
            raise InputError(
                f"PipelineSession: layer {i} ({self.chain.names[i]}) has other parameters than the saved one.",
                next_step="A job's model stays the same in all its runs.",
            )

    def drop_layers(self, layers: Iterable[int]) -> None:
        """Free those layers and the memory that they take."""
        for i in list(layers):
            for p in self._parameters[i].values():
                for item in self.optimizers:
                    item.state.pop(p, None)
                p.grad = None
                p.data = torch.empty(0, dtype=p.dtype, device=p.device)
            self.held.discard(i)

    # -- what is common -----------------------------------------------------------------------------------------------

    def common_for(self, position: int) -> dict[str, Any]:
        """Return the common part from which a member whose script is at `position` (-1: it begins) goes on."""
        common = self.common()
        return self._as_left(common) if self._behind(position) else common

    def boundary_common(self) -> dict[str, Any]:
        """Return the common part as of the last boundary, in the middle of a step, or after a loop over batches."""
        common = self.common()
        if self._after_loop or self._behind(-1):
            return self._as_left(common)
        if self._script_state is not None:
            self._put(self._script_state, common)
        return common

    def _put(self, outside: ScriptState, tree: dict[str, Any]) -> None:
        """Replace what is in the common part `tree` by `outside`."""
        tree["registered"], tree["settings"] = outside.registered, outside.groups
        tree["frozen"] = outside.kept.frozen_names(self.model, tree["frozen"])

    def common(self) -> dict[str, Any]:
        """Return what every member has, as a tree."""
        return {
            "settings": [
                [{key: value for key, value in group.items() if key != "params"} for group in item.param_groups]
                for item in self.optimizers
            ],
            "frozen": frozen_in(self.model),
            "registered": self._registered_states(),
            "progress": {
                "step": self.step,
                "samples": self.samples,
                "epoch": self.cursor.epoch,
                "offset": self.cursor.offset,
                "loss": self.loss,
                "norm_squared": self.norm_squared,
            },
        }

    def check_common(self, tree: dict[str, Any]) -> None:
        """Raise InputError if the common part `tree` is not of this training."""
        self._check_registered(tree["registered"])

    def load_common(self, tree: dict[str, Any]) -> None:
        """Replace the common part by that in `tree`; layers stay as they are."""
        self._check_registered(tree["registered"])
        freeze(self.model, tree["frozen"])
        self.load_settings(tree["settings"])
        self.load_registered(tree["registered"])
        self.load_progress(tree["progress"])
        self.norm_squared = tree["progress"]["norm_squared"]

    def tree(self) -> dict[str, Any]:
        """Return everything that this member holds, as a tree."""
        return {"common": self.common(), "layers": {str(i): self.layer(i) for i in sorted(self.held)}}

    # -- a step -------------------------------------------------------------------------------------------------------

    def update(self, clip_norm: float | None, norm_squared: float) -> None:
        """Clip by the norm over all stages, and let the optimizers change what is held."""
        if clip_norm is not None:
            factor = min(1.0, clip_norm / (math.sqrt(norm_squared) + 1e-6))
            for p in self.parameters(self.held):
                if p.grad is not None:
                    p.grad.mul_(factor)
        with self.updating():
            for item in self.optimizers:
                item.step()
        self.norm_squared = norm_squared


def _beside(p: nn.Parameter, key: str, value: Any) -> Any:
    """Return an optimizer's value on the parameter's device, except the count of steps, which stays where it is."""
    return value.to(p.device) if isinstance(value, torch.Tensor) and key != "step" else value


def layer_flags(held: Iterable[int], layers: int) -> list[int]:
    """Return a flag (0 or 1) for each of `layers` layers: whether it is in `held`."""
    mine = set(held)
    return [int(i in mine) for i in range(layers)]


def flagged_layers(row: Sequence[int]) -> frozenset[int]:
    """Return the layers whose flags in `row` are not 0."""
    return frozenset(i for i, there in enumerate(row) if there)
