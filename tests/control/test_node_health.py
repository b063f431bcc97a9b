"""Failed starts: bad nodes are set aside, bad jobs fail, and a generation that never forms is not renewed for ever."""

from __future__ import annotations

import pytest
from world import World, only

from offcut.control import Settings, node_health
from offcut.model import effects as ef
from offcut.model import events as ev


@pytest.fixture
def world() -> World:
    return World()


def fail_starts(world: World, *nodes: str, times: int = 1) -> None:
    """Let workers that are starting on these nodes raise, this many times."""
    for _ in range(times):
        for node in nodes:
            while True:
                starting = [p.member for p in world.processes.values() if p.member.node == node and not p.generation]
                if starting:
                    break
                world.next()
            world.exit(starting[0], "failed", "Traceback\nOSError: no such device")


def joining(world: World, *joiners: str, **fields) -> World:
    """Let job `a` train on n1 and n2, and give it the joiners, on which no worker becomes ready."""
    world.submit("a", **fields)
    world.offer("n1", "n2")
    world.until_members("a", ["n1", "n2"])
    world.never_ready.update(joiners)
    world.offer(*joiners)
    world.run_until(lambda: all(world.state.nodes[name].worker == "starting" for name in joiners))
    return world


def test_a_bad_node_does_not_fail_a_job_that_trains_elsewhere(world):
    joining(world, "n3", max_failures=0)
    fail_starts(world, "n3", times=3)
    assert world.state.jobs["a"].failures == 0
    assert world.members("a") == ["n1", "n2"]
    assert "n3" not in world.pilots, "it was released"
    assert world.state.set_aside["n3"] == "3 starts in a row failed on it; the last, of a: OSError: no such device"
    assert world.story("n3")[-1].startswith("set aside for 600 s: 3 starts in a row failed on it")


def test_a_node_that_was_set_aside_is_not_claimed_before_its_time(world):
    joining(world, "n3")
    fail_starts(world, "n3", times=3)
    world.never_ready.clear()
    world.offer("n3")
    world.run(500)
    assert world.members("a") == ["n1", "n2"]
    world.until_members("a", ["n1", "n2", "n3"], within_s=120.0)
    assert not world.state.set_aside


def test_the_starts_on_a_failing_node_wait_longer_and_longer(world):
    joining(world, "n3")
    starts = []
    for _ in range(2):
        fail_starts(world, "n3")
        at_s = world.now_s
        while not [p for p in world.processes.values() if p.member.node == "n3"]:
            world.next()
        starts.append(round(world.now_s - at_s, 2))
    assert starts == [0.5, 1.0]


def test_a_script_that_can_start_nowhere_sets_no_node_aside(world):
    """On the second node it fails too: the job is at fault, and after its forgiven failures it has failed."""
    joining(world, "n3", "n4", max_failures=2)
    fail_starts(world, "n3", "n4", times=2)
    assert world.state.jobs["a"].failures > 0
    while world.state.jobs["a"].phase == "running":
        fail_starts(world, "n4")
    assert world.state.jobs["a"].phase == "failed"
    assert not world.state.set_aside


def test_a_job_that_trains_on_no_node_fails(world):
    world.submit("a", max_failures=1)
    world.never_ready.add("n1")
    world.offer("n1")
    fail_starts(world, "n1", times=2)
    assert world.state.jobs["a"].phase == "failed"
    assert not world.state.set_aside


def two_jobs_that_cannot_start_on_n1(world: World, *, family: str | None = None) -> None:
    world.never_ready.add("n1")
    world.submit("a", max_failures=1, family=family)
    world.offer("n1")
    fail_starts(world, "n1", times=2)
    assert world.state.jobs["a"].phase == "failed"
    world.submit("b", max_failures=3, family=family)
    fail_starts(world, "n1", times=1)
    assert world.state.jobs["b"].failures == 1


def test_a_node_on_which_two_jobs_cannot_start_is_set_aside_although_neither_is_well(world):
    world.submit("first", family="sweep")
    world.offer("n2")
    world.until_members("first", ["n2"])
    world.send(ev.JobPaused(time_s=world.now_s, job="first"))  # the family has trained: its scripts can start
    world.lose("n2")
    two_jobs_that_cannot_start_on_n1(world, family="sweep")
    assert "n1" in world.state.set_aside


def train_a_new_job(world: World, name: str) -> bool:
    """Let a new job of one node train, and end it. Every start on n1 fails; return whether one did."""
    world.offer(*sorted({"n1", "n2"} - world.state.nodes.keys()))
    world.submit(name, sizes="1", max_failures=1)
    world.run_until(lambda: world.processes)
    failed = [process.member.node for process in world.processes.values()] == ["n1"]
    if failed:
        fail_starts(world, "n1")
    world.until_members(name, ["n2"])
    world.send(ev.JobCancelled(time_s=world.now_s, job=name))
    world.run(30.0)
    return failed


def test_a_bad_node_does_not_fail_one_new_job_after_another(world):
    world.never_ready.add("n1")
    assert train_a_new_job(world, "a"), "nothing is known of the nodes yet"
    assert not train_a_new_job(world, "b"), "another node is given first"
    world.run(world.state.settings.aside_s)
    train_a_new_job(world, "c")
    assert not [name for name, job in world.state.jobs.items() if job.phase == "failed"]


