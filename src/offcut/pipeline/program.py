"""A program: what every rank of a pipeline computes, and in which order.

An operation is (kind, stage, micro-batch): F the forward, B the whole backward, I the input gradient alone, W the
weight gradient alone. A *lane* does its operations one after the other; a rank has one lane, or two where forward and
backward share the device (FBP-AS). A stage that several ranks hold (replicas, Chimera's two directions) simply has its
micro-batches spread over their lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F, B, I, W = 0, 1, 2, 3  # noqa: E741 - the letters of the literature
KIND_NAMES = "FBIW"

Op = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """Operations of all lanes, one lane after the other: lane k owns `[lane_start[k], lane_start[k + 1])`."""

    stages: int
    micro_batches: int
    kind: NDArray[np.int8]
    stage: NDArray[np.int32]
    micro_batch: NDArray[np.int32]
    lane_start: NDArray[np.int64]
    rank_of_lane: NDArray[np.int64]

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return int(self.rank_of_lane.max()) + 1

    @property
    def size(self) -> int:
        """The number of operations."""
        return len(self.kind)

    def lane(self, lane: int) -> list[Op]:
        """Return the operations of one lane, in order.

        Args:
            lane: the lane's number.

        Returns:
            (kind, stage, micro-batch) of each.
        """
        span = slice(self.lane_start[lane], self.lane_start[lane + 1])
        rows = zip(self.kind[span], self.stage[span], self.micro_batch[span], strict=True)
        return [(int(k), int(s), int(i)) for k, s, i in rows]

    def holders(self) -> list[list[int]]:
        """Return the ranks that compute each stage, by stage; a rank's lanes count once, in the order of the lanes."""
        found: list[list[int]] = [[] for _ in range(self.stages)]
        for lane, rank in enumerate(self.rank_of_lane.tolist()):
            for stage in sorted({stage for _, stage, _ in self.lane(lane)}):
                if rank not in found[stage]:
                    found[stage].append(rank)
        return found

    def text(self, lane: int) -> list[str]:
        """Return the operations of one lane in PyTorch's notation, such as `2F0`.

        Args:
            lane: the lane's number.
        """
        return [f"{s}{KIND_NAMES[k]}{i}" for k, s, i in self.lane(lane)]


def from_lanes(
    lanes: Sequence[Iterable[Op]], *, stages: int, micro_batches: int, rank_of_lane: Sequence[int] | None = None
) -> Program:
    """Make a program from one list of operations per lane.

    Args:
        lanes: the operations (kind, stage, micro-batch) of each lane.
        stages: the number of stages.
        micro_batches: the number of micro-batches.
        rank_of_lane: the rank of each lane; None: lane k is rank k.

    Returns:
        The program.
    """
    rows = [np.array(list(ops), dtype=np.int32).reshape(-1, 3) for ops in lanes]
    return from_arrays(
        [(row[:, 0], row[:, 1], row[:, 2]) for row in rows],
        stages=stages,
        micro_batches=micro_batches,
        rank_of_lane=rank_of_lane,
    )


def from_arrays(
    lanes: Sequence[tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]],
    *,
    stages: int,
    micro_batches: int,
    rank_of_lane: Sequence[int] | None = None,
) -> Program:
    """Make a program from three arrays per lane.

    Args:
        lanes: kind, stage and micro-batch of each lane's operations, arrays of one length.
        stages: the number of stages.
        micro_batches: the number of micro-batches.
        rank_of_lane: the rank of each lane; None: lane k is rank k.

    Returns:
        The program.
    """
    starts = np.zeros(len(lanes) + 1, dtype=np.int64)
    starts[1:] = np.cumsum([len(kind) for kind, _, _ in lanes])
    return Program(
        stages=stages,
        micro_batches=micro_batches,
        kind=np.concatenate([kind for kind, _, _ in lanes]).astype(np.int8),
        stage=np.concatenate([stage for _, stage, _ in lanes]).astype(np.int32),
        micro_batch=np.concatenate([mb for _, _, mb in lanes]).astype(np.int32),
        lane_start=starts,
        rank_of_lane=np.array(range(len(lanes)) if rank_of_lane is None else rank_of_lane, dtype=np.int64),
    )
