"""The model's part of a training's state, with or without frozen weights that every member's script makes itself."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

import torch

from offcut.errors import InputError
from offcut.torch.state.plain_values import plain
from offcut.torch.state.trained_parameters import parameters_of


class FrozenWeights:
    """The parameters that are frozen, and belong to no optimizer, when the training is made.

    Args:
        model: the model.
        optimizers: its optimizers.
        checksums: returns a checksum for each of several tensors.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        checksums: Callable[[list[torch.Tensor]], list[int]],
    ) -> None:
        self._optimizers = optimizers
        owned = self._owned()
        found = {
            name: tensor
            for name, tensor in model.state_dict(keep_vars=True).items()
            if isinstance(tensor, torch.nn.Parameter) and not tensor.requires_grad and id(tensor) not in owned
        }
        #: By name: the parameter, and how often it had been changed.
        self._found = {name: (tensor, tensor._version) for name, tensor in found.items()}
        #: The checksum of each, by name.
        self.checksums = dict(zip(found, checksums(list(found.values())), strict=True))

    def _owned(self) -> set[int]:
        return {id(p) for optimizer in self._optimizers for p in parameters_of(optimizer)}

    def left_out(self) -> dict[str, int]:
        """Return the checksums, by name, of those that are as the script has made them.

        They are in no optimizer, and were not changed since. Others are part of the state from then on.
        """
        owned = self._owned()
        return {
            name: self.checksums[name]
            for name, (tensor, version) in self._found.items()
            if id(tensor) not in owned and tensor._version == version
        }

    def check(self, left_out: dict[str, Any]) -> None:
        """Check that a state without some frozen weights is one of this training.

        Args:
            left_out: what the state does not contain.

        Raises:
            InputError: this script has made other weights.
        """
        for name, checksum in left_out.items():
            if self.checksums.get(name) != checksum:
                raise InputError(
                    f"offcut.torch: the state was trained beside other frozen weights than this script's: {name}.",
                    next_step="With without_frozen=True every run of a job makes the same frozen weights: from the "
                    "same file, or from a fixed seed.",
                )


class ModelState:
    """A model's parameters and buffers, as a part of a state's tree.

    Args:
        model: the model.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        #: Weights that are not part of the state, because every member makes them itself; None: all are part of it.
        self.frozen: FrozenWeights | None = None

    def tree(self) -> dict[str, Any]:
        """Return what belongs to the model in the tree; the tensors are the living ones.

        Raises:
            InputError: it contains something that can go neither to other members nor into a checkpoint.
        """
        values, left_out = self._model.state_dict(), self.frozen.left_out() if self.frozen is not None else {}
        for name in left_out:
            del values[name]
        there = {"model": plain(values, "the model's state")}
        return {**there, "left_out": left_out} if left_out else there

    def load(self, tree: dict[str, Any]) -> None:
        """Replace the model's values by those in a tree.

        Raises:
            InputError: the tree has no frozen weights, and this script has made other ones.
        """
        left_out = self._left_out(tree)
        missing, unexpected = self._model.load_state_dict(tree["model"], strict=not left_out)
        assert set(missing) <= set(left_out), missing
        assert not unexpected, unexpected

    def room(self) -> dict[str, torch.Tensor]:
        """Return the living tensors by their names in the tree."""
        return {f"model.{name}": value for name, value in self._tensors({}).items()}

    def check_fits(self, tree: dict[str, Any]) -> None:
        """Check that a tree is of this model.

        Raises:
            InputError: it is of another model, or beside other frozen weights.
        """
        mine = {name: tuple(value.shape) for name, value in self._tensors(self._left_out(tree)).items()}
        theirs = {name: tuple(value.shape) for name, value in tree["model"].items() if torch.is_tensor(value)}
        if mine != theirs:
            name = next(name for name in (*mine, *theirs) if mine.get(name) != theirs.get(name))
            raise InputError(
                f"offcut.torch: the state is of another model: its {name} has the shape {theirs.get(name, 'none')}, "
                f"this script's {mine.get(name, 'none')}.",
                next_step="A job's model stays the same in all its runs. Submit another model as a job of its own.",
            )

    def _left_out(self, tree: dict[str, Any]) -> dict[str, int]:
        left_out: dict[str, int] = tree.get("left_out", {}) if self.frozen is not None else {}
        if self.frozen is not None:
            self.frozen.check(left_out)
        return left_out

    def _tensors(self, without: Container[str]) -> dict[str, torch.Tensor]:
        values = self._model.state_dict()
        return {name: value for name, value in values.items() if torch.is_tensor(value) and name not in without}
