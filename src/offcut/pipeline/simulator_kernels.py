"""The compiled inner loops of the simulator: when every operation of a program starts and ends."""

from __future__ import annotations

# ruff: noqa: PLR0915 - one compiled loop each; parts of it would share all of its state
import numpy as np
from numba import njit


@njit(cache=True)
def run_overlapped(  # type: ignore[no-untyped-def]
    kind, stage, micro_batch, lane_start, rank_of_lane, duration, hop, stages, time, size, occupancy
):
    """Compute start and end of every operation if transfers overlap with computing.

    A transfer delays its receiver only. With `occupancy`, a rank sends one message at a time, in its own order.

    Args:
        kind: shape (operations,), the kind of each operation, lane after lane.
        stage: shape (operations,).
        micro_batch: shape (operations,).
        lane_start: shape (lanes + 1,), the first operation of each lane.
        rank_of_lane: shape (lanes,).
        duration: shape (4, stages), seconds by kind and stage.
        hop: shape (stages - 1,), seconds of a transfer over each boundary in either direction.
        stages: the number of stages.
        time: shape (micro-batches,), multiplies the durations.
        size: shape (micro-batches,), multiplies the transfers.
        occupancy: True if a rank sends one message at a time.

    Returns:
        (start, end, ok): seconds, shape (operations,); ok is 0 if the program cannot finish.
    """
    n = len(kind)
    lanes = len(lane_start) - 1
    row_of = np.array([0, 1, 1, 2])
    where = np.full((3, stages, len(time)), -1, dtype=np.int64)
    lane_of = np.empty(n, dtype=np.int64)
    for lane in range(lanes):
        for o in range(lane_start[lane], lane_start[lane + 1]):
            lane_of[o] = lane
            where[row_of[kind[o]], stage[o], micro_batch[o]] = o
    start = np.full(n, -1.0)
    end = np.full(n, -1.0)
    arrives = np.full(n, -1.0)
    clock = np.zeros(lanes)
    wire_free = np.zeros(rank_of_lane.max() + 1)
    position = lane_start[:-1].copy()
    done = 0
    while done < n:
        before = done
        for lane in range(lanes):
            rank = rank_of_lane[lane]
            while position[lane] < lane_start[lane + 1]:
                o = position[lane]
                k, s, i = kind[o], stage[o], micro_batch[o]
                at = clock[lane]
                first = -1
                second = -1
                needs_second = False
                if k == 0:
                    if s > 0:
                        second = where[0, s - 1, i]
                        needs_second = True
                    first = o
                elif k == 3:
                    first = where[1, s, i]
                else:
                    first = where[0, s, i]
                    if s < stages - 1:
                        second = where[1, s + 1, i]
                        needs_second = True
                if first < 0 or (needs_second and second < 0):
                    return start, end, 0
                if first != o:
                    if end[first] < 0:
                        break
                    at = max(at, end[first])
                if needs_second:
                    if end[second] < 0:
                        break
                    local = rank_of_lane[lane_of[second]] == rank
                    at = max(at, end[second] if local else arrives[second])
                start[o] = at
                end[o] = at + duration[k, s] * time[i]
                clock[lane] = end[o]
                # The result goes to the neighbour as soon as it is there and the wire is free.
                target = -1
                lag = 0.0
                if k == 0 and s < stages - 1:
                    target = where[0, s + 1, i]
                    lag = hop[s] * size[i]
                elif (k in (1, 2)) and s > 0:
                    target = where[1, s - 1, i]
                    lag = hop[s - 1] * size[i]
                if target >= 0 and rank_of_lane[lane_of[target]] != rank:
                    leaves = max(end[o], wire_free[rank]) if occupancy else end[o]
                    arrives[o] = leaves + lag
                    wire_free[rank] = arrives[o]
                else:
                    arrives[o] = end[o]
                position[lane] += 1
                done += 1
        if done == before:
            return start, end, 0
    return start, end, 1


