"""The state of a training: model with buffers, optimizers, registered objects, and its progress."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils.hooks import RemovableHandle

from offcut.errors import InputError
from offcut.torch.state.buffers import Buffers
from offcut.torch.state.cursor import Cursor
from offcut.torch.state.lr_scaling import LrScaling
from offcut.torch.state.model_state import ModelState
from offcut.torch.state.plain_values import plain
from offcut.torch.state.trained_parameters import (
    GroupsCopy,
    Trained,
    freeze,
    frozen_in,
    groups_in,
    names_in,
    parameters_of,
    regroup,
    trained_now,
)


class Stateful(Protocol):
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class ScriptState:
    """Copies of what a script changes besides the training.

    That is registered objects' states, the settings of the optimizers' groups, and what is trained at all.
    """

    registered: list[dict[str, Any]]
    groups: list[list[dict[str, Any]]]
    kept: GroupsCopy


@dataclass(frozen=True, slots=True)
class _LoopExit:
    """What a script had when it left the loop over a data epoch's batches; `cursor` is the end of that epoch."""

    cursor: Cursor
    outside: ScriptState


class TrainingState:
    """`step` counts applied steps, `samples` the samples in them; `cursor` is the next sample.

    A *tree* is the whole state as nested dicts, lists and tuples of tensors and plain values.
    """

    def __init__(
        self, model: torch.nn.Module, optimizers: list[torch.optim.Optimizer], rate: LrScaling | None = None
    ) -> None:
        self.model = model
        self.optimizers = optimizers
        self.rate = rate or LrScaling("none", 0)
        self.registered: list[Stateful] = []
        #: Whether members have shards of the optimizers' state (`OptimizerShards`), which no tree contains.
        self.sharded = False
        self.cursor = Cursor()
        #: What must be the same on all members besides the model, as text.
        self.settings: dict[str, str] = {}
        self._shapes = {f"the model's {name}": f"{tuple(t.shape)} {t.dtype}" for name, t in _named_tensors(model)}
        self._kinds = {name: f"{t.dtype} on {t.device}" for name, t in _named_tensors(model)}
        self.step = 0
        self.samples = 0
        #: Mean loss over the last applied step's global batch. Scripts decide by it, so joiners get it too.
        self.loss = math.nan
        self.buffers = Buffers(model)
        self.model_state = ModelState(model)
        self._guards: list[RemovableHandle] = []
        self._updating = False
        #: The state at the last boundary, where parts of a step have been applied since.
        self._undo: dict[str, Any] | None = None
        #: What all members train, by optimizer, as of the last applied step; None before it is first looked at.
        self.trained: Trained | None = None
        #: Whether the script has come to its first batch.
        self.begun = False
        #: The script's state after a part or step that does not count.
        self._script_state: ScriptState | None = None
        #: The script's state after the last loop over batches that it has left, if no step was applied since.
        self._loop_exit: _LoopExit | None = None
        #: Whether the script has left that loop and not returned to its session: a member that begins with `_loop_exit`
        #: will run what it runs now.
        self._after_loop = False

    def check_model(self) -> None:
        """Raise InputError if the model was moved, or lost or got parameters, since it was given to offcut."""
        now = {name: f"{t.dtype} on {t.device}" for name, t in _named_tensors(self.model)}
        # A module may make buffers in its first forward pass.
        names = [*self._kinds, *(name for name, _ in self.model.named_parameters())]
        name = next((name for name in names if now.get(name) != self._kinds.get(name)), None)
        if name is None:
            return
        raise InputError(
            f"The model was changed after it was given to offcut: its {name} is {now.get(name, 'gone')}, and was "
            f"{self._kinds.get(name, 'not there')}.",
            next_step="Move the model, change its type, and add to it before Session(), PipelineSession() or elastic() "
            "gets it. docs/pitfalls.md says more.",
        )

    def description(self) -> dict[str, str]:
        """Return what all members' scripts must have made alike before their states can be compared or moved."""
        optimizers = {f"optimizer {i}": type(item).__name__ for i, item in enumerate(self.optimizers)}
        registered = {f"registered object {i}": type(item).__name__ for i, item in enumerate(self.registered)}
        return {**self.settings, **self._shapes, **optimizers, **registered}

    def tree(self) -> dict[str, Any]:
        """Return the state as a tree; its tensors are the living ones, not copies.

        Raises:
            InputError: it contains something that can go neither to other members nor into a checkpoint.
        """
        if self.trained is None:
            self.trained = names_in(self.model, trained_now(self.optimizers))
        return {
            **self.model_state.tree(),
            "trained": self.trained,
            "frozen": frozen_in(self.model),
            "groups": groups_in(self.model, self.optimizers),
            "optimizers": plain([self._state_of(item) for item in self.optimizers], "the optimizers' state"),
            "registered": self._registered_states(),
            "rate": self.rate.state_dict(),
            "progress": {
                "step": self.step,
                "samples": self.samples,
                "epoch": self.cursor.epoch,
                "offset": self.cursor.offset,
                "loss": self.loss,
            },
        }

    def _state_of(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {**optimizer.state_dict(), **({"state": {}} if self.sharded else {})}

    def _registered_states(self) -> list[dict[str, Any]]:
        return [
            plain(item.state_dict(), f"registered object {i} ({type(item).__name__}): state")
            for i, item in enumerate(self.registered)
        ]

    def room(self) -> dict[str, torch.Tensor]:
        """Return the model's living tensors by their names in the tree, for a state to be received into."""
        return self.model_state.room()

    def boundary_tree(self) -> dict[str, Any]:
        """Return the tree as of the last boundary, in the middle of a step that has not been applied."""
        if self._undo is not None:
            return self._undo
        tree = self.tree()
        if self._after_loop or self._behind(-1):
            return self._as_left(tree)
        for name, kept in self.buffers.kept.items():
            if name in tree["model"]:
                tree["model"][name] = kept
        if self._script_state is not None:
            self._put(self._script_state, tree)
        return tree

    def _put(self, outside: ScriptState, tree: dict[str, Any]) -> None:
        """Put `outside` into `tree` in place of what is there."""
        tree["registered"] = outside.registered
        tree["frozen"] = outside.kept.frozen_names(self.model, tree["frozen"])
        tree["groups"] = [there[: len(own)] for there, own in zip(tree["groups"], outside.groups, strict=True)]
        for optimizer, settings in zip(tree["optimizers"], outside.groups, strict=True):
            del optimizer["param_groups"][len(settings) :]
            for group, own in zip(optimizer["param_groups"], settings, strict=True):
                group.update(own)

    # -- between two loops over batches -------------------------------------------------------------------------------

    def leave_loop(self, end: Cursor) -> None:
        """Note that the script leaves the loop over the batches of a data epoch, which ends at `end`.

        What it does until it comes back changes registered objects and settings. So they are copied: a member
        that is still in the loop, or begins from a checkpoint, does that itself, once.
        """
        if self._loop_exit is None:
            self._loop_exit = _LoopExit(end, self._copy_of_script_state())
        self._after_loop = True

    def pass_boundary(self) -> None:
        """Note that the script asks for a batch: what it has done belongs to the state."""
        self.begun = True
        self._after_loop = False

    @property
    def position(self) -> int:
        """The data epoch in whose loop over batches the script is, or will be next."""
        return self._loop_exit.cursor.epoch + 1 if self._loop_exit is not None else self.cursor.epoch

    @property
    def next_sample(self) -> Cursor:
        """The next sample; the end of the data epoch if the script has left its loop."""
        return self._loop_exit.cursor if self._loop_exit is not None and self._behind(-1) else self.cursor

    def tree_for(self, position: int) -> dict[str, Any]:
        """Return the tree with which a member whose script is at `position` (-1: it begins) goes on."""
        tree = self.tree()
        return self._as_left(tree) if self._behind(position) else tree

    def _behind(self, position: int) -> bool:
        """Return whether a script at `position` has still to do what this one's has done since it left its loop."""
        left = self._loop_exit
        if left is None:
            return False
        return position <= left.cursor.epoch if position >= 0 else self.cursor.epoch == left.cursor.epoch

    def _as_left(self, tree: dict[str, Any]) -> dict[str, Any]:
        assert self._loop_exit is not None
        self._put(self._loop_exit.outside, tree)
        tree["progress"] |= {"epoch": self._loop_exit.cursor.epoch, "offset": self._loop_exit.cursor.offset}
        return tree

    # -- updates ------------------------------------------------------------------------------------------------------

    def guard(self) -> None:
        """Refuse a script's own `optimizer.step()` from now on: it would change one member, or all of them twice."""
        self._guards = [item.register_step_pre_hook(self._check_update) for item in self.optimizers]

    def unguard(self) -> None:
        """Allow a script's own `optimizer.step()` again."""
        for guard in self._guards:
            guard.remove()
        self._guards = []

    def _check_update(self, *_: object) -> None:
        if not self._updating:
            raise InputError(
                "Session: the script called an optimizer's step().",
                next_step="Leave it out: session.step() does it, on all members at once.",
            )

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Allow the optimizers to change their parameters within this context."""
        self._updating = True
        try:
            yield
        finally:
            self._updating = False

    # -- back to the last boundary ----------------------------------------------------------------------------------

    def copy_script_state(self) -> None:
        """Copy what a script may change after a part or a step that does not count."""
        self._script_state = self._copy_of_script_state()

    def drop_script_copy(self) -> None:
        """Drop the copy of `copy_script_state`: what the script has done since belongs to the state."""
        self._script_state = None

    def begin_as(self, groups: list[int]) -> None:
        """Note that the script is about to do what was done for this state already.

        Until its first batch each optimizer has only the groups that it was made with (`groups` are their numbers),
        because the script may add the others again.
        """
        self._script_state = self._copy_of_script_state()
        self._script_state.kept.hide_groups(self.optimizers, groups)

    def _copy_of_script_state(self) -> ScriptState:
        groups = [
            [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
            for optimizer in self.optimizers
        ]
        registered = self._registered_states()
        registered, groups = map_tensors((registered, groups), lambda tensor: tensor.detach().clone())
        return ScriptState(registered, groups, GroupsCopy.copied_from(self.optimizers))

    def copy_boundary(self) -> None:
        """Copy the state of this boundary, because the step is about to change it before it counts."""
        if self._undo is None:
            self._undo = map_tensors(self.boundary_tree(), lambda tensor: tensor.detach().clone())

    def drop_copies(self) -> None:
        """Drop the copies of the last boundary, because the step counts."""
        self._undo = None
        self._script_state = None
        self._loop_exit = None

    def restore(self) -> None:
        """Go back to the last boundary, if anything was copied since for a part or step that did not count."""
        if self._script_state is None:
            return
        outside, self._script_state = self._script_state, None
        undo, self._undo = self._undo, None
        outside.kept.restore(self.optimizers)
        if undo is not None:
            self.load(undo)
            return
        self.load_registered(outside.registered)
        self.load_settings(outside.groups)
        self.buffers.restore()

    def load(self, tree: dict[str, Any]) -> None:
        """Replace the state by that in `tree`."""
        self._check_registered(tree["registered"])
        self.model_state.load(tree)
        self.trained = tree["trained"]
        freeze(self.model, tree["frozen"])
        regroup(self.model, self.optimizers, tree["groups"])
        for optimizer, saved in zip(self.optimizers, tree["optimizers"], strict=True):
            shards = dict(optimizer.state) if self.sharded else {}
            optimizer.load_state_dict(saved)
            _as_saved(optimizer, saved)
            optimizer.state.update(shards)
        self.load_registered(tree["registered"])
        self.rate.load_state_dict(tree["rate"])
        self.load_progress(tree["progress"])
        self.buffers.copy_boundary()

    def check_fits(self, tree: dict[str, Any]) -> None:
        """Raise InputError if `tree` is not a state of this training: of another model or other registered objects."""
        self.model_state.check_fits(tree)
        self._check_registered(tree["registered"])

    def load_settings(self, groups: list[list[dict[str, Any]]]) -> None:
        """Replace the settings of the optimizers' groups by those in `groups`, by optimizer and group."""
        for optimizer, settings in zip(self.optimizers, groups, strict=True):
            for group, own in zip(optimizer.param_groups, settings, strict=True):
                group.update(own)

    def load_registered(self, states: list[dict[str, Any]]) -> None:
        """Replace the registered objects' states.

        Raises:
            InputError: this script has registered more objects, or fewer.
        """
        self._check_registered(states)
        for item, state in zip(self.registered, states, strict=True):
            item.load_state_dict(state)

    def _check_registered(self, states: list[dict[str, Any]]) -> None:
        if len(states) != len(self.registered):
            raise InputError(
                f"offcut.torch: the state has {len(states)} registered objects (a scaler counts), this script has "
                f"{len(self.registered)}.",
                next_step="Register the same ones, in the same order, in every run of a job.",
            )

    def load_progress(self, progress: dict[str, Any]) -> None:
        """Go on from where `progress`, a part of the tree, says that the training is."""
        self.step, self.samples, self.loss = progress["step"], progress["samples"], progress["loss"]
        self.cursor = Cursor(progress["epoch"], progress["offset"])
        self._loop_exit = None


def _as_saved(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Undo what `load_state_dict` does to an optimizer's tensors: it gives them the parameter's type, and their strides
    are those that they came with.

    Fused optimizers go through parameters and their states in the order of the memory.
    """
    for i, p in enumerate(dict.fromkeys(parameters_of(optimizer))):
        for key, value in saved["state"].get(i, {}).items():
            there = optimizer.state[p].get(key)
            if not isinstance(value, torch.Tensor) or not isinstance(there, torch.Tensor):
                continue
            if value.shape == p.shape and (there.dtype != value.dtype or there.stride() != p.stride()):
                optimizer.state[p][key] = torch.empty_like(p, dtype=value.dtype, requires_grad=False).copy_(value)
            elif there.dtype != value.dtype:
                optimizer.state[p][key] = value.to(there.device)


def _named_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def map_tensors(tree: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a copy of `tree` with every tensor replaced, in a fixed order; containers keep their kind."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, dict):
        copy = tree.copy()
        for key, value in tree.items():
            copy[key] = map_tensors(value, change)
        return copy
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tensors(value, change) for value in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_tensors(value, change) for value in tree)
    return tree
