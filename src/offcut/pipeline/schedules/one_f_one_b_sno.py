"""1F1B-SNO (BaPipe): synchronous 1F1B whose transfers do not overlap computing; sender and receiver meet and wait.

BaPipe's step: (M + N - 1)(F + B) + 2 (M + N - 2) SR. It is an upper bound of the rendezvous simulation, and less than
one SR above it for N >= 3. This is what `torch.distributed.pipelining.Schedule1F1B` does.
"""

from __future__ import annotations

from offcut.pipeline.schedules.base import Schedule, pipeline_only
from offcut.pipeline.schedules.linear import laid_out
from offcut.pipeline.schedules.one_f_one_b import one_f_one_b_depths, one_f_one_b_in_flight

ONE_F_ONE_B_SNO = Schedule(
    name="1f1b-sno",
    source="BaPipe, arXiv 2012.12544 (synchronous, no overlap)",
    program=laid_out(one_f_one_b_depths),
    depths=one_f_one_b_depths,
    in_flight=one_f_one_b_in_flight,
    refuses=pipeline_only,
    sends="blocking",
)