@njit(cache=True)
def run_blocking(kind, stage, micro_batch, lane_start, duration, hop, stages, time, size):  # type: ignore[no-untyped-def]
    """Compute start and end of every operation if transfers block both sides.

    Sender and receiver meet: after an operation a rank sends its result and receives what its next operation needs. The
    two are one exchange if they are with the same neighbour; otherwise the neighbour of the result comes first
    (Megatron-LM's fused send and receive; `torch.distributed.pipelining.Schedule1F1B`). Each rank has one lane.

    Args:
        kind: shape (operations,), the kind of each operation, lane after lane.
        stage: shape (operations,).
        micro_batch: shape (operations,).
        lane_start: shape (lanes + 1,), the first operation of each lane.
        duration: shape (4, stages), seconds by kind and stage.
        hop: shape (stages - 1,), seconds of a transfer over each boundary in either direction.
        stages: the number of stages.
        time: shape (micro-batches,), multiplies the durations.
        size: shape (micro-batches,), multiplies the transfers.

    Returns:
        (start, end, ok): seconds, shape (operations,); ok is 0 if the program cannot finish.
    """
    n = len(kind)
    lanes = len(lane_start) - 1
    start = np.full(n, -1.0)
    end = np.full(n, -1.0)
    clock = np.zeros(lanes)
    # A token is one message: (direction, boundary, micro-batch). Each side posts the time at which it came to it.
    posted = np.full((2, max(1, stages - 1), len(time), 2), -1.0)
    position = lane_start[:-1].copy()
    # What a lane is about to do: 0 and 1 its exchanges (before the operation at `position`), 2 the operation.
    phase = np.zeros(lanes, dtype=np.int64)
    done = 0
    while done < n:
        moved = False
        for lane in range(lanes):
            while position[lane] <= lane_start[lane + 1]:
                o = position[lane]
                last = o == lane_start[lane + 1]
                if phase[lane] < 2:
                    # Tokens of this exchange: at most one sent (of the operation before) and one received (for this).
                    sent_boundary = -1
                    sent_direction = 0
                    got_boundary = -1
                    got_direction = 0
                    if o > lane_start[lane]:
                        s = stage[o - 1]
                        if kind[o - 1] == 0 and s < stages - 1:
                            sent_boundary = s
                        elif kind[o - 1] in (1, 2) and s > 0:
                            sent_boundary, sent_direction = s - 1, 1
                    if not last:
                        s = stage[o]
                        if kind[o] == 0 and s > 0:
                            got_boundary = s - 1
                        elif kind[o] in (1, 2) and s < stages - 1:
                            got_boundary, got_direction = s, 1
                    together = sent_boundary >= 0 and sent_boundary == got_boundary
                    send_now = sent_boundary >= 0 and phase[lane] == 0
                    get_now = got_boundary >= 0 and (phase[lane] == 1) != together
                    at = clock[lane]
                    ready = True
                    if send_now:
                        i = micro_batch[o - 1]
                        side = posted[sent_direction, sent_boundary, i]
                        side[0] = clock[lane] if side[0] < 0 else side[0]
                        ready = ready and side[1] >= 0
                        at = max(at, max(side[0], side[1]) + hop[sent_boundary] * size[i])
                    if get_now:
                        i = micro_batch[o]
                        side = posted[got_direction, got_boundary, i]
                        side[1] = clock[lane] if side[1] < 0 else side[1]
                        ready = ready and side[0] >= 0
                        at = max(at, max(side[0], side[1]) + hop[got_boundary] * size[i])
                    if not ready:
                        break
                    clock[lane] = at
                    phase[lane] += 1
                    moved = True
                    if last and phase[lane] == 2:
                        position[lane] += 1
                else:
                    start[o] = clock[lane]
                    end[o] = clock[lane] + duration[kind[o], stage[o]] * time[micro_batch[o]]
                    clock[lane] = end[o]
                    position[lane] += 1
                    phase[lane] = 0
                    done += 1
                    moved = True
        if not moved:
            return start, end, 0
    return start, end, 1


@njit(cache=True)
def totals_of_ranks(  # type: ignore[no-untyped-def]
    kind, stage, micro_batch, lane_start, rank_of_lane, duration, start, end, stored, time, size, ranks
):
    """Add up times and memory by rank.

    Args:
        kind: shape (operations,), the kind of each operation, lane after lane.
        stage: shape (operations,).
        micro_batch: shape (operations,).
        lane_start: shape (lanes + 1,), the first operation of each lane.
        rank_of_lane: shape (lanes,).
        duration: shape (4, stages), seconds by kind and stage.
        start: shape (operations,), seconds.
        end: shape (operations,), seconds.
        stored: shape (stages,), bytes kept per micro-batch in flight.
        time: shape (micro-batches,), multiplies the durations.
        size: shape (micro-batches,), multiplies the bytes.
        ranks: the number of ranks.

    Returns:
        Shape (ranks,) each: busy seconds, first start, last end, peak bytes, peak micro-batches in flight; and, before
        the peaks, the stages held, shape (ranks, stages).
    """
    stages = len(stored)
    busy = np.zeros(ranks)
    first = np.full(ranks, np.inf)
    last = np.zeros(ranks)
    held = np.zeros((ranks, stages))
    peak_bytes = np.zeros(ranks)
    peak_count = np.zeros(ranks, dtype=np.int64)
    for lane in range(len(lane_start) - 1):
        rank = rank_of_lane[lane]
        held_bytes = 0.0
        count = 0
        for o in range(lane_start[lane], lane_start[lane + 1]):
            k, s = kind[o], stage[o]
            busy[rank] += duration[k, s] * time[micro_batch[o]]
            kept = stored[s] * size[micro_batch[o]]
            first[rank] = min(first[rank], start[o])
            last[rank] = max(last[rank], end[o])
            held[rank, s] = 1.0
            if k == 0:
                held_bytes += kept
                count += 1
                peak_bytes[rank] = max(peak_bytes[rank], held_bytes)
                peak_count[rank] = max(peak_count[rank], count)
            elif k != 2:
                held_bytes -= kept
                count -= 1
    return busy, first, last, held, peak_bytes, peak_count
