"""Members to which others cannot connect leave the generation; the state of the training stays."""

from __future__ import annotations

import pytest
from world import World

from offcut.control.unreachable_members import nodes_to_drop
from offcut.model import effects as ef
from offcut.model import events as ev

FOUR = ["n1", "n2", "n3", "n4"]


@pytest.mark.parametrize(
    ("pairs", "holders", "dropped"),
    [
        ([], FOUR, []),
        ([("n1", "n3"), ("n2", "n3"), ("n3", "n4")], FOUR, ["n3"]),
        ([("n1", "n2"), ("n1", "n3"), ("n1", "n4")], FOUR, ["n1"]),
        ([("n1", "n2")], FOUR, ["n2"]),
        ([("n1", "n2"), ("n1", "n3"), ("n1", "n4")], ["n1"], ["n4", "n3", "n2"]),
        ([("n1", "n2"), ("n1", "n3"), ("n1", "n4")], ["n1", "n2"], ["n1"]),
        ([("n1", "n2"), ("n3", "n4")], ["n4"], ["n3", "n2"]),
        ([("n1", "n2")], [], ["n2"]),
    ],
)
def test_which_nodes_are_dropped(pairs: list[tuple[str, str]], holders: list[str], dropped: list[str]) -> None:
    assert nodes_to_drop(FOUR, pairs, holders) == dropped


@pytest.fixture
def world() -> World:
    world = World()
    world.submit("a")
    world.offer("n1", "n2", "n3")
    world.until_members("a", ["n1", "n2", "n3"])
    return world


def cut_off(world: World, cut: str) -> None:
    """The job's newest generation breaks: this member and all others cannot connect to each other."""
    job = world.state.jobs["a"]
    for member in job.members:
        others = tuple(other.node for other in job.members if (other.node == cut) != (member.node == cut))
        world.send(
            ev.GenerationBroken(
                time_s=world.now_s, job="a", generation=job.generation, member=member, unreachable=others
            )
        )


def test_the_job_goes_on_without_a_node_that_is_cut_off(world: World) -> None:
    cut_off(world, "n3")
    assert world.members("a") == ["n1", "n2", "n3"], "others may still report"
    world.until_members("a", ["n1", "n2"], within_s=5.0)
    assert world.generations("a")[-1].abort, "what is in flight may never end"
    assert world.effects(ef.StopWorkers)[-1].members[0].node == "n3"
    assert "goes on without n3: no connection between it and n1, n2" in world.story("a")
    assert world.state.jobs["a"].failures == 0


def test_a_node_that_was_cut_off_once_is_tried_again(world: World) -> None:
    cut_off(world, "n3")
    world.until_members("a", ["n1", "n2"], within_s=5.0)
    world.until_members("a", ["n1", "n2", "n3"])
    assert not world.state.set_aside
    assert not world.state.failed_starts


def test_a_node_that_is_cut_off_again_and_again_is_set_aside(world: World) -> None:
    cut_off(world, "n3")
    world.until_members("a", ["n1", "n2"], within_s=5.0)
    for _ in range(2):
        world.never_forms.add("a")  # with n3
        world.run_until(lambda: world.members("a") == ["n1", "n2", "n3"])
        cut_off(world, "n3")
        world.run_until(lambda: world.members("a") == ["n1", "n2"])
        world.never_forms.clear()
        world.until_members("a", ["n1", "n2"], within_s=10.0)
    assert world.state.set_aside["n3"] == (
        "3 starts in a row failed on it; the last, of a: no connection between it and n1, n2"
    )
    assert "n3" not in world.pilots, "it was released"


def test_a_break_for_another_reason_drops_no_member(world: World) -> None:
    job = world.state.jobs["a"]
    world.send(ev.GenerationBroken(time_s=world.now_s, job="a", generation=job.generation, member=job.members[0]))
    world.run(10.0)
    assert len(world.generations("a")[-1].members) == 3
