"""Programs on a V of stages: operation by operation those of torch.distributed.pipelining."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from offcut.pipeline.schedules import SCHEDULES, Shape

pytest.importorskip("torch")

from torch.distributed.pipelining import schedules


def operations(actions: list[Any]) -> list[str]:
    """A rank's actions in PyTorch's notation, with pairs of forward and backward as two."""
    flat = [part for action in actions if action is not None for part in (action.sub_actions or (action,))]
    return [repr(a) for a in flat]


@pytest.mark.parametrize(
    ("name", "peer"), [("zb-v", schedules.ScheduleZBVZeroBubble), ("dualpipe-v", schedules.ScheduleDualPipeV)]
)
def test_the_program_is_the_one_of_torch(name: str, peer: Any) -> None:
    for ranks in (2, 3, 4, 7):
        for micro_batches in (2 * ranks, 3 * ranks + 1, 5 * ranks):
            program = SCHEDULES[name].program(Shape(ranks=ranks, micro_batches=micro_batches, chunks=2))
            given = SimpleNamespace(pp_group_size=ranks, num_stages=2 * ranks, _n_microbatches=micro_batches)
            for rank in range(ranks):
                assert program.text(rank) == operations(peer._calculate_single_rank_operations(given, rank))
