"""What befalls a simulated world: the queue's and the operators' doings, and faults, drawn one after another by seed.

An action names its target by a number, which is taken modulo what there is: so leaving one out leaves the others what
they are, and the shortest failing schedule can be found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

#: How often each kind comes, relative to the others. The queue and the users:
ORDINARY = {
    "offer": 14,
    "want": 8,
    "want together": 2,
    "submit": 6,
    "cancel": 1,
    "pause": 2,
    "resume": 4,
    "change": 2,
    "release": 2,
    "release all": 0.5,
    "claim again": 3,
    "forgive": 1,
    "forget": 1,
}
#: Faults.
FAULTS = {
    "kill worker": 6,
    "freeze worker": 3,
    "kill agent": 3,
    "freeze agent": 3,
    "lose node": 2,
    "cut": 6,
    "cut unnoticed": 3,
    "partition node": 4,
    "partition all": 1,
    "kill controller": 2,
    "lose power": 1.5,
    "freeze controller": 1.5,
    "set clock": 2,
    "solver": 3,
    "slurm": 2,
    "kill store": 1,
    "never ready": 1,
    "start fails": 1,
    "disk full": 1,
    "want at worst": 6,
}
#: A storm of faults, then a calm in which everything is well and every job must get on.
STORM_S, CALM_S = 90.0, 75.0


@dataclass(frozen=True, slots=True)
class Action:
    """One doing at `at_s`; `pick` chooses the target, `amount` between 0 and 1 how much or how long."""

    number: int
    at_s: float
    kind: str
    pick: int
    amount: float

    def __str__(self) -> str:
        return f"{self.number}: {self.kind} at {self.at_s:.3f} s ({self.pick}, {self.amount:.3f})"


def actions(seed: int) -> Iterator[Action]:
    """Yield what befalls the world of this seed, without end."""
    random = Random(f"{seed} actions")
    kinds = {**ORDINARY, **FAULTS}
    names, weights = list(kinds), list(kinds.values())
    mean_s = random.choice([0.25, 0.4, 0.7])
    at_s, number = 0.0, 0
    for first in ("offer", "submit", "offer", "submit", "offer"):
        yield Action(number, 0.5 + 0.1 * number, first, random.getrandbits(30), random.random())
        number += 1
    at_s = 3.0
    while True:
        at_s += random.expovariate(1 / mean_s)
        into_s = at_s % (STORM_S + CALM_S)
        if into_s > STORM_S:
            at_s += STORM_S + CALM_S - into_s
        kind = random.choices(names, weights)[0]
        yield Action(number, at_s, kind, random.getrandbits(30), random.random())
        number += 1
