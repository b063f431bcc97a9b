"""What a Slurm of virtual nodes is like, and the configuration files that make Slurm so."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

#: Slurm's defaults start a submitted job after about three seconds; these after a tenth of a second.
FAST_SCHEDULER = (
    "sched_interval=1,sched_min_interval=0,batch_sched_delay=0,"
    "bf_interval=1,bf_resolution=1,bf_window=1440,bf_max_job_test=1000"
)

#: The daemon that serves the cluster; the others are named for their nodes.
CONTROLLER = "slurmctld"


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonHost:
    """A host that runs one of the daemons; `enter` begins a command line that runs a program there."""

    name: str
    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmTestbedConfig:
    """What the cluster is like. `lines` are added to slurm.conf or replace its lines; an empty value removes one."""

    names: tuple[str, ...] = tuple(f"n{i:02d}" for i in range(1, 9))
    cpus: int = 1
    memory_mib: int = 1000
    #: GPUs that slurm.conf claims for each node, or for each that is named; they do not exist.
    gpus: int | Mapping[str, int] = 0
    #: Jobs of `main` share nodes, as far as their cores go; by default each has its nodes for itself.
    shared: bool = False
    #: PreemptMode and GraceTime of the partition `idle`.
    preempt_mode: str = "CANCEL"
    grace_s: int = 0
    #: Added to the line of the partition `idle`, e.g. "AllowAccounts=physics".
    idle_options: str = ""
    #: Empty: Slurm's own defaults, as at a site that has changed nothing.
    scheduler: str = FAST_SCHEDULER
    lines: Mapping[str, str] = field(default_factory=dict)
    #: By daemon (CONTROLLER or a node's name): where it runs, if that is not this machine. All see one file system.
    hosts: Mapping[str, DaemonHost] = field(default_factory=dict)
    #: Workers are forked from one process with torch imported, because all nodes share this machine.
    worker_template: bool = False
    #: Modules that this process imports beside torch.
    preload: tuple[str, ...] = ()

    def gpus_of(self, node: str) -> int:
        """Return how many GPUs slurm.conf claims for the node."""
        return self.gpus.get(node, 0) if isinstance(self.gpus, Mapping) else self.gpus

    @classmethod
    def with_nodes(cls, nodes: int, **fields: Any) -> Self:
        """Return the configuration of `nodes` nodes, called n01, n02, …"""
        return cls(names=tuple(f"n{i:02d}" for i in range(1, nodes + 1)), **fields)

    def host(self, daemon: str) -> DaemonHost:
        """Return where this daemon runs."""
        return self.hosts.get(daemon) or DaemonHost(name=socket.gethostname().split(".")[0])


def write_configuration(directory: Path, config: SlurmTestbedConfig) -> None:
    """Write slurm.conf, and gres.conf if nodes have GPUs, into the cluster's directory."""
    (directory / "slurm.conf").write_text(_slurm_conf(directory, config))
    if config.gpus:
        _write_gpus(directory, config)


def _write_gpus(directory: Path, config: SlurmTestbedConfig) -> None:
    counts = {name: config.gpus_of(name) for name in config.names}
    for i in range(max(counts.values())):
        (directory / f"gpu{i}").touch()
    lines = (
        f"NodeName={name} Name=gpu File={directory}/gpu[0-{count - 1}]\n" for name, count in counts.items() if count
    )
    (directory / "gres.conf").write_text("".join(lines))


def _free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def _slurm_conf(directory: Path, config: SlurmTestbedConfig) -> str:
    user = getpass.getuser()
    ports = _free_ports(len(config.names) + 1)
    controller = config.host(CONTROLLER)
    settings = {
        "ClusterName": "private",
        "SlurmctldHost": f"{controller.name}({controller.address})",
        "SlurmctldPort": str(ports[0]),
        "SlurmUser": user,
        "SlurmdUser": user,
        "AuthType": "auth/none",
        "CredType": "cred/none",
        "StateSaveLocation": f"{directory}/state",
        "SlurmdSpoolDir": f"{directory}/spool/%n",
        "SlurmctldPidFile": f"{directory}/run/slurmctld.pid",
        "SlurmdPidFile": f"{directory}/run/%n.pid",
        "SlurmctldLogFile": f"{directory}/log/slurmctld.log",
        "SlurmdLogFile": f"{directory}/log/%n.log",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "SwitchType": "switch/none",
        "MpiDefault": "none",
        "ReturnToService": "2",
        "SlurmdParameters": "config_overrides",  # use CPUs and RealMemory below, not the hardware's
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": config.scheduler,
        "PriorityType": "priority/basic",
        "PreemptType": "preempt/none" if config.preempt_mode == "OFF" else "preempt/partition_prio",
        "PreemptMode": config.preempt_mode,
        "KillWait": "2",
        "MinJobAge": "300",
        "JobRequeue": "0",
        "PropagateResourceLimits": "NONE",
        "MailProg": "/bin/true",
        "GresTypes": "gpu" if config.gpus else "",
        **config.lines,
    }
    lines = [f"{name}={value}" for name, value in settings.items() if value]
    shape = f"CPUs={config.cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={config.cpus} ThreadsPerCore=1"
    for name, port in zip(config.names, ports[1:], strict=True):
        host = config.host(name)
        where = f"NodeName={name} NodeHostname={host.name} NodeAddr={host.address} Port={port}"
        gres = f" Gres=gpu:{count}" if (count := config.gpus_of(name)) else ""
        lines.append(f"{where} {shape} RealMemory={config.memory_mib}{gres} State=UNKNOWN")
    both = f"Nodes={','.join(config.names)} MaxTime=INFINITE State=UP"
    main = f"OverSubscribe={'NO' if config.shared else 'EXCLUSIVE'} PriorityTier=10 PreemptMode=OFF DefaultTime=10"
    idle = f"OverSubscribe=EXCLUSIVE PriorityTier=1 PreemptMode={config.preempt_mode} GraceTime={config.grace_s}"
    lines += [
        f"PartitionName=main {both} Default=YES {main}",
        f"PartitionName=idle {both} DefaultTime=60 {idle} {config.idle_options}",
    ]
    return "\n".join(lines) + "\n"
