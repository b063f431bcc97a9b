"""Judges for which jobs Slurm preempts pilots at once. Pilots leave by themselves for the others. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from offcut.cluster.slurm import text
from offcut.cluster.slurm.records import JobRow, View
from offcut.cluster.slurm.site import SlurmSite
from offcut.cluster.slurm.slurm_config import SlurmSetup


@dataclass(frozen=True, slots=True)
class Preemptors:
    """The jobs for which Slurm preempts pilots at once."""

    #: Their QOS; None where the tiers of partitions decide.
    qos: frozenset[str] | None = None
    #: Pilots are exempt from preemption for a while (PreemptExemptTime).
    late: bool = False

    def preempt(self, job: JobRow, view: View) -> bool:
        """Return whether Slurm preempts pilots for this job at once."""
        if self.late:
            return False
        if self.qos is not None:
            return job.qos in self.qos
        rows = [view.partitions.get(name) for name in job.partitions]
        return any(row is None or row.priority_tier > view.partition.priority_tier for row in rows)


def preemptors(setup: SlurmSetup, site: SlurmSite) -> Preemptors:
    """Return for which jobs Slurm preempts the pilots of this site."""
    ours = setup.qos_of(site.qos, site.account, site.partition)
    late = bool(exempt_time(setup, site).s)
    if setup.config.get("PreemptType") != "preempt/qos" or ours is None:
        return Preemptors(None, late)
    return Preemptors(frozenset(row.name for row in setup.qos.values() if ours.name in row.preempts), late)


@dataclass(frozen=True, slots=True)
class ExemptTime:
    """How long a pilot must have run before Slurm preempts it, and whose setting that is."""

    s: float
    of: str


def exempt_time(setup: SlurmSetup, site: SlurmSite) -> ExemptTime:
    """Return for how long pilots are exempt from preemption: what their QOS says, else slurm.conf."""
    qos = setup.qos_of(site.qos, site.account, site.partition)
    if qos is not None and qos.exempt_s is not None:
        return ExemptTime(qos.exempt_s, f"the QOS '{qos.name}'")
    return ExemptTime(text.duration_s(setup.config.get("PreemptExemptTime", "NONE")) or 0.0, "slurm.conf")
