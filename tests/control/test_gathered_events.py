"""Events that came within a moment are answered as one."""

from __future__ import annotations

from scenarios import running
from world import only

from offcut.model import effects as ef
from offcut.model import events as ev


def test_what_happens_within_a_moment_is_one_generation_and_one_problem(world):
    running(world, *(f"n{i}" for i in range(8)))
    before = world.state.jobs["a"].generation
    exits = [
        ev.WorkerExited(time_s=world.now_s, job="a", member=world.member("a", name), outcome="left")
        for name in ("n1", "n2", "n3")
    ]
    lost = ev.NodesChanged(time_s=world.now_s, lost=("n4", "n5"))
    effects = world.send(ev.EventsGathered(time_s=world.now_s, events=(*exits, lost)))
    (generation,) = only(effects, ef.SetGeneration)
    assert generation.generation == before + 1
    assert [member.node for member in generation.members] == ["n0", "n6", "n7"]
    assert generation.abort, "some of them died"
    assert len(only(effects, ef.Solve)) == 1
