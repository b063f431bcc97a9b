"""A simulated Slurm: a partition of pilots that a main queue preempts, behind the commands that the adapter runs."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from offcut.cluster.slurm.account import user_name
from offcut.cluster.slurm.commands import CommandError, Commands
from offcut.cluster.slurm.records import ENDED
from offcut.testing.campaign.commons import Commons
from offcut.testing.campaign.nodes import SimulatedAgent
from offcut.testing.campaign.simulated_loop import Process

#: From SIGTERM to SIGKILL.
_KILL_WAIT_S = 5.0
#: Slurm shows a job for this long after its end.
_MIN_JOB_AGE_S = 60.0
_CONFIG = "PreemptType = preempt/partition_prio\nPreemptMode = CANCEL\nSlurmUser = slurm(64030)\nClusterName = c\n"


@dataclass(slots=True, kw_only=True)
class _Job:
    """A pilot, or what asks for nodes."""

    id: str
    name: str
    node: str
    state: str = "PENDING"
    reason: str = "Priority"
    #: What it ends as, once its agent has ended.
    ends_as: str = "COMPLETED"
    begin_s: float = 0.0
    start_s: float | None = None
    limit_s: float = 60.0
    ended_s: float | None = None
    agent: SimulatedAgent | None = None


class SlurmQueue:
    """The queue's side: which nodes the main queue uses, and the pilots. `start_agent` starts a pilot's agent."""

    def __init__(self, world: Commons, nodes: Sequence[str], start_agent: Callable[[str, str], SimulatedAgent]) -> None:
        self._world = world
        self._start = start_agent
        self.process = Process("slurmctld", world.loop, world.wall_of("slurmctld"))
        #: Nodes that the main queue uses, or waits for.
        self._main = dict.fromkeys(nodes, True)
        self._jobs: dict[str, _Job] = {}
        self.process.spawn(self._schedule())

    # -- the main queue -----------------------------------------------------------------------------------------------

    def change(self, idle: Sequence[str] = (), wanted: Sequence[str] = ()) -> None:
        """Let main jobs end on nodes, and others need nodes: these preempt pilots."""
        self._world.trace.event("queue", f"idle {list(idle)} wanted {list(wanted)}")
        self.process.call(self._change, idle, wanted)

    def _change(self, idle: Sequence[str], wanted: Sequence[str]) -> None:
        for node in idle:
            self._main[node] = False
        for node in wanted:
            self._main[node] = True
            job = self._running_on(node)
            if job is not None and job.state == "RUNNING":
                self._end(job, "PREEMPTED")

    def _running_on(self, node: str) -> _Job | None:
        found = (job for job in self._jobs.values() if job.node == node and job.state in ("RUNNING", "COMPLETING"))
        return next(found, None)

    # -- pilots -------------------------------------------------------------------------------------------------------

    async def _schedule(self) -> None:
        """Start pending pilots on idle nodes, and forget jobs that ended long ago."""
        while True:
            await asyncio.sleep(self._world.draw("slurm", 0.3, 1.0))
            now_s = self._world.loop.time()
            for job in list(self._jobs.values()):
                if job.ended_s is not None and now_s - job.ended_s > _MIN_JOB_AGE_S:
                    del self._jobs[job.id]
                elif job.state == "PENDING" and now_s >= job.begin_s and self._is_free(job.node):
                    job.state, job.start_s, job.reason = "RUNNING", now_s, "None"
                    job.agent = self._start(job.node, job.id)
                    self.process.spawn(self._follow(job, job.agent))

    def _is_free(self, node: str) -> bool:
        return not self._main.get(node, True) and self._running_on(node) is None

    async def _follow(self, job: _Job, agent: SimulatedAgent) -> None:
        await agent.wait()
        job.state = "COMPLETING"
        await asyncio.sleep(self._world.draw("epilog", 0.05, 1.0))
        job.state, job.ended_s = job.ends_as, self._world.loop.time()

    def _end(self, job: _Job, ends_as: str) -> None:
        now_s = self._world.loop.time()
        if job.state == "PENDING":
            job.state, job.ended_s = ends_as, now_s
        elif job.state == "RUNNING" and job.agent is not None:
            job.state, job.ends_as = "COMPLETING", ends_as
            job.agent.signal(signal.SIGTERM)
            self.process.call(self._kill, job.agent, after_s=_KILL_WAIT_S)

    def _kill(self, agent: SimulatedAgent) -> None:
        if agent.process.alive:
            agent.kill()

    # -- commands -----------------------------------------------------------------------------------------------------

    def sbatch(self, command: Sequence[str]) -> str:
        """Submit a job. Return what sbatch prints."""
        options = dict(word[2:].partition("=")[::2] for word in command if word.startswith("--"))
        if "test-only" in options:
            return ""
        begin = re.search(r"\d+", options.get("begin", ""))
        job = _Job(
            id=str(self._world.next_pid()),
            name=options["job-name"],
            node=options.get("nodelist", ""),
            begin_s=self._world.loop.time() + (float(begin[0]) if begin else 0.0),
            limit_s=60.0 * int(options["time"]),
        )
        self._jobs[job.id] = job
        return f"{job.id}\n"

    def scancel(self, jobs: Sequence[str]) -> str:
        """Cancel jobs."""
        for job in jobs:
            if job in self._jobs:
                self._end(self._jobs[job], "CANCELLED")
        return ""

    def sinfo(self) -> str:
        """Return the nodes: `NODE_FORMAT`."""
        lines = []
        for node, main in self._main.items():
            held = self._running_on(node)
            state = "allocated" if held is not None or main else "idle"
            lines.append(f"{node}|{state}")
        return "\n".join(lines) + "\n"

    def squeue(self, mark: str, *, ended: bool) -> str:
        """Return the jobs: `JOB_FORMAT`, or the one with names if there is a mark."""
        rows = []
        for job in self._jobs.values():
            if ended or job.state not in ENDED:
                start_s = "N/A" if job.start_s is None else str(int(self._wall_s(job.start_s)))
                end_s = "N/A" if job.start_s is None else str(int(self._wall_s(job.start_s + job.limit_s)))
                where = job.node if job.start_s is not None else ""
                row = f"{job.id}|{job.state}|idle|1|{where}|{job.node}||{start_s}|{end_s}|{user_name()}|{job.reason}"
                rows.append(f"{mark}{row}|N/A|10000" + (f"|acc|normal|{job.name}" if mark else ""))
        return "".join(f"{row}\n" for row in rows)

    def _wall_s(self, at_s: float) -> float:
        return self._world.wall_of("slurmctld").now_s() - self._world.loop.time() + at_s

    def partitions(self) -> str:
        """Return both partitions, as scontrol shows them."""
        nodes = ",".join(self._main)
        common = f"MaxTime=UNLIMITED Nodes={nodes} State=UP GraceTime=0"
        return (
            f"PartitionName=idle PriorityTier=1 PreemptMode=CANCEL {common}\n"
            f"PartitionName=main PriorityTier=10 PreemptMode=OFF {common}\n"
        )

    def node_setups(self) -> str:
        """Return the nodes, as scontrol shows them."""
        return "".join(f"NodeName={node} ActiveFeatures=(null) Gres=(null) State=IDLE\n" for node in self._main)


class SimulatedCommands(Commands):
    """Slurm's commands, as one controller runs them."""

    def __init__(self, world: Commons, queue: SlurmQueue) -> None:
        super().__init__(limit_s=5.0)
        self._world = world
        self._queue = queue

    async def run(self, command: Sequence[str], stdin: str = "") -> str:
        """See `Commands`."""
        world, trouble = self._world, self._world.slurm_trouble
        await asyncio.sleep(world.draw("slurm command", 0.005, 0.1))
        done = ""
        if trouble != "silent" or world.draw("slurm late", 0.0, 1.0) < 0.5:
            if trouble == "refuses" and command[0] == "sbatch":
                world.trace.fault("slurm refuses", "")
                raise CommandError("sbatch failed: try again", "try again", refused=True)
            done = self._answer(command)
        if trouble == "silent":  # the command may have been carried out all the same
            world.trace.fault("slurm silent", command[0])
            await asyncio.sleep(5.0)
            raise CommandError(f"{command[0]} did not answer.", "", refused=False)
        await asyncio.sleep(world.draw("slurm command", 0.005, 0.1))
        return done

    def _answer(self, command: Sequence[str]) -> str:
        queue, world = self._queue, self._world
        match command[0], command[1:3]:
            case "sbatch", _:
                world.trace.event("slurm", " ".join(command))
                return queue.sbatch(command)
            case "scancel", _:
                world.trace.event("slurm", " ".join(command))
                return queue.scancel(command[2:])
            case "squeue", _:
                shown = next(word for word in command if word.startswith("--format="))
                mark = shown.removeprefix("--format=").partition("%")[0]
                if mark:
                    world.trace.event("slurm", "squeue")
                return queue.squeue(mark, ended="--states=all" in command)
            case "sinfo", _:
                return queue.sinfo()
            case "scontrol", ("show", "config"):
                return _CONFIG
            case "scontrol", ("show", "partition"):
                return queue.partitions()
            case "scontrol", ("show", "node"):
                return queue.node_setups()
        return ""
