"""The Cluster that talks to Slurm: looks at its queue, offers what is safe to take, and holds nodes by pilots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from offcut.cluster.base import ClusterEvent, CommandFigures
from offcut.cluster.slurm import limits, modes, pilot_script
from offcut.cluster.slurm.claim_choice import against_claims
from offcut.cluster.slurm.commands import Commands, check_installed
from offcut.cluster.slurm.decision import Decider, LookDecision, LookInput
from offcut.cluster.slurm.hazards import hazards
from offcut.cluster.slurm.idle_nodes import Candidate
from offcut.cluster.slurm.pilot_commands import PilotCommands
from offcut.cluster.slurm.pilot_script import PilotOptions
from offcut.cluster.slurm.pilot_state import PilotState
from offcut.cluster.slurm.pilot_table import PilotTable
from offcut.cluster.slurm.queue_query import QueueQuery
from offcut.cluster.slurm.records import ENDED, JobRow, View, expand
from offcut.cluster.slurm.share_request import ShareRequest
from offcut.cluster.slurm.shares import stretch
from offcut.cluster.slurm.site import SlurmSite
from offcut.cluster.slurm.site_rules import SiteRulesFile
from offcut.errors import ClusterError, OffcutError
from offcut.model.events import ClaimRefused, NodesChanged, Offer
from offcut.process import clocks
from offcut.wire.credentials import Credentials

_log = structlog.get_logger()

#: While pilots come or go they are queried this often, at most: a query for one account's jobs costs little.
_OWN_INTERVAL_S = 10.0
#: A look because Slurm preempts pilots comes at the earliest this share of the interval after the last one.
_PREEMPTED_SHARE = 1 / 6
#: A Slurm that does not answer is queried less and less often, at least once in this many seconds.
_LONGEST_BACK_OFF_S = 300.0
_CLOSE_PATIENCE_S = 45.0
#: A window's end is reported again if it has moved by at least this much.
_NEWS_S = 30.0


class SlurmCluster:
    """One partition of a Slurm. `directory` (pilots' logs) lies on a file system that the nodes share with us;
    `shared` names this controller, so that its pilots are told from another's."""

    def __init__(
        self,
        site: SlurmSite,
        directory: Path,
        shared: Path,
        address_file: Path,
        credentials: Credentials,
        commands: Commands | None = None,
        *,
        agent_arguments: Sequence[str] = (),
    ) -> None:
        self._site = site
        self._agent_arguments = tuple(agent_arguments)
        self._directory = directory
        self._address_file = address_file
        self._credentials = credentials
        self._given_commands = commands is not None
        self._commands = commands or Commands(site.command_limit_s)
        self._shared = shared
        self._name = pilot_script.pilot_name(shared)
        self._query = QueueQuery(self._commands, site, self._name)
        self._pilot_options: PilotOptions
        self._offered: dict[str, Candidate] = {}
        self._rate = limits.SubmissionRate(site.max_submissions_per_minute)
        self._decider: Decider
        self._decision: LookDecision | None = None
        self._rules = SiteRulesFile.locate()
        self._watching: asyncio.Task[None] | None = None
        #: How many nodes our jobs could use in all; None until the controller has said it.
        self._demand: int | None = None
        self._look_at_once = False
        #: Slurm has ended a pilot since the last look: the next comes soon, and leaves for jobs that preempt us, too.
        self._preempted = False
        self._events: asyncio.Queue[ClusterEvent | None] = asyncio.Queue()
        self._following: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._pilot_commands = PilotCommands(self._commands, self._hurry.set)
        self._request = ShareRequest(self._pilot_commands)
        self._table = PilotTable(site, self._pilot_commands, credentials, self._refuse, directory)
        self._pilots = self._table.by_node
        self._trouble = ""
        #: What the setup of this Slurm costs, in sentences.
        self._warnings: list[str] = []
        self._view: View | None = None
        self._figures = {"idle_node_s": 0.0, "looks": 0, "refusals": 0}

    # -- life -------------------------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Check that this Slurm accepts our pilots, and adopt those that an earlier controller left.

        Raises:
            InputError: Slurm is not installed, has no such partition, refuses the account, or the mode does not fit.
            ClusterError: slurmctld does not answer.
        """
        if not self._given_commands:
            check_installed()
        setup = await self._query.setup()
        self._site = modes.fit(self._site, setup)
        await self._rules.open()
        self._decider = Decider(self._site, self._query.user, self._name, setup)
        self._warnings = [f"{fact.found}. {fact.next_step}".strip() for fact in hazards(setup, self._site)]
        for warning in self._warnings:
            _log.warning("slurm_setup", found=warning)
        partition = setup.partitions[self._site.partition]
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._table.set_aside.load(self._site.bench_s)
        self._pilot_options = PilotOptions(
            site=self._site,
            name=self._name,
            comment=pilot_script.pilot_comment(self._shared),
            logs=self._directory,
            address_file=self._address_file,
            credentials=self._credentials.directory,
            step=pilot_script.uses_step(self._site, partition),
            agent_arguments=self._agent_arguments,
        )
        for row in (await self._query.pilots()).values():
            node = pilot_script.node_of(row)
            if row.state not in ENDED and node is not None:
                self._table.adopt(node, row.id)
        self._credentials.keep_only(pilot.job for pilot in self._pilots.values() if pilot.job is not None)
        if not self._pilots:
            # Pilots that run show that Slurm takes them, and may use up a limit of submissions.
            await self._pilot_commands.check(self._pilot_options, expand(partition.nodes), self._query.nodes)
        else:
            _log.info("pilots_adopted", nodes=sorted(self._pilots))
        self._watching = asyncio.create_task(self._rules.watch(self._rules_changed))
        self._following = asyncio.create_task(self._follow())
        self._following.add_done_callback(lambda _: self._events.put_nowait(None))

    async def observe(self) -> AsyncIterator[ClusterEvent]:
        while (event := await self._events.get()) is not None:
            yield event
        if self._following is not None and self._following.done() and not self._following.cancelled():
            # The loop ends with `close` only: any other end is a defect, and must be seen.
            self._following.result()

    async def claim(self, nodes: Sequence[str], until_s: float | None) -> None:
        now_s = clocks.steady_s()
        for node in nodes:
            candidate = self._offered.pop(node, None)
            if candidate is None or node in self._pilots:
                self._refuse(node, "the node is not idle")
            elif not self._rate.left(now_s):
                self._refuse(node, f"{self._site.max_submissions_per_minute} pilots were submitted within a minute")
            else:
                self._rate.note(now_s)
                self._table.submit(self._pilot_options, node, candidate.limit_s)

    async def release(self, nodes: Sequence[str]) -> None:
        ours = [pilot for node in nodes if (pilot := self._pilots.get(node)) is not None]
        # A node that the queue wants is released without waiting for an answer.
        wanted = [pilot for pilot in ours if pilot.state is PilotState.WANTED or pilot.given_up]
        others = [pilot for pilot in ours if not (pilot.state is PilotState.WANTED or pilot.given_up)]
        for pilot in ours:
            pilot.give_up()
        self._pilot_commands.cancel(wanted)
        self._pilot_commands.cancel_unless_ending(others, self._query.pilots, self._pilot_ended_by_slurm)

    async def claimed(self) -> frozenset[str]:
        return frozenset(self._pilots)

    def pilot(self, node: str) -> str | None:
        pilot = self._pilots.get(node)
        return None if pilot is None else pilot.job

    def set_demand(self, nodes: int) -> None:
        self._demand = nodes

    async def forgive(self, nodes: Sequence[str]) -> None:
        await asyncio.to_thread(self._table.set_aside.forgive, nodes)
        self._look_at_once = True
        self._hurry.set()

    def agent_connected(self, node: str) -> None:
        pilot = self._pilots.get(node)
        if pilot is not None and not pilot.agent_came:
            pilot.agent_came = True
            self._table.pause.succeeded()

    def describe(self) -> dict[str, Any]:
        now_s = clocks.steady_s()
        against = against_claims(self._site, self._rules.rules, datetime.now())
        return {
            "kind": "slurm",
            "partition": self._site.partition,
            "mode": self._site.mode,
            "idle": None if self._view is None else sum(row.state == "idle" for row in self._view.nodes.values()),
            "offered": len(self._offered),
            "held": sum(pilot.holds_node for pilot in self._pilots.values()),
            "pending": sum(not pilot.holds_node for pilot in self._pilots.values()),
            "looked_s": None if self._view is None else self._view.time_s,
            "paused": self._table.pause.reason if self._table.pause.holds(now_s) else "",
            "quiet": bool(against),
            "against": against,
            "site_file": None if self._rules.path is None else str(self._rules.path),
            "site_trouble": self._rules.trouble,
            **self._describe_share(),
            "not_claimed": {} if self._decision is None else self._decision.not_claimed(),
            "set_aside": self._table.set_aside.describe(now_s),
            "warnings": self._warnings,
            "unreadable_jobs": 0 if self._view is None else self._view.unreadable,
            "trouble": self._trouble,
        }

    def _describe_share(self) -> dict[str, Any]:
        decision = self._decision
        return {
            "name": self._name,
            "controllers": 1 if decision is None else 1 + len(decision.pool.others),
            "share": None if decision is None else decision.share.share,
            "shared": None if decision is None else decision.pool.nodes,
            "asks_for": 0 if decision is None else decision.share.ask,
            "request_refused": self._request.refused,
            "interval_s": round(self._interval_s(), 3),
        }

    async def statistics(self) -> dict[str, Any]:
        """Return `idle_node_s`: node-seconds that the queue left idle, held by us or not, as queries showed them."""
        return {**self._figures, "submissions": self._table.submissions, "hand_backs": []}

    def command_figures(self) -> Mapping[str, CommandFigures]:
        return self._commands.figures

    async def close(self) -> None:
        for task in (self._following, self._watching):
            if task is not None:
                task.cancel()
        await self._pilot_commands.finished()
        left = await self._pilot_commands.cancel_all(self._query.pilots, _CLOSE_PATIENCE_S)
        if left:
            _log.error("pilots_left", jobs=left, next_step=f"Run: scancel --name={self._name}")

    # -- looking ----------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        failures = 0
        while True:
            wait_s = self._site.interval_s
            try:
                view = await self._query.snapshot()
                self._update(view)
            except OffcutError as error:
                failures += 1
                wait_s = min(_LONGEST_BACK_OFF_S, wait_s * 2 ** min(failures, 16))
                if not self._trouble:
                    _log.warning("slurm_does_not_answer", error=str(error), again_in_s=wait_s)
                self._trouble = str(error)
            else:
                if self._trouble:
                    _log.info("slurm_answers_again")
                self._trouble, failures = "", 0
                # A Slurm that answers slowly is busy, so it is queried less often.
                wait_s = max(self._interval_s(), 10 * view.took_s)
            await self._attend(wait_s)

    def _interval_s(self) -> float:
        """Return the time until the next query: longer with many controllers, shorter while we hold too much."""
        if self._decision is None:
            return self._site.interval_s
        if self._decision.share.above:
            return self._site.interval_s / 3
        controllers = 1 + len(self._decision.pool.others)
        return self._site.interval_s * stretch(controllers, preemptible=self._site.mode == "preemptible")

    async def _attend(self, wait_s: float) -> None:
        """Wait until the next query of the whole queue. While pilots come or go, only these are queried."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        until_s = began_s + wait_s
        step_s = min(self._site.interval_s, _OWN_INTERVAL_S)
        while (left_s := until_s - loop.time()) > 0:
            moving = self._pilot_options.step or any(p.given_up or not p.holds_node for p in self._pilots.values())
            self._hurry.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, step_s) if moving else left_s):
                    await self._hurry.wait()
                    if not self._preempted:
                        await asyncio.sleep(min(step_s, 1.0))
            if self._preempted:
                await asyncio.sleep(max(0.0, began_s + self._site.interval_s * _PREEMPTED_SHARE - loop.time()))
                return
            if self._look_at_once:
                self._look_at_once = False
                return
            if until_s - loop.time() > step_s / 2 and self._pilots and not self._trouble:
                asked_s = clocks.steady_s()
                with suppress(ClusterError):
                    self._report(*self._update_pilots(await self._query.pilots(), asked_s))

    def _update(self, view: View) -> None:
        """Act on a snapshot of the queue."""
        before, self._view = self._view, view
        if view.unreadable and (before is None or not before.unreadable):
            _log.warning(
                "jobs_not_readable", jobs=view.unreadable, next_step="Try reading = 'text' in the site's file."
            )
        self._figures["looks"] += 1
        wanted, lost = self._update_pilots(view.own, view.clock_s)
        try:
            decision = self._decision = self._decide(view)
        except OffcutError:
            self._report(wanted, lost)
            raise
        finally:
            self._preempted = False
        if before is not None:
            self._figures["idle_node_s"] += (len(decision.idle) + decision.held) * (view.clock_s - before.clock_s)
        for node, why in decision.leave.items():
            _log.info("leaving", node=node, why=why)
            self._pilots[node].state = PilotState.WANTED
            wanted.append(node)
        self._request.ask(self._pilot_options, decision.share.ask, view.clock_s)
        offers = self._offer(decision.chosen, wanted)
        self._report(wanted, lost, offers)
        self._leave_all_if_forbidden()

    def _decide(self, view: View) -> LookDecision:
        """Return what to do. ClusterError if the queue names nodes in a form that cannot be read."""
        given = LookInput(
            pilots=self._pilots,
            offered=self._offered,
            avoided=self._table.set_aside.nodes(view.clock_s),
            submissions=self._table.submissions_now(self._rate.left(view.clock_s), view.clock_s),
            demand=self._demand,
            rules=self._rules.rules,
            next_look_s=max(self._interval_s(), 10 * view.took_s),
            preempted=self._preempted,
            now=datetime.now(),
        )
        return self._decider.decide(view, given)

    def _leave_all_if_forbidden(self) -> None:
        """Leave every node, also those that are only being claimed, where no node may be held now."""
        why = against_claims(self._site, self._rules.rules, datetime.now())
        if not why:
            return
        leave = [node for node, pilot in self._pilots.items() if not pilot.given_up]
        new = [node for node in leave if self._pilots[node].state is not PilotState.WANTED]
        if new:
            _log.info("leaving", nodes=new, why=why)
        for node in new:
            if self._pilots[node].state is PilotState.RUNNING:
                self._pilots[node].state = PilotState.WANTED
        self._report([*new, *self._offered], ())
        self._offered = {}

    def _pilot_ended_by_slurm(self) -> None:
        """Look soon: Slurm preempts one pilot after the other for the tasks of an array, and waits for each."""
        if self._site.mode == "preemptible":
            self._preempted = True
            self._hurry.set()

    def _rules_changed(self) -> None:
        self._leave_all_if_forbidden()
        self._look_at_once = True
        self._hurry.set()

    def _offer(self, chosen: list[Candidate], wanted: list[str]) -> tuple[Offer, ...]:
        """Return new offers. Nodes that were offered and are not idle any more are added to `wanted`."""
        now = {candidate.node: candidate for candidate in chosen}
        wanted += [node for node in self._offered if node not in now]
        news = [c for c in chosen if c.node not in self._offered or _moved(self._offered[c.node].until_s, c.until_s)]
        self._offered = now
        return tuple(Offer(candidate.node, candidate.until_s) for candidate in news)

    def _update_pilots(self, rows: Mapping[str, JobRow], asked_s: float) -> tuple[list[str], list[str]]:
        return self._table.update(rows, asked_s, is_busy=self._is_busy, requests=self._request.jobs)

    def _is_busy(self, node: str) -> bool:
        row = None if self._view is None else self._view.nodes.get(node)
        return row is not None and row.state != "idle"

    def _refuse(self, node: str, reason: str) -> None:
        self._figures["refusals"] += 1
        self._events.put_nowait(ClaimRefused(time_s=clocks.wall_s(), nodes=(node,), reason=reason))

    def _report(self, wanted: Iterable[str], lost: Iterable[str], offered: tuple[Offer, ...] = ()) -> None:
        event = NodesChanged(time_s=clocks.wall_s(), offered=offered, wanted=tuple(wanted), lost=tuple(lost))
        if event.offered or event.wanted or event.lost:
            self._events.put_nowait(event)


def _moved(before_s: float | None, now_s: float | None) -> bool:
    if before_s is None or now_s is None:
        return before_s is not now_s
    return abs(before_s - now_s) > _NEWS_S
