"""The pilots of one controller: submitted, followed as Slurm shows them, and forgotten when they have ended."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from offcut.cluster.slurm import limits, pilot_state
from offcut.cluster.slurm.commands import CommandError
from offcut.cluster.slurm.pilot_commands import PilotCommands
from offcut.cluster.slurm.pilot_script import PilotOptions
from offcut.cluster.slurm.pilot_state import Observation, Pilot, PilotState
from offcut.cluster.slurm.records import JobRow
from offcut.cluster.slurm.set_aside import SetAside
from offcut.cluster.slurm.site import SlurmSite
from offcut.errors import ClusterError, OffcutError
from offcut.process import clocks
from offcut.wire.credentials import Credentials

_log = structlog.get_logger()

#: If this many pilots were cancelled by others within this time, and none is left, no other is submitted for a while.
_CANCELLED, _CANCELLED_WITHIN_S = 2, 30.0


class PilotTable:
    """Pilots by node, the nodes that are left alone for a while, and the pause after repeated failures.

    `refuse(node, reason)` is called where a claim has failed.
    """

    def __init__(
        self,
        site: SlurmSite,
        commands: PilotCommands,
        credentials: Credentials,
        refuse: Callable[[str, str], None],
        logs: Path,
    ) -> None:
        self._site = site
        self._commands = commands
        self._credentials = credentials
        self._refuse = refuse
        self._logs = logs
        self.by_node: dict[str, Pilot] = {}
        self.set_aside = SetAside(logs / "set-aside.json")
        #: When pilots were last cancelled by a person.
        self._cancelled_s: deque[float] = deque(maxlen=_CANCELLED)
        self.pause = limits.Pause(site.pause_after, site.pause_s)
        self.submissions = 0

    def adopt(self, node: str, job: str) -> None:
        """Follow a pilot that a controller before us left."""
        self.by_node[node] = Pilot(node, PilotState.SUBMITTED, clocks.steady_s(), job)
        self._credentials.issue(node, job)

    def submit(self, options: PilotOptions, node: str, limit_s: float) -> None:
        """Submit a pilot for the node, with a time limit of `limit_s`. Returns at once."""
        pilot = self.by_node[node] = Pilot(node, PilotState.SUBMITTING, clocks.steady_s())
        self._commands.run_in_background(self._submit(options, pilot, limit_s))

    def update(
        self,
        rows: Mapping[str, JobRow],
        asked_s: float,
        *,
        is_busy: Callable[[str], bool],
        requests: tuple[str | None, ...] = (),
    ) -> tuple[list[str], list[str]]:
        """Return wanted and lost nodes, by what Slurm showed of our pilots when it was asked at `asked_s`.

        Args:
            rows: Our jobs, by Slurm's numbers.
            asked_s: When Slurm was asked, by the monotonic clock.
            is_busy: Whether a node was not idle when the whole queue was last read.
            requests: Our jobs other than pilots.
        """
        wanted: list[str] = []
        lost: list[str] = []
        cancel: list[Pilot] = []
        for node, pilot in list(self.by_node.items()):
            if pilot.job is None or pilot.submitted_s >= asked_s:
                continue
            row = rows.get(pilot.job)
            seen = pilot_state.observe(
                pilot,
                row,
                node_busy=is_busy(node),
                now_s=asked_s,
                pending_limit_s=self._site.pending_limit_s,
            )
            if seen.wanted:
                wanted.append(node)
            if seen.cancel:
                cancel.append(pilot)
            if seen.state is None:
                lost.append(node)
            self._apply(pilot, row, seen, asked_s)
        self._pause_if_all_were_cancelled(asked_s)
        self._commands.cancel(cancel, pilot_state.stray_jobs(rows, self.by_node.values(), requests))
        return wanted, lost

    def _apply(self, pilot: Pilot, row: JobRow | None, seen: Observation, asked_s: float) -> None:
        held_before = pilot.holds_node
        if seen.set_aside and row is not None and row.state == "CANCELLED":
            self.set_aside.add_cancelled(pilot.node, asked_s + self._site.bench_s)
            self._cancelled_s.append(asked_s)
        elif seen.set_aside:
            why = seen.failure or seen.refused or "its pilot ended with its node"
            self.set_aside.add(pilot.node, asked_s + self._site.bench_s, why)
        if seen.refused:
            self._refuse(pilot.node, seen.refused)
        if seen.state is None:
            del self.by_node[pilot.node]
            log = self._logs / f"{pilot.job}.log"
            if pilot.job is not None:
                self._credentials.withdraw_later(pilot.job)
            if seen.failure:
                self.note_failure(f"{seen.failure}; its log: {log}")
            elif pilot_state.has_no_agent(pilot, asked_s):
                self.note_failure(
                    f"the agent of pilot {pilot.job} on {pilot.node} did not reach this controller (is its address "
                    f"reachable from there? see --listen); its log: {log}"
                )
            elif not seen.set_aside:
                with suppress(OSError):
                    log.unlink(missing_ok=True)
            return
        pilot.state = seen.state
        if seen.failure:
            self.note_failure(seen.failure)
        if pilot.holds_node and not held_before:
            pilot.first_end_s = None if row is None else row.end_s
            pilot.running_since_s = asked_s
        elif held_before and not pilot.holds_node:
            # A slurmctld that crashed may have forgotten that it had started the pilot.
            pilot.submitted_s = asked_s

    async def _submit(self, options: PilotOptions, pilot: Pilot, limit_s: float) -> None:
        try:
            pilot.job = await self._commands.submit(options, pilot.node, limit_s)
        except ClusterError as error:
            self.by_node.pop(pilot.node, None)
            if isinstance(error, CommandError) and "node configuration is not available" in error.said:
                # Slurm refuses this node; others may fit.
                self.set_aside.add(pilot.node, clocks.steady_s() + self._site.bench_s, str(error))
            self._refuse(pilot.node, str(error))
            self.note_failure(str(error))
            return
        pilot.submitted_s = clocks.steady_s()
        if pilot.state is PilotState.SUBMITTING:
            pilot.state = PilotState.SUBMITTED
        self.submissions += 1
        try:
            await asyncio.to_thread(self._credentials.issue, pilot.node, pilot.job)
        except OffcutError as error:
            # Its agent could never report.
            pilot.give_up()
            self.note_failure(str(error))
        if pilot.given_up:
            self._commands.cancel([pilot])

    def submissions_now(self, left: int, now_s: float) -> int:
        """Return how many pilots may be submitted now, `left` at most.

        After a pause one pilot at a time tries whether it works again, until one's agent has connected.
        """
        if self.pause.holds(now_s):
            return 0
        if not self.pause.reason:
            return left
        return 0 if any(not pilot.agent_came for pilot in self.by_node.values()) else min(1, left)

    def _pause_if_all_were_cancelled(self, now_s: float) -> None:
        """Pause if a person has cancelled several pilots and none is left: probably they want none on other nodes
        either.
        """
        recent = [s for s in self._cancelled_s if now_s - s <= _CANCELLED_WITHIN_S]
        if len(recent) < _CANCELLED or any(not pilot.given_up for pilot in self.by_node.values()):
            return
        self._cancelled_s.clear()
        if self._site.bench_s > 0:
            self.pause.start(now_s, self._site.bench_s, "somebody has cancelled all pilots")
            _log.warning("paused", for_s=self._site.bench_s, reason=self.pause.reason)

    def note_failure(self, reason: str) -> None:
        """Note that a pilot has failed; repeated failures bring on a pause."""
        now_s = clocks.steady_s()
        if self.pause.failed(now_s, reason):
            _log.warning("paused", for_s=round(self.pause.until_s - now_s), reason=reason)
