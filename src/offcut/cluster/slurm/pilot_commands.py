"""Submitting and cancelling pilots: sbatch and scancel, a few at a time, in the background."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog

from offcut.cluster.slurm.commands import CommandError, Commands
from offcut.cluster.slurm.pilot_script import PilotOptions, may_pass
from offcut.cluster.slurm.pilot_state import Pilot
from offcut.cluster.slurm.records import ENDED, JobRow, NodeRow
from offcut.errors import ClusterError, InputError
from offcut.process import clocks

_log = structlog.get_logger()

#: How many commands that submit or cancel run at once.
_AT_ONCE = 4
#: A released pilot is cancelled after this, whether or not Slurm has said that it is ending already.
_ENDING_QUERY_S = 1.0

#: At the end: a job that does not end is cancelled again after this; and how long from one query to the next.
_CANCEL_AGAIN_S = 10.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 3.0

#: Reads our pilots, by Slurm's numbers of their jobs.
_Query = Callable[[], Awaitable[Mapping[str, JobRow]]]


class PilotCommands:
    """Runs sbatch and scancel; `on_change` is called when one has changed what a query would show."""

    def __init__(self, commands: Commands, on_change: Callable[[], None]) -> None:
        self._commands = commands
        self._on_change = on_change
        self._few = asyncio.Semaphore(_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, options: PilotOptions, node: str, limit_s: float) -> str:
        """Submit a pilot for `node` with a time limit of `limit_s`; return Slurm's number of its job.

        Raises:
            ClusterError: sbatch failed or did not answer in time.
        """
        async with self._few:
            shown = await self._commands.run(options.command(node, limit_s), options.script(node))
        self._on_change()
        # With several clusters the number is followed by the cluster's name.
        return shown.strip().split(";")[0]

    async def submit_request(self, options: PilotOptions, nodes: int, due_s: float) -> str:
        """Submit a job that asks other controllers for nodes and is due after `due_s`; return its number.

        Raises:
            ClusterError: sbatch failed or did not answer in time.
        """
        async with self._few:
            shown = await self._commands.run(options.request_command(nodes, due_s), "#!/bin/sh\nexit 0\n")
        return shown.strip().split(";")[0]

    async def check(
        self, options: PilotOptions, nodes: Sequence[str], read_nodes: Callable[[], Awaitable[Mapping[str, NodeRow]]]
    ) -> None:
        """Check that Slurm would take a pilot; submit none. A refusal that may pass by itself is only logged.

        Raises:
            InputError: Slurm refuses pilots, or the partition has no nodes.
            ClusterError: sbatch did not answer in time.
        """
        site = options.site
        if not nodes:
            raise InputError(f"The partition '{site.partition}' has no nodes.")
        command = [*options.command(nodes[0], max(60.0, min(site.least_hole_s, site.longest))), "--test-only"]
        try:
            await self._commands.run([word for word in command if not word.startswith("--nodelist")], "#!/bin/sh\n")
        except CommandError as error:
            if not error.refused:
                raise
            if may_pass(error.said, (await read_nodes()).values()):
                _log.warning("pilots_refused_for_now", said=error.said)
                return
            raise InputError(
                f"Slurm refuses our pilots in '{site.partition}': {error.said}",
                next_step="Check partition, account, qos, constraint and gres in the site's file.",
            ) from None

    def cancel(self, pilots: Iterable[Pilot], strays: Iterable[str] = ()) -> None:
        """Cancel these pilots and jobs, without waiting for it. What fails is repeated after the next query."""
        jobs = list(strays)
        for pilot in pilots:
            if pilot.job is not None:
                pilot.cancelled = True
                jobs.append(pilot.job)
        if jobs:
            self.run_in_background(self._cancel(jobs))

    def cancel_unless_ending(self, pilots: Sequence[Pilot], query: _Query, on_ending: Callable[[], None]) -> None:
        """Cancel those of these pilots that Slurm is not ending already.

        The others were preempted, or cancelled by a person: `on_ending` is called if there are any.
        """
        if pilots:
            self.run_in_background(self._cancel_unless_ending(pilots, query, on_ending))

    async def _cancel_unless_ending(
        self, pilots: Sequence[Pilot], query: _Query, on_ending: Callable[[], None]
    ) -> None:
        rows: Mapping[str, JobRow] = {}
        with suppress(ClusterError, TimeoutError):
            async with asyncio.timeout(_ENDING_QUERY_S):
                rows = await query()
        ending = {row.id for row in rows.values() if row.is_ending}
        if any(pilot.job in ending for pilot in pilots):
            on_ending()
        self.cancel(pilot for pilot in pilots if pilot.job not in ending)

    async def _cancel(self, jobs: list[str]) -> None:
        with suppress(ClusterError):
            async with self._few:
                await self._commands.run(("scancel", "--quiet", *jobs))
        self._on_change()

    def run_in_background(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine in a task that `finished` waits for."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def cancel_all(self, query: _Query, patience_s: float) -> list[str]:
        """Cancel all our jobs, and wait until Slurm shows that they have ended.

        A job is cancelled once, and again only if it still has not begun to end a while later.

        Args:
            query: Reads our jobs.
            patience_s: How long to wait at most.

        Returns:
            Slurm's numbers of those that are left.
        """
        give_up_s = clocks.steady_s() + patience_s
        cancelled_s: dict[str, float] = {}
        left: list[str] = []
        wait_s = _FIRST_WAIT_S
        while (now_s := clocks.steady_s()) < give_up_s:
            with suppress(ClusterError):
                rows = [row for row in (await query()).values() if row.state not in ENDED]
                left = [row.id for row in rows]
                if not left:
                    break
                again_s = now_s - _CANCEL_AGAIN_S
                alive = [row.id for row in rows if row.state != "COMPLETING"]
                if due := [job for job in alive if cancelled_s.get(job, -math.inf) <= again_s]:
                    await self._commands.run(("scancel", "--quiet", *due))
                    cancelled_s |= dict.fromkeys(due, now_s)
            await asyncio.sleep(wait_s)
            wait_s = min(_LONGEST_WAIT_S, 1.5 * wait_s)
        return left

    async def finished(self) -> None:
        """Wait until every command in the background has ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)
