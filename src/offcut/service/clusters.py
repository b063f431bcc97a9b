"""Which cluster a controller works with."""

from __future__ import annotations

from dataclasses import replace

from offcut.cluster.base import Cluster
from offcut.cluster.local.adapter import LocalCluster
from offcut.cluster.local.site import LocalSite, ensure_running
from offcut.cluster.slurm.site import SlurmSite
from offcut.control import Settings
from offcut.service.paths import StatePaths
from offcut.wire.credentials import Credentials

Site = LocalSite | SlurmSite


def settings_for(site: Site, settings: Settings) -> Settings:
    """Return the settings for a controller of this site.

    On Slurm a node's pilot may pend for `pending_limit_s` before it boots, and `boot_limit_s` counts from the claim.
    """
    if isinstance(site, LocalSite):
        return settings
    return replace(settings, boot_limit_s=settings.boot_limit_s + site.pending_limit_s)


async def connect(site: Site, paths: StatePaths, credentials: Credentials, settings: Settings) -> Cluster:
    """Return the cluster once it answers, with the nodes that an earlier controller held. InputError, ClusterError."""
    limits = (
        *("--empty-limit-s", str(settings.empty_limit_s)),
        *("--orphan-limit-s", str(settings.orphan_limit_s)),
    )
    if isinstance(site, LocalSite):
        await ensure_running(paths.cluster, replace(site, agent_arguments=(*site.agent_arguments, *limits)))
        local = LocalCluster(paths.cluster, paths.address, credentials)
        await local.connect()
        return local
    from offcut.cluster.slurm.adapter import SlurmCluster  # takes a while to load

    slurm = SlurmCluster(site, paths.pilots, paths.shared, paths.address, credentials, agent_arguments=limits)
    await slurm.connect()
    return slurm
