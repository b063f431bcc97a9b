"""The schedule simulator: a program and what its stages cost, in; times and memory, out.

The bubble has two definitions, and papers mix them. `bubble_of_step`: idle device time over the whole step.
`bubble_of_span`: over each device's own span, from its first operation to the end of its last ("zero bubble").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offcut.errors import OffcutError
from offcut.pipeline.costs import StageCosts, as_sent
from offcut.pipeline.kernels import run_blocking, run_overlapped
from offcut.pipeline.profile import Floats
from offcut.pipeline.program import B, F, Program, W
from offcut.pipeline.schedules.base import Sends


class DeadlockError(OffcutError):
    """A program whose operations wait for each other, or lacks one that another needs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """What a simulation found. `start_s`, `end_s` are in the order of the program's operations; the rest per rank.

    `step_s` ends with the last gradient synchronised. `peak_bytes` are activations alone; `peak_in_flight` counts
    (stage, micro-batch) pairs between their forward and the end of their backward.
    """

    program: Program
    step_s: float
    start_s: Floats
    end_s: Floats
    busy_s: Floats
    peak_bytes: Floats
    peak_in_flight: NDArray[np.int64]
    bubble_of_step: float
    bubble_of_span: float


def simulate(program: Program, costs: StageCosts, *, sends: Sends = "overlap", occupancy: bool = False) -> Timeline:
    """Run `program` on stages that cost `costs`.

    `occupancy`: a rank sends one message at a time, so a slow link limits the rate; without it a transfer is a pure
    delay, as in the papers' formulae. Raises DeadlockError where the program cannot finish.
    """
    lanes_of_rank = np.bincount(program.rank_of_lane)
    shared = bool((lanes_of_rank > 1).any())
    seen = as_sent(costs, sends, shared=shared)
    duration = np.stack(
        [seen.forward_s, seen.backward_s, seen.backward_s - seen.weight_grad_s, seen.weight_grad_s]
    )
    arrays = (program.kind, program.stage, program.micro_batch, program.lane_start)
    if sends == "blocking":
        start, end, ok = run_blocking(*arrays, duration, seen.hop_s, program.stages, program.micro_batches)
    else:
        start, end, ok = run_overlapped(
            *arrays, program.rank_of_lane, duration, seen.hop_s, program.stages, program.micro_batches, occupancy
        )
    if not ok:
        raise DeadlockError("the program cannot finish: its operations wait for each other.")
    return _summary(program, costs, duration, start, end, shared=shared)


def _summary(
    program: Program, costs: StageCosts, duration: Floats, start: Floats, end: Floats, *, shared: bool
) -> Timeline:
    ranks = program.ranks
    rank = np.repeat(program.rank_of_lane, np.diff(program.lane_start))
    busy = np.bincount(rank, weights=duration[program.kind, program.stage], minlength=ranks)
    first, last = np.full(ranks, np.inf), np.zeros(ranks)
    np.minimum.at(first, rank, start)
    np.maximum.at(last, rank, end)
    held = np.zeros((ranks, program.stages), dtype=bool)
    held[rank, program.stage] = True
    step = float((last + held @ costs.sync_s).max())
    change = np.where(program.kind == F, 1, np.where((program.kind == B) | (program.kind == W), -1, 0))
    order = np.arange(program.size)
    if shared:
        # Two lanes at once: go by the clock; what ends makes room before what starts at the same instant.
        order = np.lexsort((change, np.where(change > 0, start, end)))
    peak_bytes, peak_count = np.zeros(ranks), np.zeros(ranks, dtype=np.int64)
    weight = change * costs.stored_bytes[program.stage]
    for r in range(ranks):
        mine = order[rank[order] == r] if shared or ranks < 2 else None
        span = mine if mine is not None else _span(program, r)
        if len(weight[span]):
            peak_bytes[r] = weight[span].cumsum().max()
            peak_count[r] = change[span].cumsum().max()
    lanes = np.bincount(program.rank_of_lane, minlength=ranks)
    worked = np.flatnonzero(last)
    spans = float(((last - first) * lanes)[worked].sum())
    makespan = float(last.max())
    return Timeline(
        program=program,
        step_s=step,
        start_s=start,
        end_s=end,
        busy_s=busy,
        peak_bytes=peak_bytes,
        peak_in_flight=peak_count,
        bubble_of_step=1 - float(busy.sum()) / (makespan * float(lanes.sum())) if makespan else 0.0,
        bubble_of_span=1 - float(busy.sum()) / spans if spans else 0.0,
    )


def _span(program: Program, rank: int) -> slice:
    return slice(int(program.lane_start[rank]), int(program.lane_start[rank + 1]))
