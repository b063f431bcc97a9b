"""The results of a replay, each with its physical limit. Formulae: docs/metrics.md."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offcut.simulate.event_loop import EventLoop
    from offcut.simulate.options import ReplayOptions
    from offcut.simulate.training import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The uses and losses of the idle node-time, as shares of it; they add up to 1."""

    work: float
    grow_stall: float
    reclaim_stall: float
    shrink_stall: float
    #: Nodes of a job that are not yet in its membership: they boot, or their workers start.
    boot: float
    #: Work lost with a job's last node, done again.
    redone: float
    #: The jobs' nodes could have done more if shared out or placed otherwise, every instant, at no cost.
    misallocation: float
    #: The loss by sizes above one node even in the best case, because curves bend.
    scaling: float
    #: Nodes that the running jobs could not use.
    no_job: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayMetrics:
    """Figures of one replay; times in s, work in node-seconds of each job's own one-node rate."""

    start_s: float
    end_s: float
    #: Idle node-hours, the limit of `used_node_h`.
    idle_node_h: float
    #: Node-hours that jobs held.
    used_node_h: float
    work_node_h: float
    #: Zero-cost optimum of the running jobs: the limit of `work_node_h`.
    fluid_node_h: float
    #: work / fluid optimum (limit 1).
    uf: float
    #: work rate / the same jobs' rate on a static machine of equal node-time with free resizes; None: not compared.
    us: float | None
    #: work / idle node-time, and its limit for the running jobs.
    work_share: float
    work_share_limit: float
    samples: float
    shares: Shares
    #: The same losses as shares of the fluid optimum.
    fluid_losses: dict[str, float]
    jobs_submitted: int
    jobs_started: int
    jobs_finished: int
    turnaround_mean_s: float | None
    turnaround_median_s: float | None
    wait_mean_s: float | None
    resizes: int
    reclaims: int
    #: Reclaims of a job's last node.
    last_node_reclaims: int
    resizes_per_job: float
    reclaims_per_job: float
    #: Node-time at sizes that were tried to measure them, as a share of the idle node-time.
    probing_share: float
    instants: int
    events: int
    #: Processor seconds of the replay, and trace instants per processor second.
    cpu_s: float
    events_per_s: float

    def as_dict(self) -> dict[str, Any]:
        """Return the metrics as a JSON value."""
        return asdict(self)


def measure(
    loop: EventLoop,
    options: ReplayOptions,
    start_s: float,
    end_s: float,
    *,
    instants: int,
    cpu_s: float,
    static_rate: float | None,
) -> ReplayMetrics:
    """Compute the metrics of a replay that has ended.

    Args:
        loop: the replay's loop, finished.
        options: what the replay assumed.
        start_s: the start of the replayed time, in seconds.
        end_s: its end, in seconds.
        instants: the number of trace instants.
        cpu_s: processor seconds of the replay.
        static_rate: the rate of the same jobs on a static machine (one-node rates); None: not compared.

    Returns:
        The metrics.
    """
    accounts = loop.accounts
    trainings = list(loop.trainings.values())
    started = [training for training in trainings if training.started_s is not None]
    ended = [training for training in trainings if training.ended_s is not None]
    work = sum(training.work for training in trainings)
    parts = {
        "grow_stall": sum(training.stalled["grow"] for training in trainings),
        "reclaim_stall": sum(training.stalled["reclaim"] for training in trainings),
        "shrink_stall": sum(training.stalled["shrink"] for training in trainings),
        "boot": sum(training.waiting for training in trainings),
        "redone": sum(training.redone for training in trainings),
    }
    parts["misallocation"] = accounts.fluid - work - sum(parts.values())
    idle_s, fluid = max(accounts.idle_s, 1e-9), max(accounts.fluid, 1e-9)
    shares = {name: value / idle_s for name, value in parts.items()}
    turnarounds = [(training.ended_s or 0.0) - training.submit_s for training in ended]
    waits = [(training.started_s or 0.0) - training.submit_s for training in started]
    resizes, reclaims = (sum(getattr(t, name) for t in trainings) for name in ("resizes", "reclaims"))
    return ReplayMetrics(
        start_s=start_s,
        end_s=end_s,
        idle_node_h=accounts.idle_s / 3600,
        used_node_h=accounts.used_s / 3600,
        work_node_h=work / 3600,
        fluid_node_h=accounts.fluid / 3600,
        uf=work / fluid,
        us=None if static_rate is None else work / (end_s - start_s) / max(static_rate, 1e-12),
        work_share=work / idle_s,
        work_share_limit=accounts.fluid / idle_s,
        samples=sum(_samples(training) for training in trainings),
        shares=Shares(
            work=work / idle_s,
            **shares,
            scaling=(accounts.usable_s - accounts.fluid) / idle_s,
            no_job=(accounts.idle_s - accounts.usable_s) / idle_s,
        ),
        fluid_losses={name: value / fluid for name, value in parts.items()},
        jobs_submitted=len(trainings),
        jobs_started=len(started),
        jobs_finished=len(ended),
        turnaround_mean_s=statistics.fmean(turnarounds) if turnarounds else None,
        turnaround_median_s=statistics.median(turnarounds) if turnarounds else None,
        wait_mean_s=statistics.fmean(waits) if waits else None,
        resizes=resizes,
        reclaims=reclaims,
        last_node_reclaims=sum(training.wipes for training in trainings),
        resizes_per_job=resizes / max(1, len(started)),
        reclaims_per_job=reclaims / max(1, len(started)),
        probing_share=sum(known.spent_node_s for known in loop.state.histories.jobs.values()) / idle_s,
        instants=instants,
        events=loop.events,
        cpu_s=cpu_s,
        events_per_s=instants / max(cpu_s, 1e-9),
    )


def _samples(training: Training) -> float:
    """Return the samples that a job trained on."""
    return training.work * (training.job.curve.rate_at(1) or 1.0)
