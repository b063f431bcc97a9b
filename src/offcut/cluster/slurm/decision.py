"""What to do after a look at the queue: which nodes to leave, which to claim, what to ask others for. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from offcut.cluster.slurm import held_nodes, idle_nodes, limits, pilot_script, power, shares, waiting_jobs
from offcut.cluster.slurm.claim_choice import against_claims, choose_claims, choose_surplus
from offcut.cluster.slurm.idle_nodes import Candidate
from offcut.cluster.slurm.limit_relief import LimitRelief
from offcut.cluster.slurm.node_fit import node_kinds, unfit_nodes
from offcut.cluster.slurm.pilot_state import Pilot, PilotState
from offcut.cluster.slurm.preemptors import Preemptors, preemptors
from offcut.cluster.slurm.records import View
from offcut.cluster.slurm.site import SlurmSite
from offcut.cluster.slurm.site_rules import SiteRules
from offcut.cluster.slurm.slurm_config import SlurmSetup

#: A pilot in one of these states holds its node, or will, and the queue has not asked for the node.
_KEEPS = frozenset({PilotState.SUBMITTING, PilotState.SUBMITTED, PilotState.PENDING, PilotState.RUNNING})


#: This many reasons why nodes are not claimed are told.
_MOST_REASONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LookInput:
    """What a decision depends on besides the queue and what was decided before."""

    #: By node.
    pilots: Mapping[str, Pilot]
    #: Idle nodes that were chosen before.
    offered: Collection[str] = ()
    #: Nodes that are not claimed for a while.
    avoided: Collection[str] = ()
    #: How many pilots may be submitted now.
    submissions: int | None = None
    #: How many nodes our jobs could use in all; None where that is not known.
    demand: int | None = None
    rules: SiteRules = field(default_factory=SiteRules)
    #: Seconds until the next look; None for the site's interval.
    next_look_s: float | None = None
    #: Slurm has begun to preempt pilots since the last look.
    preempted: bool = False
    #: The local time.
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LookDecision:
    """What to do now."""

    #: Running pilots to end, and why.
    leave: Mapping[str, str]
    #: Idle nodes to claim.
    chosen: list[Candidate]
    #: Idle nodes that we do not hold, safe or not.
    idle: list[Candidate]
    #: How many nodes our running pilots hold.
    held: int
    pool: shares.Pool
    share: shares.ShareDecision

    def not_claimed(self) -> dict[str, int]:
        """Return why idle nodes are not safe to claim, and how many each reason keeps."""
        return dict(Counter(one.why for one in self.idle if not one.safe).most_common(_MOST_REASONS))


class Decider:
    """Decides after each look. It remembers what earlier looks showed, so that nothing goes to and fro."""

    def __init__(self, site: SlurmSite, user: str, name: str, setup: SlurmSetup | None = None) -> None:
        """`user` and `name`: of this controller, as its pilots show them. `setup`: where None, nothing special."""
        self._site = site
        self._preemptors = Preemptors() if setup is None else preemptors(setup, site)
        self._unfit = {} if setup is None else unfit_nodes(setup, site)
        self._kinds = {} if setup is None else node_kinds(setup)
        self._us = user, name
        self._made_way = waiting_jobs.MadeWay(max(60.0, 3 * site.interval_s), max(60.0, site.bench_s))
        self._balance = shares.ShareBalance(confirm_s=site.interval_s / 4, patience_s=max(120.0, 4 * site.interval_s))
        self._limit_relief = LimitRelief(
            waiting_jobs.MadeWay(max(60.0, 3 * site.interval_s), max(60.0, site.bench_s)),
            {} if setup is None else setup.limited_accounts,
        )
        self._queue_use = power.QueueUse()
        #: Nodes that are being released because others have a share of them.
        self._yielding: set[str] = set()

    def decide(self, view: View, given: LookInput) -> LookDecision:
        """Return what to do after this look."""
        running = {node: pilot for node, pilot in given.pilots.items() if pilot.state is PilotState.RUNNING}
        held = {
            node: held_nodes.Held(row, pilot.first_end_s)
            for node, pilot in given.pilots.items()
            if pilot.holds_node and (row := view.own.get(pilot.job or ""))
        }
        idle = [
            one if one.node not in self._unfit else replace(one, safe=False, why=self._unfit[one.node])
            for one in idle_nodes.candidates(view, self._site)
            if one.node not in given.pilots and pilot_script.is_valid_node_name(one.node)
        ]
        limit_s = given.rules.leave_idle_after_s
        self._queue_use.note(view)
        unused = self._queue_use.unused(limit_s, view.clock_s)
        idle = power.leave_unused(idle, unused, limit_s)
        pool = self._pool(view, given, idle)
        share = self._balance.decide(pool, given.rules, view.clock_s)
        choice = choose_claims(
            idle,
            self._site,
            given.now,
            rules=given.rules,
            share=share,
            held=len(given.pilots),
            theirs=pool.theirs,
            offered=given.offered,
            avoided=given.avoided,
            submissions=given.submissions,
        )
        leave = dict.fromkeys(unused & held.keys(), power.unused_reason(limit_s))
        leave |= held_nodes.wanted(
            view,
            held,
            self._site,
            self._made_way,
            preemptors=self._preemptors,
            next_look_s=given.next_look_s,
            preempted=given.preempted,
            kinds=self._kinds,
        )
        relief = self._limit_relief.decide(
            view, {node: held[node].pilot for node in held if node in running and node not in leave}
        )
        leave |= relief.leave
        submitted_s = {node: pilot.submitted_s for node, pilot in running.items() if node in held}
        surplus = choose_surplus(leave, submitted_s, choice)
        self._yielding |= surplus.keys()
        return LookDecision(
            leave={node: why for node, why in (leave | surplus).items() if node in running},
            chosen=[] if relief.waits else choice.chosen,
            idle=idle,
            held=len(held),
            pool=pool,
            share=share,
        )

    def _pool(self, view: View, given: LookInput, idle: list[Candidate]) -> shares.Pool:
        self._yielding &= given.pilots.keys()
        active = {node for node, pilot in given.pilots.items() if pilot.state in _KEEPS}
        safe = {one.node for one in idle if one.safe}
        user, name = self._us
        us = shares.Controller(user=user, name=name, held=len(active))
        pool = shares.pool_of(
            view, us, ours=active | self._yielding, idle=safe, claimable=safe - frozenset(given.avoided)
        )
        return pool.with_demand(self._demand(pool, given, len(idle)))

    def _demand(self, pool: shares.Pool, given: LookInput, idle: int) -> int:
        """Return how many nodes we could use in all: what jobs could use, as far as we may claim nodes at all."""
        held = pool.us.held
        if given.submissions == 0 or against_claims(self._site, given.rules, given.now):
            return held
        most = limits.most_nodes(idle + pool.theirs, held, self._site.max_nodes, self._site.max_share)
        return most if given.demand is None else min(most, given.demand)
