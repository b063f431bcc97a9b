"""Every schedule, by name."""

from __future__ import annotations

from offcut.errors import InputError
from offcut.pipeline.schedules.base import Schedule, Sends, Shape
from offcut.pipeline.schedules.chimera import CHIMERA, CHIMERA_2, CHIMERA_4, chimera
from offcut.pipeline.schedules.dual_pipe_v import DUAL_PIPE_V
from offcut.pipeline.schedules.fbp_as import FBP_AS, FBP_AS_STATIC
from offcut.pipeline.schedules.gpipe import GPIPE
from offcut.pipeline.schedules.interleaved import INTERLEAVED
from offcut.pipeline.schedules.link_warmup import LINK_WARMUP, link_depths
from offcut.pipeline.schedules.one_f_one_b import ONE_F_ONE_B
from offcut.pipeline.schedules.one_f_one_b_as import ONE_F_ONE_B_AS
from offcut.pipeline.schedules.one_f_one_b_sno import ONE_F_ONE_B_SNO
from offcut.pipeline.schedules.one_f_one_b_so import ONE_F_ONE_B_SO
from offcut.pipeline.schedules.pipedream import PIPEDREAM
from offcut.pipeline.schedules.pipedream_2bw import PIPEDREAM_2BW
from offcut.pipeline.schedules.terapipe import TERAPIPE
from offcut.pipeline.schedules.v_building_blocks import V_HALF, V_MIN
from offcut.pipeline.schedules.zero_bubble_h1 import ZERO_BUBBLE_H1
from offcut.pipeline.schedules.zero_bubble_v import ZERO_BUBBLE_V

SCHEDULES: dict[str, Schedule] = {
    schedule.name: schedule
    for schedule in (
        GPIPE,
        ONE_F_ONE_B,
        ONE_F_ONE_B_AS,
        FBP_AS,
        FBP_AS_STATIC,
        ONE_F_ONE_B_SNO,
        ONE_F_ONE_B_SO,
        INTERLEAVED,
        ZERO_BUBBLE_H1,
        ZERO_BUBBLE_V,
        V_HALF,
        V_MIN,
        DUAL_PIPE_V,
        CHIMERA,
        CHIMERA_2,
        CHIMERA_4,
        PIPEDREAM,
        PIPEDREAM_2BW,
        LINK_WARMUP,
        TERAPIPE,
    )
}


def schedule_named(name: str) -> Schedule:
    """Return the schedule of a name.

    Args:
        name: a key of `SCHEDULES`.

    Returns:
        The schedule.

    Raises:
        InputError: no schedule has this name; the message lists the known ones.
    """
    try:
        return SCHEDULES[name]
    except KeyError:
        raise InputError(f"unknown schedule '{name}'.", next_step=f"Known are {', '.join(SCHEDULES)}.") from None


__all__ = ["SCHEDULES", "Schedule", "Sends", "Shape", "chimera", "link_depths", "schedule_named"]
