"""Which cluster a controller works with."""

from __future__ import annotations

from offcut.cluster.base import Cluster
from offcut.cluster.local.adapter import LocalCluster
from offcut.cluster.local.site import LocalSite, ensure_running
from offcut.cluster.slurm.adapter import SlurmCluster
from offcut.cluster.slurm.site import SlurmSite
from offcut.service.paths import StatePaths

Site = LocalSite | SlurmSite


async def connect(site: Site, paths: StatePaths) -> Cluster:
    """A cluster that answers; what a controller before us held there is held again. InputError, ClusterError."""
    if isinstance(site, LocalSite):
        await ensure_running(paths.cluster, site)
        local = LocalCluster(paths.cluster, paths.address, paths.token)
        await local.connect()
        return local
    slurm = SlurmCluster(site, paths.cluster, paths.root, paths.address, paths.token)
    await slurm.connect()
    return slurm
