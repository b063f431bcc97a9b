"""The faults that are tried: points of the step and of the re-forming, roles that pass them, kinds of fault.

A case begins with two members; a third node is offered while they train, so that rank 2 joins a running job. `python
tests/faults/matrix.py` prints the table of docs/faults.md, which a test compares.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from faults import outcomes
from faults.outcomes import Fate, Outcome

#: When faults strike: two members train; the third is about to join; it has joined; the training ends.
EARLY, JOINING, LATE = "two-members", "a-joiner", "three-members"

ROLES = {0: "first member", 1: "other member", 2: "joiner"}


@dataclass(frozen=True)
class Case:
    """`default`: one of its kind, in the quick suite."""

    plans: tuple[dict[str, Any], ...]
    outcome: Outcome
    default: bool = False
    #: Once the fault has struck the workers that are left are killed too.
    all_die: bool = False

    @property
    def name(self) -> str:
        name = "+".join(
            f"{p['how']}@{p['point']}:{ROLES.get(p.get('rank'), 'any')}".replace(" ", "-") for p in self.plans
        )
        return name + ("+all" if self.all_die else "")

    @property
    def at_the_end(self) -> bool:
        """Whether it strikes at the last barrier, after the last step."""
        return all(plan["point"] == "finishing" for plan in self.plans)

    def fate(self, plan: int) -> Fate:
        """Return what happens to the worker that this plan strikes."""
        return Fate.STAYS if self.plans[plan]["how"] == "break" else self.outcome.fate

    def strikes(self, when: str) -> bool:
        return any(plan.get("after") == when for plan in self.plans)


def _case(
    point: str,
    how: str,
    rank: int | None,
    outcome: Outcome,
    *,
    default: bool = False,
    all_die: bool = False,
    **plan: Any,
) -> Case:
    return Case(({"point": point, "how": how, "rank": rank, **plan},), outcome, default, all_die)


def cases() -> list[Case]:
    return [*_in_a_step(), *_at_different_steps(), *_joining(), *_checkpoints_and_end(), *_frozen(), *_cut_off()]


def _in_a_step() -> list[Case]:
    """Once with two members, once with three."""
    quick = {
        *(("loaded", 1), ("before-reduce", 0), ("inside-reduce", 1)),
        *(("after-reduce", 0), ("after-update", 1), ("boundary", 0)),
    }
    points = ("loaded", "before-reduce", "inside-reduce", "after-reduce", "after-update", "boundary")
    found = [
        _case(point, "kill", rank, outcomes.KILLED, default=(point, rank) in quick, after=LATE if rank else EARLY)
        for point in points
        for rank in (0, 1)
    ]
    both = tuple({"point": "inside-reduce", "how": "kill", "rank": rank, "after": LATE} for rank in (0, 2))
    return [*found, Case(both, outcomes.KILLED, default=True)]


def _at_different_steps() -> list[Case]:
    """Between reduce and update on some members."""
    found = []
    for killed, behind in ((0, 1), (1, 0), (2, 0), (0, 2)):
        (ahead,) = {0, 1, 2} - {killed, behind}
        where = {"point": "after-reduce", "after": LATE, "applied_by": [ahead]}
        dies = {**where, "how": "kill", "rank": killed}
        breaks = {**where, "how": "break", "rank": behind}
        found.append(Case((dies, breaks), outcomes.KILLED_AHEAD, default=(killed, behind) == (0, 1)))
    return found + [
        _case("after-reduce", "break", rank, outcomes.BEHIND, after=LATE, applied_by=sorted({0, 1, 2} - {rank}))
        for rank in (0, 1)
    ]


def _joining() -> list[Case]:
    found = [_case("before-ready", "kill", 0, outcomes.KILLED_BEFORE_READY, default=True, times=2)]
    for rank in (0, 1, 2):
        for point, default in (("forming", rank == 2), ("formed", rank == 1)):
            outcome = outcomes.KILLED_AS_JOINER if rank == 2 else outcomes.KILLED_FORMING
            found.append(_case(point, "kill", rank, outcome, default=default, after=JOINING))
    found.append(_case("giving", "kill", 0, outcomes.KILLED_GIVING, default=True, after=JOINING))
    found.append(_case("receiving", "kill", 2, outcomes.KILLED_AS_JOINER, default=True, after=JOINING))
    found.append(_case("forming", "break", 1, outcomes.SAME, after=JOINING))
    return found


def _checkpoints_and_end() -> list[Case]:
    return [
        _case("writing", "kill", None, outcomes.HALF, default=True, after=LATE),
        _case("writing", "kill", None, outcomes.USED, all_die=True, after=LATE),
        _case("publishing", "kill", None, outcomes.STAYS, default=True, after=LATE),
        _case("publishing", "kill", None, outcomes.USED, all_die=True, after=LATE),
        *(_case("finishing", "kill", rank, outcomes.ENDED, default=rank == 0) for rank in (0, 1)),
    ]


def _frozen() -> list[Case]:
    """For a moment, and for so long that it is given up."""
    return [
        _case("inside-reduce", "freeze", 1, outcomes.NOTHING, after=LATE, thaw_s=1.0),
        _case("before-reduce", "freeze", 0, outcomes.FROZEN, after=LATE, default=True),
        _case("receiving", "freeze", 2, outcomes.FROZEN_AS_JOINER, after=JOINING),
        _case("giving", "freeze", 0, outcomes.FROZEN, after=JOINING),
        _case("before-reduce", "freeze-node", 1, outcomes.FENCED, after=LATE, thaw_s=6.0, default=True),
        _case("after-reduce", "freeze-node", 0, outcomes.FENCED, after=LATE, thaw_s=6.0),
        _case("publishing", "freeze-node", 0, outcomes.FENCED_PUBLISHING, after=LATE, thaw_s=6.0),
    ]


def _cut_off() -> list[Case]:
    """From the controller, and from the other members; by the agent's death too."""
    return [
        _case("loaded", "freeze-agent", 1, outcomes.FENCED, after=LATE, thaw_s=6.0),
        _case("inside-reduce", "cut", 1, outcomes.SAME, after=LATE, default=True),
        _case("before-reduce", "cut", 0, outcomes.SAME, after=LATE),
        _case("inside-reduce", "silence", 1, outcomes.SILENT, after=LATE),
        _case("before-reduce", "kill-agent", 0, outcomes.AGENT_KILLED, after=LATE, default=True),
        _case("receiving", "kill-agent", 2, outcomes.AGENT_KILLED_AS_JOINER, after=JOINING),
    ]


def table() -> str:
    """Return the cases as a Markdown table: point, victim, fault, outcome."""
    rows = ["| point | victim | fault | outcome | in `make test` |", "|---|---|---|---|---|"]
    for case in cases():
        points = " and ".join(dict.fromkeys(f"`{plan['point']}`" for plan in case.plans))
        victims = " and ".join(ROLES.get(plan.get("rank"), "any member") for plan in case.plans)
        hows = " and ".join(dict.fromkeys(f"`{plan['how']}`" for plan in case.plans))
        hows += ", then all others" if case.all_die else ""
        rows.append(f"| {points} | {victims} | {hows} | {case.outcome.text} | {'yes' if case.default else ''} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
