"""Finds the limits of accounting that hold for pilots: of their user, account, and QOS. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from offcut.cluster.slurm.records import QosRow
from offcut.cluster.slurm.site import SlurmSite
from offcut.cluster.slurm.slurm_config import SlurmSetup


@dataclass(frozen=True, slots=True)
class SubmitLimit:
    """How many jobs accounting allows to be submitted at once, and whose limit it is."""

    jobs: int
    of: str


def submit_limit(setup: SlurmSetup, site: SlurmSite) -> SubmitLimit | None:
    """Return the least limit of submitted jobs that pilots count against; None for no limit.

    It may be the limit of our association, of its account or one above it, of the pilot's QOS, or of the partition's.
    """
    association = setup.association(site.account, site.partition)
    known: list[tuple[int | None, str]] = []
    if association is not None:
        known.append((association.max_submit_jobs, f"the user '{setup.user}' (MaxSubmitJobs)"))
        known += [
            (row.max_submit_jobs, f"the account '{row.name}' (GrpSubmitJobs)")
            for row in setup.lineage(association.account)
        ]
    for row in _qos_of_pilots(setup, site):
        per_user, per_account, together = row.max_submit_jobs
        known += [
            (per_user, f"the QOS '{row.name}' (MaxSubmitJobsPerUser)"),
            (per_account, f"the QOS '{row.name}' (MaxSubmitJobsPerAccount)"),
            (together, f"the QOS '{row.name}' (GrpSubmitJobs)"),
        ]
    limits = [SubmitLimit(jobs, of) for jobs, of in known if jobs is not None]
    return min(limits, key=lambda limit: limit.jobs, default=None)


@dataclass(frozen=True, slots=True)
class WallLimit:
    """The longest time limit, seconds, that accounting allows a pilot, and whose limit it is."""

    max_s: float
    of: str


def wall_limit(setup: SlurmSetup, site: SlurmSite) -> WallLimit | None:
    """Return the least MaxWall of the pilot's QOS, the partition's QOS and our association; None for no limit."""
    association = setup.association(site.account, site.partition)
    known = [
        *((row.max_wall_s, f"the QOS '{row.name}'") for row in _qos_of_pilots(setup, site)),
        *([(association.max_wall_s, f"the account '{association.account}'")] if association else ()),
    ]
    limits = [WallLimit(max_s, of) for max_s, of in known if max_s is not None]
    return min(limits, key=lambda limit: limit.max_s, default=None)


def _qos_of_pilots(setup: SlurmSetup, site: SlurmSite) -> list[QosRow]:
    """Return the QOS whose limits hold for pilots: their own, and the partition's."""
    own = setup.qos_of(site.qos, site.account, site.partition)
    of_partition = setup.qos.get(setup.partitions[site.partition].qos)
    return [row for row in (own, of_partition) if row is not None]
