"""Which scaling curve and which resize costs count for a job: one rule each, used by every part of `control`."""

from __future__ import annotations

from offcut.advisor import load
from offcut.control.state import JobState, State
from offcut.model import Job, ScalingCurve, Sizes, amdahl


def learns(state: State) -> bool:
    """Return whether a curve model estimates curves, so that not only those that jobs come with are used."""
    return state.settings.profiler != "oracle"


def measures(state: State) -> bool:
    """Return whether the curve model needs measured throughput."""
    return load(state.settings.profiler).learns


def curve_of(state: State, job: JobState) -> ScalingCurve:
    """Return the curve that the allocation uses for the job."""
    return curve_that_counts(job.job, learned_curve(state, job))


def learned_curve(state: State, job: JobState) -> ScalingCurve | None:
    """Return the curve that the curve model estimates for the job; None if there is none."""
    history = state.histories.jobs.get(job.job.id)
    if history is None or history.posterior is None or not learns(state):
        return None
    return history.posterior.curve


def curve_that_counts(job: Job, learned: ScalingCurve | None) -> ScalingCurve:
    """Return the learned curve; else the one that the job came with; else Amdahl's law with 2 % serial work."""
    return learned or job.curve or amdahl(job.sizes.largest)


def unit_rate(curve: ScalingCurve, sizes: Sizes) -> float:
    """Return the rate at the job's smallest size: the unit of its throughput, in which jobs are compared."""
    return curve.rate_at(min(sizes.smallest, curve.max_nodes))


def costs_s(state: State, job: JobState) -> tuple[float, float]:
    """Return the seconds of progress that growing and shrinking cost: as the job says, as measured, or the settings'.

    A job without a node also waits for its first worker to start.
    """
    histories, its = state.histories, job.job
    grow_s, shrink_s = job.resize_costs_s(state.settings)
    if job.restarts:
        return grow_s, shrink_s  # its script says nothing from which they could be measured
    if its.grow_cost_s is None:
        grow_s = histories.cost_s(its.id, "grow", grow_s)
        if not job.nodes:
            grow_s += histories.cost_s(its.id, "start", 0.0)
    if its.shrink_cost_s is None:
        shrink_s = histories.cost_s(its.id, "shrink", shrink_s)
    return grow_s, shrink_s
