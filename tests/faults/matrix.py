"""Which faults are tried: points of the step and of the re-forming, roles that pass them, kinds of fault.

A case begins with two members; a third node is offered while they train, so that rank 2 joins a running job. `python
tests/faults/matrix.py` prints the table of docs/faults.md, which a test compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: Members 0 and 1 train; the third joins once they have applied this many steps.
JOIN_AT = 8
#: Steps at which faults strike: before and after the third has joined.
EARLY, LATE = 4, 30

ROLES = {0: "first member", 1: "other member", 2: "joiner"}


@dataclass(frozen=True)
class Case:
    """`default`: part of the quick suite. `redone`: how many steps at most may have been applied twice."""

    plans: tuple[dict[str, Any], ...]
    what: str
    outcome: str
    default: bool = False
    redone: int = 1

    @property
    def waits(self) -> bool:
        """Whether somebody has to be found silent, or to come back: the training goes on for longer then."""
        return any(p["how"].startswith(("freeze", "silence")) for p in self.plans)

    @property
    def name(self) -> str:
        return "+".join(
            f"{p['how']}@{p['point']}:{ROLES.get(p.get('rank'), 'any')}".replace(" ", "-") for p in self.plans
        )


def _case(point: str, how: str, rank: int | None, outcome: str, *, default: bool = False, **plan: Any) -> Case:
    role = ROLES[rank] if rank is not None else "any member"
    return Case(({"point": point, "how": how, "rank": rank, **plan},), f"{how} {role} at {point}", outcome, default)


_GOES_ON = "the others redo the step; a new worker joins"
_NOT_IN = "the others go on; a new worker is started"


def cases() -> list[Case]:
    found = []
    # Within a step: once with two members, once with three.
    for point in ("loaded", "before-reduce", "inside-reduce", "after-reduce", "after-update", "boundary"):
        for rank in (0, 1):
            default = (point, rank) in {
                ("loaded", 1), ("before-reduce", 0), ("inside-reduce", 1), ("after-reduce", 0), ("after-update", 1),
                ("boundary", 0),
            }  # fmt: skip
            found.append(_case(point, "kill", rank, _GOES_ON, default=default, step=LATE if rank else EARLY))
    # Between reduce and update on some members: survivors are at different steps.
    ahead = "survivors at different steps: the one behind takes the state of the one ahead"
    found += [
        Case(
            (
                {"point": "after-reduce", "how": "kill", "rank": killed, "step": LATE},
                {"point": "after-reduce", "how": "break", "rank": behind, "step": LATE},
            ),
            f"kill {ROLES[killed]}, {ROLES[behind]} does not see the reduce end",
            ahead,
            default=(killed, behind) == (0, 1),
        )
        for killed, behind in ((0, 1), (1, 0), (2, 0), (0, 2))
    ]
    found += [_case("after-reduce", "break", rank, ahead, step=LATE) for rank in (0, 1)]
    # Two at once.
    found.append(
        Case(
            tuple({"point": "inside-reduce", "how": "kill", "rank": rank, "step": LATE} for rank in (0, 2)),
            "kill first member and joiner inside the same reduce",
            _GOES_ON,
            default=True,
        )
    )
    # Joining and re-forming.
    found.append(_case("before-ready", "kill", 0, _NOT_IN, default=True, times=2, step=1))
    for rank in (0, 1, 2):
        found.append(
            _case("forming", "kill", rank, "the others re-form under the next epoch", epoch=2, default=rank == 2)
        )
        found.append(
            _case("formed", "kill", rank, "the others re-form under the next epoch", epoch=2, default=rank == 1)
        )
    found.append(_case("giving", "kill", 0, "another giver, or the next epoch's", epoch=2, default=True))
    found.append(_case("receiving", "kill", 2, _NOT_IN, epoch=2, default=True))
    found.append(_case("forming", "break", 1, "the same members re-form", epoch=2))
    # Checkpoints and the end.
    found.append(_case("writing", "kill", None, "half a checkpoint is never published", default=True))
    found.append(_case("publishing", "kill", None, "the checkpoint of before stays", default=True, step=2))
    found += [_case("finishing", "kill", rank, "the others end the training", default=rank == 0) for rank in (0, 1)]
    # Frozen: for a moment, and for so long that it is given up.
    found.append(_case("inside-reduce", "freeze", 1, "nothing: all wait", step=LATE, thaw_s=1.0))
    found.append(_case("before-reduce", "freeze", 0, "the agent ends it; " + _GOES_ON, step=LATE, default=True))
    found.append(_case("receiving", "freeze", 2, "the agent ends it; " + _NOT_IN, epoch=2))
    found.append(_case("giving", "freeze", 0, "the agent ends it; " + _GOES_ON, epoch=2))
    fenced = "the controller gives it up; when it returns it is fenced"
    found.append(_case("before-reduce", "freeze-node", 1, fenced, step=LATE, thaw_s=6.0, default=True))
    found.append(_case("after-reduce", "freeze-node", 0, fenced, step=LATE, thaw_s=6.0))
    # Cut off: from the controller, and from the other members.
    found.append(_case("loaded", "freeze-agent", 1, fenced, step=LATE, thaw_s=6.0))
    found.append(_case("inside-reduce", "cut", 1, "the same members re-form", step=LATE, default=True))
    found.append(_case("before-reduce", "cut", 0, "the same members re-form", step=LATE))
    silent = "connections break after 20 s; the same members re-form"
    found.append(_case("inside-reduce", "silence", 1, silent, step=LATE))
    # The agent.
    found.append(_case("before-reduce", "kill-agent", 0, _GOES_ON, step=LATE, default=True))
    found.append(_case("receiving", "kill-agent", 2, _NOT_IN, epoch=2))
    return found


def table() -> str:
    """The cases as a Markdown table: point, victim, fault, outcome."""
    rows = ["| point | victim | fault | outcome | in `make test` |", "|---|---|---|---|---|"]
    for case in cases():
        points = " and ".join(dict.fromkeys(f"`{plan['point']}`" for plan in case.plans))
        victims = " and ".join(ROLES.get(plan.get("rank"), "any member") for plan in case.plans)
        hows = " and ".join(dict.fromkeys(f"`{plan['how']}`" for plan in case.plans))
        rows.append(f"| {points} | {victims} | {hows} | {case.outcome} | {'yes' if case.default else ''} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
