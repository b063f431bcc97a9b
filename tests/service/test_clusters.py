"""What a controller's settings become on each kind of cluster."""

from __future__ import annotations

from offcut.cluster.local.schedule import Schedule
from offcut.cluster.local.site import LocalSite
from offcut.cluster.slurm.site import make_site
from offcut.control import Settings
from offcut.service import clusters


def test_the_time_that_a_pilot_pends_is_not_the_boot_of_its_node() -> None:
    slurm = make_site({"partition": "idle", "pending_limit_s": 300.0}, "test")
    assert clusters.settings_for(slurm, Settings(boot_limit_s=60.0)).boot_limit_s == 360.0
    local = LocalSite(schedule=Schedule.always_idle(["n01"]))
    assert clusters.settings_for(local, Settings(boot_limit_s=60.0)).boot_limit_s == 60.0
