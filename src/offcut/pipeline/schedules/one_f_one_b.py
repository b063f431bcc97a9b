"""1F1B with a flush (DAPPLE, PipeDream-flush): p - s forwards ahead, then one backward, one forward.

Step (m + p - 1)(F + B) without transfers; rank s keeps min(m, p - s) micro-batches. Transfers overlap computing, but
nothing is ahead to hide them behind: with c per hop the steady period is about (F + B) + 2 c (p - 1) / p.
"""

from __future__ import annotations

from offcut.pipeline.schedules.base import Schedule, Shape
from offcut.pipeline.schedules.linear import downstream, laid_out


def one_f_one_b_depths(shape: Shape) -> list[int]:
    """Return the depths of plain 1F1B, which several schedules share: the ranks from each stage to the end.

    Args:
        shape: the pipeline.

    Returns:
        The depth of each stage, shape (ranks,).
    """
    return [downstream(shape, s) for s in range(shape.ranks)]


def one_f_one_b_in_flight(k: int, p: int, m: int) -> int:
    """Return min(m, k), the micro-batches that 1F1B keeps in flight. For `Schedule.in_flight`.

    Args:
        k: the stage's number from the end, from 1.
        p: the number of stages.
        m: the number of micro-batches.
    """
    del p
    return min(m, k)


ONE_F_ONE_B = Schedule(
    name="1f1b",
    source="DAPPLE, PPoPP 2021; PipeDream-flush, ICML 2021",
    program=laid_out(one_f_one_b_depths),
    depths=one_f_one_b_depths,
    in_flight=one_f_one_b_in_flight,
)
