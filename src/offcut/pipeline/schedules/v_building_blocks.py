"""V-Half and V-Min (Qi et al., NeurIPS 2024): a half and a third of 1F1B's activation memory, on a V of 2 p stages.

A *building block* is the timetable of one micro-batch, in slots of F = I = W; the next micro-batch has the same one six
slots later, so a rank, which has six operations per micro-batch, is always busy if no two of them fall on the same slot
modulo 6. A rank's activations live between a forward and its weight gradient; the longer the delays between the ranks,
the longer that is. On a V both stages of a rank together live equally long on every rank.

With delays of 1 slot per rank (V-Min) that is 4 p slots, a third of 1F1B's memory; with 2, 1, 2, 1 for the two
forwards and the two backwards (V-Half) 6 p slots, a half. Micro-batches are laid out block by block and the ranks run
them in that order, as early as they can. Against 1F1B's bubble of 6 (p - 1) slots, for m >= 2 p: V-Half 3 (p - 1), one
less if p is even, with p + 3 stages' activations (1F1B: 2 p); V-Min 4 (p - 1) - 1, with 2 p / 3 + 3 at most.
"""

from __future__ import annotations

from collections.abc import Sequence

from offcut.pipeline.program import F, I, Program, W
from offcut.pipeline.schedules.base import Schedule, Shape, v_place
from offcut.pipeline.schedules.replicated import Lanes, copies
from offcut.pipeline.schedules.zero_bubble_v import refuses_v

#: Slots between a micro-batch and the next: six operations per rank.
_PERIOD = 6


def _lanes(p: int, m: int, delays: Sequence[int], turns: Sequence[int]) -> Lanes:
    """Lay out m building blocks.

    Args:
        p: the number of ranks.
        m: the number of micro-batches.
        delays: slots from one rank to the next, in the first forward, second forward, first backward, second backward.
        turns: slots from the end of each of these passes over the ranks to the begin of the next, shape (3,).
    """
    down, up, back_down, back_up = delays
    second = down * (p - 1) + turns[0]
    third = second + up * (p - 1) + turns[1]
    fourth = third + back_down * (p - 1) + turns[2]
    lanes: Lanes = []
    for rank in range(p):
        early, late = rank, 2 * p - 1 - rank
        block = [
            (down * rank, F, early),
            (second + up * (p - 1 - rank), F, late),
            (third + back_down * rank, I, late),
            (fourth + back_up * (p - 1 - rank), I, early),
        ]
        free = set(range(_PERIOD)) - {slot % _PERIOD for slot, _, _ in block}
        # The weight gradients get the two slots that are left, in the order in which they wait the shortest.
        after = [block[3][0] + 1, block[2][0] + 1]
        waits = [[(slot - start) % _PERIOD for slot in sorted(free)] for start in after]
        straight = waits[0][0] + waits[1][1] <= waits[0][1] + waits[1][0]
        block.append((after[0] + waits[0][0 if straight else 1], W, early))
        block.append((after[1] + waits[1][1 if straight else 0], W, late))
        timed = [(slot + _PERIOD * i, kind, stage, i) for i in range(m) for slot, kind, stage in block]
        lanes.append([(kind, stage, i) for _, kind, stage, i in sorted(timed)])
    return lanes


def _half_lanes(p: int, m: int) -> Lanes:
    # These turns leave no slot to two operations, and of those that do so they have the shortest step.
    return _lanes(p, m, (2, 1, 2, 1), (1, 2, 5) if p % 2 else (5, 1, 1))


def _min_lanes(p: int, m: int) -> Lanes:
    return _lanes(p, m, (1, 1, 1, 1), (1, 1, 1) if p % 3 else (5, 1, 3))


def _half(shape: Shape) -> Program:
    return copies(shape, _half_lanes, stages=2 * shape.ranks)


def _min(shape: Shape) -> Program:
    return copies(shape, _min_lanes, stages=2 * shape.ranks)


V_HALF = Schedule(
    name="v-half",
    source="Pipeline Parallelism with Controllable Memory, NeurIPS 2024, section 3",
    program=_half,
    # p stages of two per rank: a rank keeps p / 2 + 3 activations, half of them for each of its stages.
    in_flight=lambda k, p, m: min(m, p // 4 + 2),
    refuses=refuses_v,
    place_of=v_place,
    chunks=2,
    splits_backward=True,
)

V_MIN = Schedule(
    name="v-min",
    source="Pipeline Parallelism with Controllable Memory, NeurIPS 2024, section 3",
    program=_min,
    in_flight=lambda k, p, m: min(m, p // 6 + 2),
    refuses=refuses_v,
    place_of=v_place,
    chunks=2,
    splits_backward=True,
)
