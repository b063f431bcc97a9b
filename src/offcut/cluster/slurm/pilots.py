"""A pilot: the one-node job that holds a claimed node and runs the agent. What it is made of, and what became of it."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from offcut.cluster.slurm.records import ENDED, JobRow, PartitionRow, expand
from offcut.cluster.slurm.site import NAME, SlurmSite
from offcut.cluster.slurm.waiting_jobs import PILOT_NICE
from offcut.wire.worker_env import ENV_WORKER_ENV

#: Of these a repetition means that something is wrong with the pilot, not with its node's fortune.
_FAILURES = frozenset({"FAILED", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"})


@dataclass(slots=True)
class Pilot:
    """A pilot of ours. `job` is None until sbatch has answered."""

    node: str
    job: str | None
    submitted_s: float
    running: bool = False
    #: Seen pending.
    waited: bool = False
    #: When it was to end, when it began to run.
    first_end_s: float | None = None
    #: The controller has been told that the queue wants the node.
    wanted: bool = False
    #: We have given the node up: cancel it, again if need be, until Slurm shows that it has ended.
    leaving: bool = False


def pilot_name(shared: Path) -> str:
    """The job name of one controller's pilots: another's, of the same account, are none of ours."""
    return f"offcut-{hashlib.sha256(str(shared).encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotPlan:
    """All that pilots of one controller have in common."""

    site: SlurmSite
    name: str
    #: Where pilots write their logs, on a file system that the nodes share with us.
    logs: Path
    address_file: Path
    #: Where each pilot's credential is, `JOBID.token`.
    credentials: Path
    #: The agent runs in a job step of its own rather than in place of the batch script.
    step: bool = False
    #: What else agents are told.
    agent_arguments: tuple[str, ...] = ()

    def command(self, node: str, limit_s: float) -> list[str]:
        """sbatch's argument list; the script comes on its standard input."""
        site = self.site
        options = {
            "job-name": self.name,
            "partition": site.partition,
            "nodelist": node,
            "nodes": "1",
            "ntasks": "1",
            "time": str(int(limit_s // 60)),
            # What crashes there leaves its traces there, and not where the controller was started.
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

    def script(self, node: str) -> str:
        """The batch script. The agent takes the shell's place, so that nothing stands between it and Slurm's signals.

        The credential's file is named; the credential itself appears nowhere. It is written when Slurm has told the
        job's number: the agent waits for it.
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
        run = ["srun", "--ntasks=1", "--nodes=1", "--mem=0", "--kill-on-bad-exit=1"] if self.step else []
        lines = [
            "#!/bin/sh",
            site.setup,
            # In the environment, which other users of a node cannot see as they can arguments.
            f"export {ENV_WORKER_ENV}={shlex.quote(json.dumps(site.worker_env))}" if site.worker_env else "",
            # A pilot before this one that was killed left its socket's file.
            f"rm -f {shlex.quote(sockets)}-*.sock",
            f'exec {shlex.join([*run, *agent])} --pilot "$SLURM_JOB_ID" '
            f'--token-file {shlex.quote(str(self.credentials))}/"$SLURM_JOB_ID".token '
            f'--socket {shlex.quote(sockets)}-"$SLURM_JOB_ID".sock',
        ]
        return "\n".join(line for line in lines if line) + "\n"


def uses_step(site: SlurmSite, partition: PartitionRow) -> bool:
    """Whether pilots run their agent in a job step: when a GraceTime begins, steps are told, batch scripts are not."""
    return site.launch == "srun" or (site.launch == "auto" and partition.grace_s > 0)


def node_of(row: JobRow) -> str | None:
    """The node that a pilot is on or has to run on; None where Slurm does not say."""
    nodes = expand(row.nodes or row.required)
    return nodes[0] if len(nodes) == 1 else None


def takes(node: str) -> bool:
    """Whether a node's name is one that a pilot can be given; no site has others, and none would be passed on."""
    return re.fullmatch(NAME, node) is not None


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a pilot. `failure`: something is wrong, and the same may happen again."""

    what: Literal["waits", "runs", "gone"]
    wanted: bool = False
    failure: str = ""
    bench: bool = False


def fate(pilot: Pilot, row: JobRow | None) -> Fate:
    """What Slurm shows of a pilot, told apart; `row` is None where Slurm does not know it any more."""
    if row is None:
        return Fate("gone")
    if row.state == "PENDING":
        return Fate("waits")
    if row.state not in ENDED:
        return Fate("runs")
    if row.state == "PREEMPTED":
        return Fate("gone", wanted=True)
    if pilot.leaving:
        return Fate("gone")
    if row.state in _FAILURES:
        return Fate("gone", failure=f"pilot {row.id} on {pilot.node} ended as {row.state} ({row.reason})", bench=True)
    # Somebody cancelled it, or the node broke: either way the node is not ours to take again at once.
    return Fate("gone", bench=row.state in ("CANCELLED", "NODE_FAIL"))


def withdrawn(waiting: Sequence[Pilot], now_s: float, limit_s: float) -> list[Pilot]:
    """Pilots that have stayed pending on what looked like an idle node."""
    return [pilot for pilot in waiting if not pilot.leaving and now_s - pilot.submitted_s > limit_s]
