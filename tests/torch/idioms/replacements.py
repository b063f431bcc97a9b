"""Members of a job are killed, one after the other, and replaced, while a script trains."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from real_members import Cluster

WORLD = 3
#: How many steps lie between two gates, at which all members wait until there are `WORLD` of them again.
GATE_STEPS = 4
#: Points of a step at which a member is killed, and in which step after a gate they come first.
POINTS = {"before-reduce": 1, "inside-reduce": 1, "after-reduce": 1, "after-update": 1, "boundary": 2}


def train_with_replacements(script: Callable[..., Any], kills: int, seed: int, **options: Any) -> list[Any]:
    """Return the results of members of which some are killed and replaced, and one leaves.

    Args:
        script: it comes to "step" in every step, and has more than GATE_STEPS * (kills + 2) of them.
        kills: how many are killed, at ranks and points that `seed` chooses. Half as many generations break besides.
        seed: chooses.
        options: the script's.
    """
    choose = random.Random(seed)
    gates = [GATE_STEPS * (i + 1) for i in range(kills + 1)]
    faults: list[dict[str, Any]] = []
    for i, gate in enumerate(gates[:-1]):
        point = choose.choice(list(POINTS))
        faults.append({"point": point, "how": "kill", "rank": choose.randrange(WORLD), "step": gate + POINTS[point]})
        if i % 2 == 0:
            faults.append({"point": "after-reduce", "how": "break", "rank": choose.randrange(2), "step": gate - 1})
    with Cluster(script, faults=faults, **options) as cluster:
        cluster.form(cluster.start(WORLD))
        release = cluster.hold(cluster.members, "step", gates[0])
        for gate in gates[1:]:
            release_next = cluster.hold(cluster.members, "step", gate)
            release()
            cluster.until(lambda: len(cluster.members) < WORLD or cluster.failed())
            new = cluster.start()  # while another may die
            cluster.form([*cluster.members, *new])
            release = release_next
        leaving = choose.choice(cluster.members)
        cluster.leave(leaving)
        release()
        results = cluster.results()
        assert cluster.outcomes()[leaving].how == "left"
        assert len(list(cluster.directory.glob("fault-*"))) == len(faults)
    return results
