"""The history of all jobs: their observations, their families, and what resizes cost them. Plain data and its upkeep.

A family is everything under one key: a sweep that the user named, or a fingerprint (see `offcut.torch`). A job may have
several keys, the most telling first; it contributes to all and learns from the first that somebody else has been seen
in. A job that is another than its family by what both were measured at is cast out and counts for itself from then on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from offcut.advisor.curve_models import Evidence
from offcut.advisor.posterior import FIRST_SHAPE, Point, Posterior, Shape, log_efficiency, merged
from offcut.model import ScalingCurve, Sizes

#: Variances of an observation's logarithm: what no measuring helps against, one stretch's, one job's in its family.
_FLOOR = 0.02**2
_STRETCH = 0.05
_RELATIVE = 0.015**2
#: A job that never left its warm-up was measured this badly; a change makes older observations this much worse.
_UNSETTLED = 0.25**2
_SHIFTED = 0.05**2
#: Sizes nearer than this are compared with a family's; this many deviations of difference take a job out of it.
_SAME = math.log(1.15)
_SURPRISE = 4.0
#: How many jobs of a family are kept, the newest.
_FAMILY = 16
#: From this many families on, those that were joined first go, if no job of theirs is there any more.
_FAMILIES = 500
#: The weight of FIRST_SHAPE in the mean of shapes, in jobs.
_FIRST_WEIGHT = 3
_COSTS = 9
#: How many observations of one size a job keeps, the newest.
_PER_SIZE = 4


@dataclass(slots=True)
class Observation:
    """One measured segment: ln(samples/s per node) at `size`, in generation `generation`."""

    size: int
    log_efficiency: float
    variance: float
    generation: int


@dataclass(slots=True)
class Costs:
    """The newest measured costs, s."""

    grow_s: list[float] = field(default_factory=list)
    shrink_s: list[float] = field(default_factory=list)
    #: From the order to start a worker to its being ready.
    start_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class JobHistory:
    """What is known of one job. `keys` are its families, the most specific first."""

    keys: tuple[str, ...] = ()
    observations: list[Observation] = field(default_factory=list)
    cast_out: bool = False
    #: The estimate that the allocator uses; None: nothing has been measured that concerns the job.
    posterior: Posterior | None = None
    #: The data behind the posterior, as numbers: it is computed again when these change.
    basis: tuple[int, int, int] = (-1, -1, -1)
    #: How often its own observations have changed.
    version: int = 0
    probes: int = 0
    spent_node_s: float = 0.0
    settle_s: float | None = None
    costs: Costs = field(default_factory=Costs)
    #: Whether the user has been told that the curve that came with the job is wrong.
    contradicted: bool = False
    #: The job has ended long ago: its history is kept for its families alone.
    retired: bool = False


@dataclass(slots=True)
class JobHistories:
    jobs: dict[str, JobHistory] = field(default_factory=dict)
    #: Key to the jobs that were seen in it, oldest first, and how often anything in it has changed.
    families: dict[str, dict[str, None]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    #: The mean shape of jobs that ended, and their number.
    shape: Shape = FIRST_SHAPE
    ended: int = 0
    #: How long the last jobs ran, s.
    runs_s: list[float] = field(default_factory=list)
    #: The costs of all jobs, for jobs that have not been resized yet.
    costs: Costs = field(default_factory=Costs)

    def find_or_add(self, job: str) -> JobHistory:
        found = self.jobs.get(job)
        if found is None:
            found = self.jobs[job] = JobHistory()
        return found

    # -- families -------------------------------------------------------------------------------------------------

    def join(self, job: str, key: str) -> bool:
        """Put the job into a family, as its most specific one.

        Args:
            job: The job's id.
            key: The family: the name that its user gave it, or a fingerprint.

        Returns:
            False if the job was in that family already.
        """
        history = self.find_or_add(job)
        if key in history.keys:
            return False
        history.keys = (key, *history.keys)
        history.version += 1
        if history.observations:
            self._enter(job, history)
        return True

    def _enter(self, job: str, history: JobHistory) -> None:
        if history.cast_out:
            return
        for key in history.keys:
            if key not in self.families and len(self.families) >= _FAMILIES:
                self._drop_oldest_family()
            members = self.families.setdefault(key, {})
            members.setdefault(job, None)
            self.versions[key] = self.versions.get(key, 0) + 1
            while len(members) > _FAMILY:
                oldest = next(iter(members))
                del members[oldest]
                self._drop_if_unused(oldest)

    def _leave(self, job: str, history: JobHistory) -> None:
        history.cast_out = True
        for key in history.keys:
            if self.families.get(key, {}).pop(job, "never") != "never":
                self.versions[key] += 1

    def family_key(self, job: str, history: JobHistory) -> str | None:
        """Return the most specific family in which another job has been measured.

        Args:
            job: The job's id.
            history: That job's history.

        Returns:
            The family's key; None if there is no such family, or the job does not belong to its families.
        """
        if history.cast_out:
            return None
        return next((key for key in history.keys if any(other != job for other in self.families.get(key, ()))), None)

    def family_points(self, job: str, history: JobHistory) -> tuple[Point, ...]:
        """Return the measurements of the job's relatives.

        Args:
            job: The job's id.
            history: That job's history.

        Returns:
            One point per size, by increasing size; the job's own measurements are left out.
        """
        key = self.family_key(job, history)
        if key is None:
            return ()
        others = [self.jobs[other] for other in self.families[key] if other != job]
        return merged([p for other in others for p in _points(other.observations, _RELATIVE)])

    # -- observations ---------------------------------------------------------------------------------------------

    def observe(
        self, job: str, *, generation: int, size: int, rate: float, spread: float, stretches: int, settled: bool
    ) -> bool:
        """Add a measured segment of the job's training.

        Args:
            job: The job's id.
            generation: The generation in which it was measured. A later segment of a generation replaces the earlier
        one.
            size: The number of nodes.
            rate: Samples/s of the whole job; greater than 0.
            spread: The standard deviation of single rates, relative to `rate`.
            stretches: How many rates `rate` is the median of.
            settled: Whether the warm-up had ended.

        Returns:
            False if the segment shows that the job does not belong to its family; then it has left it.
        """
        history = self.find_or_add(job)
        variance = _FLOOR + max(spread, _STRETCH) ** 2 / max(1, stretches) + (0.0 if settled else _UNSETTLED)
        seen = Observation(size, log_efficiency(size, rate), variance, generation)
        fits = not self._surprising(job, history, seen)
        if not fits:
            self._leave(job, history)
        # A later segment of one generation says the same with more certainty.
        history.observations = [
            other for other in history.observations if (other.generation, other.size) != (generation, size)
        ]
        history.observations.append(seen)
        alike = [other for other in history.observations if other.size == size]
        if len(alike) > _PER_SIZE:
            history.observations.remove(alike[0])
        history.version += 1
        self._enter(job, history)
        return fits

    def shift(self, job: str, *, size: int, rate: float) -> float:
        """Adapt the job's older observations to a rate that has changed: their shape stays, their level moves.

        Args:
            job: The job's id.
            size: The number of nodes at which the new rate was measured.
            rate: The new rate, samples/s of the whole job; greater than 0.

        Returns:
            The change, as a factor; 1 if the job had not been measured at that size.
        """
        history = self.find_or_add(job)
        before = [p.log_efficiency for p in merged(_points(history.observations)) if p.size == size]
        change = log_efficiency(size, rate) - before[0] if before else 0.0
        for seen in history.observations:
            seen.log_efficiency += change
            seen.variance += _SHIFTED
        history.version += 1
        # One probe more: what changed may have another shape.
        history.probes = min(history.probes, 2)
        self._leave(job, history)
        return math.exp(change)

    def _surprising(self, job: str, history: JobHistory, seen: Observation) -> bool:
        near = [p for p in self.family_points(job, history) if abs(math.log(p.size / seen.size)) <= _SAME]
        if not near:
            return False
        point = min(near, key=lambda p: abs(p.size - seen.size))
        # Efficiency may well differ a little between two sizes that are not the same.
        between = (0.1 * math.log(point.size / seen.size)) ** 2
        deviation = math.sqrt(point.variance + seen.variance + _RELATIVE + between)
        return abs(seen.log_efficiency - point.log_efficiency) > _SURPRISE * deviation

    def evidence(self, job: str, sizes: Sizes, given: ScalingCurve | None) -> Evidence:
        """Return all that a curve model may use about the job's scaling.

        Args:
            job: The job's id.
            sizes: The numbers of nodes that it may have.
            given: The curve in its job file, in any unit; None if it has none.

        Returns:
            The evidence, with points merged to one per size.
        """
        history = self.find_or_add(job)
        return Evidence(
            sizes=sizes,
            measured=merged(_points(history.observations)),
            family=self.family_points(job, history),
            shape=self.shape,
            given=given,
        )

    def basis(self, job: str, history: JobHistory) -> tuple[int, int, int]:
        """Return what an estimate for the job rests on, as numbers that change with it.

        Args:
            job: The job's id.
            history: That job's history.

        Returns:
            How often the job's and its family's observations have changed, and how many jobs have ended.
        """
        key = self.family_key(job, history)
        return history.version, 0 if key is None else self.versions[key], self.ended

    def end(self, job: str, run_s: float | None) -> None:
        """Update the histories after the end of a job.

        Args:
            job: The job's id; an unknown one changes nothing.
            run_s: How long it trained, in seconds; None if it did not come to its end.
        """
        history = self.jobs.get(job)
        if history is None:
            return
        if run_s is not None:
            self.runs_s = [*self.runs_s[-19:], run_s]
        seen = merged(_points(history.observations))
        if history.posterior is None or len(seen) < 2:
            return
        self.ended += 1
        self.shape = _mean_shape(self.shape, history.posterior, seen[-1].size, self.ended + _FIRST_WEIGHT)

    @property
    def typical_run_s(self) -> float | None:
        return median(self.runs_s) if self.runs_s else None

    def retire(self, job: str) -> None:
        """Note that the job is gone: what was learned of it stays while it is among the newest of its families."""
        history = self.jobs.get(job)
        if history is not None:
            history.retired = True
            self._drop_if_unused(job)

    def _drop_if_unused(self, job: str) -> None:
        history = self.jobs.get(job)
        if history is not None and history.retired and not any(job in self.families.get(k, ()) for k in history.keys):
            del self.jobs[job]

    def _drop_oldest_family(self) -> None:
        for key, members in self.families.items():
            if all(job not in self.jobs or self.jobs[job].retired for job in members):
                del self.families[key], self.versions[key]
                for job in members:
                    self._drop_if_unused(job)
                return

    # -- costs ----------------------------------------------------------------------------------------------------

    def note_cost(self, job: str, what: str, took_s: float) -> None:
        """Add a measured cost of a resize.

        Args:
            job: The job's id.
            what: What was measured: `grow`, `shrink` or `start`.
            took_s: Seconds.
        """
        for costs in (self.find_or_add(job).costs, self.costs):
            values: list[float] = getattr(costs, f"{what}_s")
            values.append(took_s)
            del values[:-_COSTS]

    def cost_s(self, job: str, what: str, otherwise_s: float) -> float:
        """Return the expected cost of a resize.

        Args:
            job: The job's id.
            what: `grow`, `shrink` or `start`.
            otherwise_s: What is returned if no job's cost has been measured, in seconds.

        Returns:
            Seconds: the median of the job's own costs, else that of all jobs' costs.
        """
        history = self.jobs.get(job)
        for costs in (None if history is None else history.costs, self.costs):
            values: list[float] = [] if costs is None else getattr(costs, f"{what}_s")
            if values:
                return sorted(values)[len(values) // 2]
        return otherwise_s


def _points(seen: Iterable[Observation], more: float = 0.0) -> list[Point]:
    return [Point(o.size, o.log_efficiency, o.variance + more) for o in seen]


def _mean_shape(shape: Shape, posterior: Posterior, largest_seen: int, weight: int) -> Shape:
    """Return the mean shape with one more job, as far as that job was measured."""
    rates = dict(zip(posterior.sizes, posterior.rate, strict=True))
    base = posterior.sizes[0]
    first = rates[base] / base
    if first <= 0:
        return shape  # a curve that was given may have a size at which nothing is trained
    found = list(shape)
    offset = shape[base.bit_length() - 1]
    for i in range(len(found)):
        n = 1 << i
        if rates.get(n, 0.0) > 0 and base < n <= largest_seen:
            found[i] += (offset + math.log(rates[n] / n / first) - found[i]) / weight
    # Beyond the largest measured size the last slope goes on.
    for i in range(1, len(found)):
        if (1 << i) > largest_seen:
            found[i] = found[i - 1] + (shape[i] - shape[i - 1])
    return tuple(found)