def test_failed_starts_count_against_the_node_once_their_job_has_trained_elsewhere(world):
    world.never_ready.add("n1")
    world.offer("n1")
    world.submit("a", sizes="1", max_failures=9)
    fail_starts(world, "n1", times=3)
    assert not node_health.is_bad(world.state, "n1", its_fault=True), "its script may never start"
    world.offer("n2")
    fail_starts(world, "n1")
    world.until_members("a", ["n2"])
    assert node_health.is_bad(world.state, "n1", its_fault=True)


def test_scripts_that_have_never_trained_set_no_node_aside(world):
    two_jobs_that_cannot_start_on_n1(world)
    fail_starts(world, "n1", times=2)
    assert not world.state.set_aside
    assert "n1" in world.pilots


def test_a_node_that_is_forgiven_by_hand_is_claimed_at_once(world):
    joining(world, "n3")
    fail_starts(world, "n3", times=3)
    world.never_ready.clear()
    world.offer("n3")
    world.run(20)
    assert world.members("a") == ["n1", "n2"]
    world.send(ev.NodesForgiven(time_s=world.now_s, nodes=("n3", "unknown")))
    assert not world.state.set_aside
    assert "n3" not in world.state.failed_starts
    world.until_members("a", ["n1", "n2", "n3"])


def test_all_nodes_are_forgiven_at_once(world):
    joining(world, "n3")
    fail_starts(world, "n3", times=3)
    world.never_ready.clear()
    world.offer("n3")
    world.send(ev.ReleaseAsked(time_s=world.now_s, nodes=("n2",)))
    world.offer("n2")
    world.send(ev.NodesForgiven(time_s=world.now_s))
    world.until_members("a", ["n1", "n2", "n3"])


def test_a_first_step_clears_a_node(world):
    joining(world, "n3")
    fail_starts(world, "n3", times=2)
    world.never_ready.clear()
    world.until_members("a", ["n1", "n2", "n3"])
    assert "n3" not in world.state.failed_starts
    world.exit(world.member("a", "n3"), "lost", "killed by signal 9")
    assert world.state.jobs["a"].failures == 1, "after its first step a death is the job's, as ever"


def test_a_node_that_never_boots_is_set_aside_after_three_claims(world):
    world.submit("a")
    world.never_boots.add("n1")
    for _ in range(5):
        if "n1" not in world.state.nodes:
            world.offer("n1")
        world.run(70)
    claims = [claim for claim in world.effects(ef.Claim) if "n1" in claim.nodes]
    assert len(claims) == 3
    assert world.state.set_aside["n1"] == "3 starts in a row failed on it; the last: its agent did not answer"


# -- generations that do not form
# ------------------------------------------------------------------------------------------


def break_generation(world: World) -> list[ef.Effect]:
    job = world.state.jobs["a"]
    member = job.members[-1]
    return world.send(
        ev.GenerationBroken(
            time_s=world.now_s, job="a", generation=job.generation, member=member, detail="a network without a route"
        )
    )


def broken_for_ever(world: World, **fields) -> list[float]:
    """Every generation of job `a` breaks at once until its workers are started again; the waits between the
    generations.
    """
    world.submit("a", **fields)
    world.offer("n1", "n2")
    world.never_forms.add("a")
    waits = []
    while not world.state.jobs["a"].members:
        world.next()
    while True:
        job = world.state.jobs["a"]
        generation, at_s = job.generation, world.now_s
        break_generation(world)
        while job.generation == generation:
            world.next()
        if not job.members:
            return waits
        waits.append(world.now_s - at_s)


def test_a_generation_that_breaks_again_and_again_is_renewed_more_and_more_rarely(world):
    assert broken_for_ever(world) == pytest.approx([1, 2, 4, 8, 16, 32])
    job = world.state.jobs["a"]
    assert job.failures == 1
    assert any(
        "7 generations in a row did not form; the last broke at n2: a network" in line for line in world.story("a")
    )
    world.never_forms.clear()
    world.until_members("a", ["n1", "n2"])
    assert job.failures == 0, "a step forgives"


def test_a_job_whose_generations_never_form_fails_with_the_last_reason(world):
    broken_for_ever(world, max_failures=0)
    assert world.state.jobs["a"].phase == "failed"
    assert world.state.jobs["a"].reason == (
        "7 generations in a row did not form; the last broke at n2: a network without a route"
    )


def test_a_generation_that_forms_resets_the_count():
    world = World(Settings(most_renewals=2))
    world.submit("a")
    world.offer("n1", "n2")
    world.until_members("a", ["n1", "n2"])
    for _ in range(5):
        generation = world.state.jobs["a"].generation
        assert not only(break_generation(world), ef.SetGeneration)
        world.run_until(lambda before=generation: world.state.jobs["a"].formed_generation > before)
    assert len([generation for generation in world.generations("a") if generation.abort]) == 5
    assert world.state.jobs["a"].failures == 0
