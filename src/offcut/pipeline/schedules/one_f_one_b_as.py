"""1F1B-AS (BaPipe): 1F1B on accelerators that stream a result to the next one while they compute it.

Step (M + N - 1)(F + B); rank i of 1..N keeps N - i + 1 micro-batches; the link must carry a / F bytes a second, or the
transfer is what takes the time.
"""

from __future__ import annotations

from offcut.pipeline.schedules.base import Schedule
from offcut.pipeline.schedules.linear import laid_out
from offcut.pipeline.schedules.one_f_one_b import one_f_one_b_depths, one_f_one_b_in_flight

ONE_F_ONE_B_AS = Schedule(
    name="1f1b-as",
    source="BaPipe, arXiv 2012.12544 (asynchronous accelerators)",
    program=laid_out(one_f_one_b_depths),
    depths=one_f_one_b_depths,
    in_flight=one_f_one_b_in_flight,
    sends="streaming",
)
