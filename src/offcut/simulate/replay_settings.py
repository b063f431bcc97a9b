"""What a replay tells its controller: the settings, and the jobs of the list."""

from __future__ import annotations

from functools import lru_cache

from offcut.control import Settings
from offcut.model import Job, Sizes
from offcut.simulate.options import ReplayOptions
from offcut.traces.job_list import ListedJob


def settings_of(options: ReplayOptions) -> Settings:
    """Return the controller's settings in a replay with these options."""
    until_ready_s = options.cost.boot_s + options.cost.start_s
    limit_s = 60.0 + 10 * until_ready_s
    return Settings(
        horizon_s=options.horizon_s,
        max_jobs=options.concurrency,
        successor_lead_s=until_ready_s,
        placement=options.placement,
        profiler=options.profiler,
        cost_model="published" if options.accounting == "published" else "stall",
        boot_limit_s=limit_s,
        ready_limit_s=limit_s,
        # Here every resize comes to its end; a restart's takes far longer than this is by default.
        broken_wait_s=3600.0,
    )


def job_of(job_id: str, listed: ListedJob, options: ReplayOptions) -> Job:
    """Return the job as it is submitted. Its curve and its costs are given only if none has to be learned.

    Args:
        job_id: the id of the job.
        listed: the job in the job list.
        options: the options of the replay.
    """
    sizes = _sizes(listed.min_nodes, listed.max_nodes)
    if options.profiler != "oracle":
        return Job(
            id=job_id,
            name=job_id,
            command=("replay",),
            sizes=sizes,
            goal_samples=max(1, round(listed.samples)),
            family=listed.curve_name if options.families else None,
        )
    cost = options.cost
    return Job(
        id=job_id,
        name=job_id,
        command=("replay",),
        sizes=sizes,
        curve=listed.curve,
        grow_cost_s=listed.grow_cost_s if cost.grow_s is None else cost.grow_s,
        shrink_cost_s=listed.shrink_cost_s if cost.shrink_s is None else cost.shrink_s,
    )


@lru_cache(maxsize=1024)
def _sizes(smallest: int, largest: int) -> Sizes:
    return Sizes(tuple(range(smallest, largest + 1)))
