"""Decides which held nodes to leave: their operator, a reservation or a waiting job needs them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offcut.cluster.slurm import waiting_jobs
from offcut.cluster.slurm.idle_nodes import idle_names
from offcut.cluster.slurm.preemptors import Preemptors
from offcut.cluster.slurm.records import JobRow, View, expand
from offcut.cluster.slurm.site import SlurmSite

#: Flags of a held node that its operator wants.
_LEAVE = frozenset({"DRAIN", "FAIL", "MAINTENANCE", "REBOOT_REQUESTED", "REBOOT_ISSUED", "POWER_DOWN"})
_BY_TIER = Preemptors()
#: Times that Slurm shows for one thing in two places differ by up to this.
_CLOCK_S = 5.0


@dataclass(frozen=True, slots=True)
class Held:
    """A node that we hold: its running pilot as Slurm shows it now, and the end that it had when it began to run."""

    pilot: JobRow
    first_end_s: float | None = None

    @property
    def moved_forward(self) -> bool:
        """Whether its end has been moved forward, which is how a preemption with a grace shows."""
        end_s, first_s = self.pilot.end_s, self.first_end_s
        return end_s is not None and first_s is not None and end_s < first_s - _CLOCK_S


def wanted(
    view: View,
    held: Mapping[str, Held],
    site: SlurmSite,
    made_way: waiting_jobs.MadeWay | None = None,
    *,
    preemptors: Preemptors = _BY_TIER,
    next_look_s: float | None = None,
    preempted: bool = False,
    kinds: Mapping[str, object] | None = None,
) -> dict[str, str]:
    """Return those of our nodes (`held`) that we should leave now, and why.

    An operator's drain, a reservation that begins soon, and the signs of a preemption that has been decided, count in
    every mode. In `backfill` mode nothing preempts us: there we also leave for all jobs that wait for our nodes. In
    `preemptible` mode we leave for those that do not preempt us; and for all of them once Slurm has begun to preempt,
    because it preempts one pilot per pass for the tasks of an array.

    Args:
        view: The queue.
        held: Our nodes, and their pilots.
        site: The site's file.
        made_way: For which jobs nodes were left before; updated.
        preemptors: For which jobs Slurm preempts pilots.
        next_look_s: When the next look is due, seconds from now; by default the site's interval.
        preempted: Whether Slurm has begun to preempt pilots since the last look.
        kinds: What each node has, as for `waiting_jobs.nodes_to_leave`.
    """
    leave = _before_reservations(view, held, site, site.interval_s if next_look_s is None else next_look_s)
    for node, ours in held.items():
        row = view.nodes.get(node)
        if row is not None and (flags := sorted(row.flags & _LEAVE)):
            leave[node] = f"the node is set to {'+'.join(flags)}"
        elif ours.pilot.preempt_s is not None or ours.moved_forward:
            leave[node] = "its pilot is being preempted"
    ending = [node for node, ours in held.items() if ours.pilot.is_ending]
    # A node that an operator wants has no room for a job.
    ends_s = {node: ours.pilot.end_s for node, ours in held.items() if node not in leave and node not in ending}
    return leave | waiting_jobs.nodes_to_leave(
        view,
        ends_s,
        [*idle_names(view), *ending],
        made_way or waiting_jobs.MadeWay(),
        lambda job: preempted or site.mode != "preemptible" or not preemptors.preempt(job, view),
        kinds,
    )


def _before_reservations(view: View, held: Mapping[str, Held], site: SlurmSite, next_look_s: float) -> dict[str, str]:
    """Return the nodes on which a reservation begins before the next look or soon after, made after our claim."""
    leave: dict[str, str] = {}
    for reservation in view.reservations:
        latest_s = reservation.start_s - site.margin_s
        if reservation.end_s <= view.time_s or latest_s - next_look_s > view.time_s:
            continue
        for node in expand(reservation.nodes):
            # A pilot whose own limit ends it in time stays until then.
            if node in held and not _ends_by(held[node].pilot.end_s, latest_s + _CLOCK_S):
                leave[node] = f"the reservation {reservation.name} begins there"
    return leave


def _ends_by(end_s: float | None, latest_s: float) -> bool:
    return end_s is not None and end_s <= latest_s
