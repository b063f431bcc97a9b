"""One snapshot of the queue, read by four commands that run side by side."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace

from offcut.cluster.slurm import schema, text
from offcut.cluster.slurm.account import user_name
from offcut.cluster.slurm.commands import Commands
from offcut.cluster.slurm.pilot_script import is_pilot_name
from offcut.cluster.slurm.records import ENDED, JobRow, NodeRow, PartitionRow, View, expand
from offcut.cluster.slurm.site import SlurmSite
from offcut.cluster.slurm.slurm_config import SlurmSetup, read_setup
from offcut.cluster.slurm.waiting_jobs import PILOT_NICE
from offcut.errors import InputError
from offcut.process import clocks

_JOBS = ("squeue", "--noheader", f"--format={text.JOB_FORMAT}")

#: Jobs that have not ended, those of the highest priority first; our pilots by job id; how many could not be read.
_Jobs = tuple[list[JobRow], dict[str, JobRow], int]


class QueueQuery:
    """Reads the queue as the site file says; `name` is the job name of our pilots."""

    def __init__(self, commands: Commands, site: SlurmSite, name: str) -> None:
        self._commands = commands
        self._site = site
        self._name = name
        #: The controller whose pilots they are.
        self.user = user_name()
        #: sinfo's text does not show which nodes are of the cloud.
        self._cloud: frozenset[str] = frozenset()
        self._version: tuple[int, int] | None = None

    async def snapshot(self) -> View:
        """Return what decisions need. ClusterError if a command fails or prints what cannot be read."""
        began_s, clock_s = clocks.wall_s(), clocks.steady_s()
        read_jobs = self._json_jobs if self._site.reading == "json" else self._text_jobs
        nodes, (jobs, own, unreadable), reservations, partitions = await asyncio.gather(
            self.nodes(),
            read_jobs(),
            self._commands.run(("scontrol", "show", "reservation", "--oneliner")),
            self.partitions(),
        )
        shown = {row.id: row for row in jobs if row.id in own}
        own = {
            id: replace(row, account=named.account, qos=named.qos) if (named := shown.get(id)) else row
            for id, row in own.items()
        }
        jobs = [row for row in jobs if row.id not in own]
        others = tuple(row for row in jobs if row.nice >= PILOT_NICE and is_pilot_name(row.name))
        theirs = {row.id for row in others}
        return View(
            time_s=began_s,
            nodes=nodes,
            waiting=tuple(row for row in jobs if row.state == "PENDING" and row.id not in theirs),
            own=own,
            others=others,
            reservations=tuple(text.read_reservations(reservations)),
            partition=partitions[self._site.partition],
            partitions=partitions,
            unreadable=unreadable,
            clock_s=clock_s,
            took_s=clocks.steady_s() - clock_s,
        )

    async def nodes(self) -> dict[str, NodeRow]:
        """Return the nodes of the partition."""
        return await (self._json_nodes() if self._site.reading == "json" else self._text_nodes())

    async def pilots(self) -> dict[str, JobRow]:
        """Return our pilots alone, which costs slurmctld next to nothing."""
        shown = await self._commands.run((*_JOBS, f"--user={self.user}", f"--name={self._name}", "--states=all"))
        return {row.id: row for row in text.read_jobs(shown)}

    async def version(self) -> tuple[int, int]:
        """Return Slurm's version, e.g. (22, 5)."""
        if self._version is None:
            self._version = text.read_version(await self._commands.run(("sinfo", "--version")))
        return self._version

    async def setup(self) -> SlurmSetup:
        """Return how this Slurm is set up. ClusterError if it does not answer."""
        setup = await read_setup(self._commands)
        self._cloud = frozenset(name for name, node in setup.nodes.items() if node.cloud)
        return setup

    async def partitions(self) -> dict[str, PartitionRow]:
        """Return all partitions. InputError if the site's is not among them."""
        name = self._site.partition
        shown = text.read_partitions(await self._commands.run(("scontrol", "show", "partition", "--all", "--oneliner")))
        if name not in shown:
            raise InputError(
                f"Slurm has no partition '{name}'.", next_step=f"It has: {', '.join(sorted(shown)) or 'none'}."
            )
        return shown

    async def _text_nodes(self) -> dict[str, NodeRow]:
        command = ("sinfo", "--noheader", "--Node", f"--partition={self._site.partition}")
        shown = await self._commands.run((*command, f"--format={text.NODE_FORMAT}"))
        rows = await asyncio.to_thread(text.read_nodes, shown)
        cloud = {name: replace(row, flags=row.flags | {"CLOUD"}) for name, row in rows.items() if name in self._cloud}
        return rows | cloud

    async def _text_jobs(self) -> _Jobs:
        mark = secrets.token_hex(8)
        command = ("squeue", "--noheader", "--sort=-p", f"--format={text.named_job_format(mark)}")
        shown, own = await asyncio.gather(self._commands.run(command), self.pilots())
        return await asyncio.to_thread(text.read_named_jobs, shown, mark), own, 0

    async def _json_nodes(self) -> dict[str, NodeRow]:
        # From 23.02 on sinfo groups similar nodes; before that, scontrol could not print JSON.
        new = await self.version() >= (23, 2)
        command = ("scontrol", "show", "nodes", "--json") if new else ("sinfo", "--json")
        shown, partitions = await asyncio.gather(self._commands.run(command), self.partitions())
        rows = await asyncio.to_thread(schema.read_nodes, shown)
        return {name: rows[name] for name in expand(partitions[self._site.partition].nodes) if name in rows}

    async def _json_jobs(self) -> _Jobs:
        shown, planned = await asyncio.gather(
            self._commands.run(("squeue", "--json")),
            self._commands.run(("squeue", "--noheader", "--states=PENDING", "--sort=-p", "--format=%A|%Y")),
        )
        rows, unreadable = await asyncio.to_thread(schema.read_jobs, shown)
        own = {row.id: row for row in rows if row.name == self._name and row.user == self.user}
        # 22.05's JSON does not say where a waiting job is planned to run. This text does, by priority.
        where = dict(line.split("|", 1) for line in planned.splitlines() if "|" in line)
        order = {job: i for i, job in enumerate(where)}
        live = [row for row in rows if row.state not in ENDED]
        live.sort(key=lambda row: order.get(row.id, len(order)))
        hosts = ((row, where.get(row.id, "")) for row in live)
        found = [replace(row, scheduled=row.scheduled or ("" if plan == "(null)" else plan)) for row, plan in hosts]
        return found, own, unreadable
