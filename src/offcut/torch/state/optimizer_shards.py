"""The optimizers' state in shards, of which each member holds some (ZeRO stage 1).

A shard is what the optimizers keep of a few parameters that follow each other in the model. The parameters themselves
are on all members.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from offcut.membership.state_shards import ShardPlan
from offcut.torch.state.plain_values import plain
from offcut.torch.state.training_state import TrainingState, map_tensors

#: Parameters are put together until there are at most this many shards, apart from single large parameters. Each shard
#: is a file of a checkpoint.
_MOST = 128

#: What the optimizers keep of a parameter: by the optimizer's index.
_Kept = dict[int, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Values:
    """Parameters and what the optimizers keep of them, at one step."""

    parameters: list[tuple[torch.nn.Parameter, torch.Tensor]]
    kept: list[tuple[torch.nn.Parameter, _Kept]]


class OptimizerShards:
    """This member's part of the optimizers' state, at one step or between two.

    An update changes what this member holds before it is known whether all members have made theirs. Until then the
    values from before it are there too.

    Args:
        state: the training's state; from now on its trees have nothing of the shards.
        copies: how many members hold each shard.
    """

    def __init__(self, state: TrainingState, copies: int) -> None:
        state.sharded = True
        self._state = state
        self.copies = copies
        self._numbers = {p: number for number, p in enumerate(state.model.parameters())}
        self._shards = _in_shards(list(self._numbers))
        #: The shards' sizes, as far as the parameters' sizes tell.
        self.sizes = [sum(p.numel() * p.element_size() for p in shard) for shard in self._shards]
        #: The shards that this member holds.
        self.held: frozenset[int] = frozenset()
        #: Who holds what in the current generation.
        self.plan: ShardPlan | None = None
        #: Values from before an update that may count or not, and after one that counts only if other members say so.
        self._before: _Values | None = None
        self._after: _Values | None = None

    # -- the shards ---------------------------------------------------------------------------------------------------

    def parameters(self, shards: Iterable[int]) -> list[torch.nn.Parameter]:
        """Return the parameters of some shards."""
        return [p for shard in sorted(shards) for p in self._shards[shard]]

    def shard(self, shard: int) -> dict[str, Any]:
        """Return what the optimizers keep of a shard's parameters, by the parameters' numbers in the model.

        Raises:
            InputError: it contains something that can go neither to other members nor into a checkpoint.
        """
        # A checkpoint's tensors are named by these keys, so those of all shards differ.
        kept = {f"kept-{self._numbers[p]}": self._kept(p) for p in self._shards[shard]}
        tree: dict[str, Any] = plain(kept, "the optimizers' state")
        return tree

    def load_shard(self, shard: int, tree: dict[str, Any]) -> None:
        """Take over a shard that another member, or a checkpoint, has returned from `shard`."""
        for p in self._shards[shard]:
            self._put(p, tree[f"kept-{self._numbers[p]}"])
        self.held |= {shard}

    def drop(self, shards: Iterable[int]) -> None:
        """Release what the optimizers keep of these shards' parameters."""
        gone = frozenset(shards)
        for p in self.parameters(gone):
            self._put(p, {})
        self.held -= gone

    def place(self, plan: ShardPlan, rank: int) -> None:
        """Hold what the plan of a new generation says, once all that was missing has come."""
        self.plan = plan
        need = plan.held_by(rank)
        self.drop(frozenset(range(len(self.sizes))) - need)
        self.held = need
        self._before = self._after = None

    def _kept(self, p: torch.nn.Parameter) -> _Kept:
        return {i: item.state[p] for i, item in enumerate(self._state.optimizers) if p in item.state}

    def _put(self, p: torch.nn.Parameter, kept: _Kept) -> None:
        for i, item in enumerate(self._state.optimizers):
            if i in kept:
                item.state[p] = kept[i]
            else:
                item.state.pop(p, None)

    # -- an update ----------------------------------------------------------------------------------------------------

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Let the optimizers change within this context only what this member holds; keep the values from before."""
        held = self.parameters(self.held)
        self._before = _Values(
            [(p, p.detach().clone()) for p in held],
            [(p, map_tensors(self._kept(p), lambda tensor: tensor.detach().clone())) for p in held],
        )
        mine = {id(p) for p in held}
        groups = [group for item in self._state.optimizers for group in item.param_groups]
        whole = [group["params"] for group in groups]
        for group in groups:
            group["params"] = [p for p in group["params"] if id(p) in mine]
        try:
            yield
        finally:
            for group, parameters in zip(groups, whole, strict=True):
                group["params"] = parameters

    @property
    def prepared(self) -> bool:
        """Whether an update was made here that counts only if other members say so."""
        return self._after is not None

    def set_aside(self) -> None:
        """Go back to before the update, because the generation broke; keep the update in case that others apply it."""
        if self._before is not None:
            changed = [p for p, _ in self._before.parameters]
            self._after = _Values([(p, p.detach().clone()) for p in changed], [(p, self._kept(p)) for p in changed])
            self._restore(self._before)
            self._before = None

    def apply_late(self) -> None:
        """Make the update that was set aside, because other members have applied it."""
        if self._after is not None:
            self._restore(self._after)
            self._after = None

    def applied(self) -> None:
        """Note that all members have made their part of the update."""
        self._before = self._after = None

    def _restore(self, values: _Values) -> None:
        with torch.no_grad():
            for p, value in values.parameters:
                p.copy_(value)
        for p, kept in values.kept:
            self._put(p, kept)


def _in_shards(parameters: list[torch.nn.Parameter]) -> list[list[torch.nn.Parameter]]:
    """Divide parameters into shards: neighbours together, up to a `_MOST`th of all."""
    most = 2 * sum(p.numel() * p.element_size() for p in parameters) / _MOST
    shards: list[list[torch.nn.Parameter]] = []
    size = 0
    for p in parameters:
        own = p.numel() * p.element_size()
        if not shards or size + own > most:
            shards.append([])
            size = 0
        shards[-1].append(p)
        size += own
    return shards
