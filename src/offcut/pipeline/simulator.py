"""The schedule simulator: computes times and memory from a program and the costs of its stages.

The bubble has two definitions, and papers use both. `bubble_of_step`: idle device time over the whole step.
`bubble_of_span`: over each device's own span, from its first operation to the end of its last ("zero bubble").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offcut.errors import OffcutError
from offcut.pipeline.layer_profile import Floats
from offcut.pipeline.program import B, F, Program, W
from offcut.pipeline.schedules.base import Sends
from offcut.pipeline.simulator_kernels import run_blocking, run_overlapped, totals_of_ranks
from offcut.pipeline.stage_costs import MicroBatchScale, StageCosts, as_sent


class DeadlockError(OffcutError):
    """The operations of a program wait for each other, or one that another needs is missing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTimeline:
    """The result of a simulation.

    `start_s` and `end_s` have one entry per operation of the program; the other arrays have one per rank. `step_s` ends
    when the last gradient is synchronised. `peak_bytes` are activations alone; `peak_in_flight` counts (stage,
    micro-batch) pairs between their forward and the end of their backward.
    """

    program: Program
    step_s: float
    start_s: Floats
    end_s: Floats
    busy_s: Floats
    peak_bytes: Floats
    peak_in_flight: NDArray[np.int64]
    #: Which stages a rank holds: 1.0 or 0.0, ranks x stages.
    held: Floats
    bubble_of_step: float
    bubble_of_span: float


def simulate(
    program: Program,
    costs: StageCosts,
    *,
    sends: Sends = "overlap",
    occupancy: bool = False,
    scale: MicroBatchScale | None = None,
) -> StepTimeline:
    """Simulate one step of a program.

    Args:
        program: the operations of every rank.
        costs: seconds and bytes of its stages.
        sends: how results are sent (see `Sends`).
        occupancy: True: a rank sends one message at a time, so a slow link limits the rate. False: a transfer is a pure
            delay, as in the papers' formulae.
        scale: how the micro-batches differ; None: they are equal.

    Returns:
        Times and memory of every rank.

    Raises:
        DeadlockError: the program cannot finish.
    """
    lanes_of_rank = np.bincount(program.rank_of_lane)
    shared = bool((lanes_of_rank > 1).any())
    seen = as_sent(costs, sends, shared=shared)
    duration = np.stack([seen.forward_s, seen.backward_s, seen.backward_s - seen.weight_grad_s, seen.weight_grad_s])
    arrays = (program.kind, program.stage, program.micro_batch, program.lane_start)
    equal = np.ones(program.micro_batches)
    scales = MicroBatchScale(time=equal, size=equal) if scale is None else scale
    if sends == "blocking":
        start, end, ok = run_blocking(*arrays, duration, seen.hop_s, program.stages, scales.time, scales.size)
    else:
        start, end, ok = run_overlapped(
            *arrays, program.rank_of_lane, duration, seen.hop_s, program.stages, scales.time, scales.size, occupancy
        )
    if not ok:
        raise DeadlockError("the program cannot finish: its operations wait for each other.")
    return _summary(program, costs, duration, (start, end), scales, shared=shared)


def _summary(
    program: Program,
    costs: StageCosts,
    duration: Floats,
    times: tuple[Floats, Floats],
    scales: MicroBatchScale,
    *,
    shared: bool,
) -> StepTimeline:
    """Add up times and memory by rank."""
    ranks = program.ranks
    start, end = times
    arrays = (program.kind, program.stage, program.micro_batch, program.lane_start, program.rank_of_lane)
    busy, first, last, held, peak_bytes, peak_count = totals_of_ranks(
        *arrays, duration, start, end, costs.stored_bytes, scales.time, scales.size, ranks
    )
    if shared:
        peak_bytes, peak_count = _peaks_by_clock(program, costs, start, end, scales.size)
    step = float((last + held @ costs.sync_s).max())
    lanes = np.bincount(program.rank_of_lane, minlength=ranks)
    worked = last > 0
    spans = float(((last - first) * lanes)[worked].sum())
    makespan = float(last.max())
    return StepTimeline(
        program=program,
        step_s=step,
        start_s=start,
        end_s=end,
        busy_s=busy,
        peak_bytes=peak_bytes,
        peak_in_flight=peak_count,
        held=held,
        bubble_of_step=1 - float(busy.sum()) / (makespan * float(lanes.sum())) if makespan else 0.0,
        bubble_of_span=1 - float(busy.sum()) / spans if spans else 0.0,
    )


def _peaks_by_clock(
    program: Program, costs: StageCosts, start: Floats, end: Floats, size: Floats
) -> tuple[Floats, NDArray[np.int64]]:
    """Return the peaks of ranks with two lanes: what ends makes room before what starts at that time."""
    rank = np.repeat(program.rank_of_lane, np.diff(program.lane_start))
    change = np.where(program.kind == F, 1, np.where((program.kind == B) | (program.kind == W), -1, 0))
    order = np.lexsort((change, np.where(change > 0, start, end)))
    peak_bytes, peak_count = np.zeros(program.ranks), np.zeros(program.ranks, dtype=np.int64)
    for r in range(program.ranks):
        mine = order[rank[order] == r]
        stored = costs.stored_bytes[program.stage] * size[program.micro_batch]
        peak_bytes[r] = (change * stored)[mine].cumsum().max()
        peak_count[r] = change[mine].cumsum().max()
    return peak_bytes, peak_count
