"""Which cluster a controller works with."""

from __future__ import annotations

from offcut.cluster.base import Cluster
from offcut.cluster.local.adapter import LocalCluster
from offcut.cluster.local.site import LocalSite, ensure_running
from offcut.cluster.slurm.adapter import SlurmCluster
from offcut.cluster.slurm.site import SlurmSite
from offcut.service.paths import StatePaths
from offcut.wire.credentials import Credentials

Site = LocalSite | SlurmSite


async def connect(site: Site, paths: StatePaths, credentials: Credentials) -> Cluster:
    """A cluster that answers; what a controller before us held there is held again. InputError, ClusterError."""
    if isinstance(site, LocalSite):
        await ensure_running(paths.cluster, site)
        local = LocalCluster(paths.cluster, paths.address, credentials)
        await local.connect()
        return local
    slurm = SlurmCluster(site, paths.cluster, paths.root, paths.address, credentials)
    await slurm.connect()
    return slurm
