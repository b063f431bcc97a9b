"""Knows which of a model's parameters are trained: scripts change that on the way, by freezing and `add_param_group`.

Parameters are moved and compared by their names in the model, because these are the same on every member and in every
run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from offcut.errors import InputError

#: Names of parameters, by optimizer.
Trained = list[list[str]]
#: Names of parameters, by optimizer and group.
Groups = list[list[list[str]]]


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    """Return all parameters of `optimizer`, frozen ones too."""
    return [p for settings in optimizer.param_groups for p in settings["params"]]


def trained_now(optimizers: Iterable[torch.optim.Optimizer]) -> list[list[torch.nn.Parameter]]:
    """Return, by optimizer, the parameters that are trained now; each once."""
    return [list({id(p): p for p in parameters_of(item) if p.requires_grad}.values()) for item in optimizers]


def frozen_in(model: torch.nn.Module) -> list[str]:
    """Return the names of the frozen parameters."""
    return [name for name, p in model.named_parameters() if not p.requires_grad]


def freeze(model: torch.nn.Module, frozen: Iterable[str]) -> None:
    """Freeze just the parameters with those names."""
    names = set(frozen)
    for name, p in model.named_parameters():
        if p.requires_grad == (name in names):
            p.requires_grad_(name not in names)


def names_in(model: torch.nn.Module, parameters: Iterable[Iterable[torch.nn.Parameter]]) -> list[list[str]]:
    """Return the names of `parameters` in the model.

    Raises:
        InputError: some are not the model's; what is not in the model's state cannot be sent to joiners.
    """
    names = {id(p): name for name, p in model.named_parameters()}
    try:
        return [[names[id(p)] for p in several] for several in parameters]
    except KeyError:
        raise InputError(
            "offcut.torch: an optimizer has parameters that do not belong to the model.",
            next_step="Make one module of all that is trained (a loss with weights of its own too), and give that.",
        ) from None


def parameters_in(model: torch.nn.Module, names: Iterable[Iterable[str]]) -> list[list[torch.nn.Parameter]]:
    named = dict(model.named_parameters())
    return [[named[name] for name in several] for several in names]


@dataclass(frozen=True, slots=True)
class GroupsCopy:
    """A copy of the optimizers' groups, and of which of their parameters are frozen, to go back to."""

    groups: list[list[dict[str, Any]]]
    frozen: list[tuple[torch.nn.Parameter, bool]]
    #: The optimizer states of parameters in groups that were removed.
    states: list[dict[torch.nn.Parameter, Any]]

    @classmethod
    def copied_from(cls, optimizers: Iterable[torch.optim.Optimizer]) -> GroupsCopy:
        """Copy the groups of the optimizers as they are."""
        groups = [list(item.param_groups) for item in optimizers]
        frozen = [(p, not p.requires_grad) for several in groups for settings in several for p in settings["params"]]
        return cls(groups, frozen, [{} for _ in groups])

    def hide_groups(self, optimizers: Iterable[torch.optim.Optimizer], counts: Iterable[int]) -> None:
        """Remove all groups after the first `counts` of each optimizer, until `restore`."""
        for item, states, count in zip(optimizers, self.states, counts, strict=True):
            states.update(_drop_groups(item, count))

    def restore(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Remove groups that were added since, return those that were hidden, and freeze what was frozen."""
        for item, groups, states in zip(optimizers, self.groups, self.states, strict=True):
            _drop_groups(item, sum(any(there is own for own in groups) for there in item.param_groups))
            item.param_groups[:] = groups
            item.state.update(states)
        for p, frozen in self.frozen:
            p.requires_grad_(not frozen)

    def frozen_names(self, model: torch.nn.Module, now: Iterable[str]) -> list[str]:
        """Return the names of the model's frozen parameters at the copy; `now` are those that are frozen now."""
        flags = {id(p): frozen for p, frozen in self.frozen}
        there = set(now)
        return [name for name, p in model.named_parameters() if flags.get(id(p), name in there)]


def _drop_groups(optimizer: torch.optim.Optimizer, count: int) -> dict[torch.nn.Parameter, Any]:
    """Remove the groups after the first `count`; return what the optimizer keeps of their parameters."""
    gone = [p for settings in optimizer.param_groups[count:] for p in settings["params"]]
    del optimizer.param_groups[count:]
    return {p: optimizer.state.pop(p) for p in gone if p in optimizer.state}


def groups_in(model: torch.nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> Groups:
    return [names_in(model, (settings["params"] for settings in item.param_groups)) for item in optimizers]


def regroup(model: torch.nn.Module, optimizers: Iterable[torch.optim.Optimizer], groups: Groups) -> None:
    """Give the optimizers the groups of a state, where a script has added some that it had not, or not yet.

    InputError where the groups that both have are of other parameters.
    """
    for item, here, there in zip(optimizers, groups_in(model, optimizers), groups, strict=True):
        common = min(len(here), len(there))
        if here[:common] != there[:common]:
            raise InputError(
                "offcut.torch: the groups of an optimizer have other parameters than those of the state.",
                next_step="Make the same groups, in the same order, in every run of a job.",
            )
        _drop_groups(item, common)
        for parameters in parameters_in(model, there[common:]):
            item.add_param_group({"params": parameters})
