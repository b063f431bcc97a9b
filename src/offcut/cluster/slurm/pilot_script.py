"""A pilot: the one-node batch job that holds a claimed node and runs the agent. Its name, options and script. Pure."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from offcut.cluster.slurm.records import OUT_OF_SERVICE, JobRow, NodeRow, PartitionRow, expand
from offcut.cluster.slurm.site import NAME, SlurmSite
from offcut.cluster.slurm.waiting_jobs import PILOT_NICE
from offcut.wire.worker_env import ENV_WORKER_ENV


def pilot_name(shared: Path) -> str:
    """Return the job name of one controller's pilots, which tells them from another controller's."""
    return f"offcut-{hashlib.sha256(os.path.normpath(shared).encode()).hexdigest()[:8]}"


def is_pilot_name(name: str) -> bool:
    """Return whether the job name is one that controllers give their pilots."""
    return re.fullmatch(r"offcut-[0-9a-f]{8}", name) is not None


def pilot_comment(shared: Path) -> str:
    """Return what a pilot's comment says: that it is offcut's, and the host and directory of its controller."""
    said = f"offcut pilot of the controller on {socket.gethostname()}, {shared}"
    return "".join(letter if letter.isprintable() else "?" for letter in said)[:500]


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotOptions:
    """All that pilots of one controller have in common."""

    site: SlurmSite
    name: str
    #: The comment by which `squeue --format=%k` and sacct show whose pilots these are.
    comment: str = ""
    #: Where pilots write their logs, on a file system that the nodes share with us.
    logs: Path
    address_file: Path
    #: Where each pilot's credential is, `JOBID.token`.
    credentials: Path
    #: The agent runs in a job step of its own rather than in place of the batch script.
    step: bool = False
    #: Further options of agents.
    agent_arguments: tuple[str, ...] = ()

    def command(self, node: str, limit_s: float) -> list[str]:
        """Return sbatch's argument list; the script comes on its standard input."""
        site = self.site
        options = {
            "job-name": self.name,
            "partition": site.partition,
            "nodelist": node,
            "nodes": "1",
            "ntasks": "1",
            "time": str(int(limit_s // 60)),
            # A process that crashes leaves its core file there, and not where the controller was started.
            "comment": self.comment,
            "chdir": str(self.logs),
            "output": str(self.logs / "%j.log"),
            "account": site.account,
            "qos": site.qos,
            "constraint": site.constraint,
            "gres": site.gres,
            # Every other job of its partition goes first.
            "nice": str(PILOT_NICE),
        }
        given = [f"--{name}={value}" for name, value in options.items() if value]
        return ["sbatch", "--parsable", "--exclusive", "--mem=0", "--no-requeue", *given]

    def request_command(self, nodes: int, due_s: float) -> list[str]:
        """Return sbatch's argument list for a job that asks other controllers for `nodes` nodes and is due after
        `due_s`.
        """
        options = {
            "job-name": self.name,
            "partition": self.site.partition,
            "nodes": str(nodes),
            "time": "1",
            "begin": f"now+{due_s:.0f}",
            "comment": f"asks for {nodes} nodes for the {self.comment}",
            "chdir": str(self.logs),
            "output": "/dev/null",
            "account": self.site.account,
            "qos": self.site.qos,
            "nice": str(PILOT_NICE),
        }
        return [
            "sbatch",
            "--parsable",
            "--no-requeue",
            *(f"--{name}={value}" for name, value in options.items() if value),
        ]

    def script(self, node: str) -> str:
        """Return the batch script. It ends with exec, so that Slurm's signals reach the agent and not a shell.

        The script names the credential's file, and does not contain the credential. The file is written when Slurm has
        told the job's number; the agent waits for it.
        """
        site = self.site
        sockets = f"{site.node_dir}/{self.name}-{node}"
        agent = [
            *(site.python, "-m", "offcut.agent", "--node", node),
            *("--address-file", str(self.address_file)),
            *("--leave-limit-s", str(site.leave_limit_s)),
            *self.agent_arguments,
            *(("--template", str(site.worker_template)) if site.worker_template else ()),
        ]
        run = (
            ["srun", "--ntasks=1", "--nodes=1", "--mem=0", "--cpu-bind=none", "--kill-on-bad-exit=1"]
            if self.step
            else []
        )
        lines = [
            "#!/bin/sh",
            site.setup,
            # In the environment, which other users of a node cannot see as they can arguments.
            f"export {ENV_WORKER_ENV}={shlex.quote(json.dumps(site.worker_env))}" if site.worker_env else "",
            # An earlier pilot that was killed may have left its socket's file.
            f"rm -f {shlex.quote(sockets)}-*.sock",
            f'exec {shlex.join([*run, *agent])} --pilot "$SLURM_JOB_ID" '
            f'--token-file {shlex.quote(str(self.credentials))}/"$SLURM_JOB_ID".token '
            f'--socket {shlex.quote(sockets)}-"$SLURM_JOB_ID".sock',
        ]
        return "\n".join(line for line in lines if line) + "\n"


def uses_step(site: SlurmSite, partition: PartitionRow) -> bool:
    """Return whether pilots run their agent in a job step: a GraceTime is signalled to steps, not to batch scripts."""
    return site.launch == "srun" or (site.launch == "auto" and partition.grace_s > 0)


def node_of(row: JobRow) -> str | None:
    """Return the node that a pilot is on or has to run on; None if Slurm does not say."""
    nodes = expand(row.nodes or row.required)
    return nodes[0] if len(nodes) == 1 else None


def may_pass(said: str, nodes: Iterable[NodeRow]) -> bool:
    """Return whether Slurm's refusal may pass by itself: a limit of submissions, or no node is in service now."""
    if re.search(r"submit ?(job)? ?limit", said, re.IGNORECASE):
        return True
    in_service = any(row.state in ("idle", "allocated", "mixed") and not row.flags & OUT_OF_SERVICE for row in nodes)
    return "node configuration is not available" in said and not in_service


def is_valid_node_name(node: str) -> bool:
    """Return whether the node's name can be given to sbatch. Real nodes have no other names."""
    return re.fullmatch(NAME, node) is not None
