"""Whether the members of a pipeline job have the same: all of them the common part, replicas of a stage its layers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from offcut.pipeline.layer_moves import layers_by_rank
from offcut.torch.membership.differences import compare, error_naming, exchange
from offcut.torch.membership.process_group import Group
from offcut.torch.membership.state_checksum import ALIKE, DIFFERENT, Checksum, CheckTimes, leaves, script_things
from offcut.torch.pipeline.layer_state import LayerState
from offcut.torch.pipeline.member_stages import MemberStages

#: The common part, beside the numbers of layers.
_COMMON = -1


class LayerChecks:
    """Compares checksums of the common part, and of each layer that several members have.

    Args:
        state: what this member has.
        stages: the plan says which members have which layers.
    """

    def __init__(self, state: LayerState, stages: MemberStages) -> None:
        self._state = state
        self._stages = stages
        self.times = CheckTimes()
        #: In the steps in which they compare: the ranks that have the common part, and each layer that several have.
        self._holders: dict[int, list[int]] = {}
        #: The checksums of what this member has of these.
        self._mine: dict[int, Checksum] = {}

    def begin(self, group: Group) -> None:
        """Begin a step on the state of a boundary: take its checksums, if it is compared in this step."""
        self._mine = {}
        if self.times.compares_now(group):
            began_s = time.monotonic()
            self._mine = self._checksums(group)
            self.times.took(time.monotonic() - began_s)

    def compare(self, group: Group) -> None:
        """Compare what the step began with, if that is done in this step; all members of `group` call this at once.

        Raises:
            OffcutError: on all members, naming what differs.
            Abandoned: the generation broke.
        """
        if not self._mine:
            return
        mine, self._mine = self._mine, {}
        rows = group.gather([mine[part].total if part in mine else 0 for part in self._holders])
        found: list[str] = []
        for place, (part, ranks) in enumerate(self._holders.items()):
            if len({rows[rank][place] for rank in ranks}) > 1:
                tables = exchange(group, mine[part].values if part in mine else {})
                found += compare({rank: tables[rank] for rank in ranks})
        if found:
            raise error_naming(DIFFERENT.format(step=self._state.step), found, ALIKE)

    def compare_at_end(self, group: Group) -> None:
        """Compare what there is at the end of the training; see `compare`."""
        if group.world > 1:
            self._mine = self._checksums(group)
            self.compare(group)

    def _checksums(self, group: Group) -> dict[int, Checksum]:
        by_rank = layers_by_rank(self._stages.plan)
        holders = {
            i: [rank for rank, layers in enumerate(by_rank) if i in layers] for i in range(len(self._state.layer_bytes))
        }
        self._holders = {
            _COMMON: list(range(group.world)),
            **{i: ranks for i, ranks in holders.items() if len(ranks) > 1},
        }
        return {
            part: Checksum(self._common() if part == _COMMON else self._layer(part), exact=group.exact)
            for part, ranks in self._holders.items()
            if group.rank in ranks
        }

    def _common(self) -> Iterator[tuple[str, Any]]:
        common = self._state.common()
        for i, groups in enumerate(common["settings"]):
            for j, settings in enumerate(groups):
                yield from leaves(settings, f"optimizer {i}'s group {j}")
        yield from script_things(self._state, common, ("frozen", "progress"))

    def _layer(self, i: int) -> Iterator[tuple[str, Any]]:
        tree = self._state.layer(i)
        for name, value in tree["model"].items():
            # Whole numbers in buffers are each member's own.
            if value.is_floating_point() or value.is_complex():
                yield f"the model's {name}", value
        for j, kept in enumerate(tree["optimizers"]):
            for name, values in kept.items():
                yield from leaves(values, f"optimizer {j}'s state of {name}")
