"""The saving of the state when workers leave."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offcut.membership.generation import Generation
from offcut.membership.leaving import (
    Departure,
    layers_only_here,
    others_go_on,
    saves_layers,
    saves_replica,
    saves_replica_in_time,
)


def generation(number: int, workers: str) -> Generation:
    return Generation(number, tuple(workers), store="", job="")


def leaves(worker: str, formed: str, newest: str, gone: tuple[int, ...] = (), *, gone_known: bool = True) -> bool:
    departure = Departure(worker, generation(1, formed), generation(2, newest), gone, gone_known=gone_known)
    return saves_replica(departure)


def test_nothing_is_saved_if_a_member_goes_on_with_the_state() -> None:
    assert not leaves("a", "abc", "b")
    assert not leaves("a", "abc", "bcd", gone=(0, 1))


def test_if_all_leave_the_first_that_is_left_saves_for_all() -> None:
    assert [worker for worker in "abc" if leaves(worker, "abc", "d", gone=())] == ["a"]
    assert [worker for worker in "bc" if leaves(worker, "abc", "d", gone=(0,))] == ["b"]
    assert [worker for worker in "abc" if leaves(worker, "abc", "abc", gone=(0, 1, 2))] == ["a"]


def test_where_it_is_not_known_who_has_left_each_one_saves() -> None:
    assert all(leaves(worker, "abc", "d", gone_known=False) for worker in "abc")


def test_a_worker_that_was_never_a_member_has_nothing_to_save() -> None:
    departure = Departure("a", None, generation(1, "b"), (), gone_known=False)
    assert not saves_replica(departure)
    assert not saves_layers(departure)


@given(
    formed=st.sets(st.sampled_from("abcdef"), min_size=1),
    newest=st.sets(st.sampled_from("abcdefgh")),
    gone=st.sets(st.integers(0, 5)),
)
def test_a_member_that_stays_has_the_state_or_exactly_one_saves_it(
    formed: set[str], newest: set[str], gone: set[int]
) -> None:
    members, there = "".join(sorted(formed)), "".join(sorted(newest))
    known = tuple(rank for rank in gone if rank < len(members))
    stay = [worker for rank, worker in enumerate(members) if rank not in known and worker in newest]
    saving = [worker for worker in members if worker not in stay and leaves(worker, members, there, known)]
    assert len(saving) == (0 if stay else 1)


def test_a_member_saves_what_another_left_to_it() -> None:
    """a leaves when generation 2 is told, in which b goes on. b hears of that one and of generation 3 at once, and a
    does not save for all any more."""
    formed, second, third = generation(1, "ab"), generation(2, "b"), generation(3, "")
    assert not saves_replica(Departure("a", formed, second, (), gone_known=True))
    assert saves_replica(Departure("b", formed, third, (), gone_known=True))
    assert saves_replica_in_time("b", formed, third)


@given(
    formed=st.sets(st.sampled_from("abcd"), min_size=1),
    later=st.lists(st.sets(st.sampled_from("abcdef")), min_size=1, max_size=4),
    data=st.data(),
)
def test_the_state_is_not_lost_if_members_have_heard_of_different_generations(
    formed: set[str], later: list[set[str]], data: st.DataObject
) -> None:
    """A worker that a generation leaves out does not come back: its node's next worker has another name."""
    members = generation(1, "".join(sorted(formed)))
    told, stay = [], formed
    for i, workers in enumerate(later):
        stay = stay & workers
        told.append(generation(2 + i, "".join(sorted(stay | (workers - formed)))))
    newest = {worker: data.draw(st.sampled_from(told)) for worker in members.workers}
    goes_on = [worker for worker in members.workers if worker in newest[worker].workers]
    saves = [
        worker
        for worker in members.workers
        if worker not in goes_on and saves_replica(Departure(worker, members, newest[worker], (), gone_known=True))
    ]
    assert goes_on or saves


def test_layers_are_saved_unless_they_were_handed_over() -> None:
    for handed_over in (True, False):
        departure = Departure("a", generation(1, "ab"), None, (0,), gone_known=True, handed_over=handed_over)
        assert saves_layers(departure) is not handed_over


@pytest.mark.parametrize(
    ("newest", "goes"),
    [(None, False), (generation(1, "ab"), False), (generation(2, "ab"), False), (generation(2, "bc"), True)],
)
def test_a_worker_leaves_its_step_to_the_others_once_they_go_on_without_it(
    newest: Generation | None, goes: bool
) -> None:
    assert others_go_on("a", generation(1, "ab"), newest) is goes
    assert not others_go_on("a", generation(1, "ab"), generation(2, "cd")), "strangers do not have the state"


def test_a_worker_alone_always_saves_in_time() -> None:
    assert saves_replica_in_time("a", generation(1, "a"), None)
    assert saves_replica_in_time("a", generation(1, "a"), generation(2, "b"))


def test_of_several_wanted_members_the_first_saves_in_time() -> None:
    current = generation(1, "abc")
    for newest, worker in itertools.product((None, current, generation(2, "cd")), "abc"):
        assert not saves_replica_in_time(worker, current, newest), "another member may go on"
    assert [worker for worker in "abc" if saves_replica_in_time(worker, current, generation(2, "d"))] == ["a"]


def test_only_layers_that_no_other_member_has_are_saved_in_time() -> None:
    held = [{0, 1}, {1, 2}, {3}]
    assert layers_only_here(held, 0, {0, 1}) == {0}
    assert layers_only_here(held, 2, {3}) == {3}
    assert layers_only_here([{0}, {0}], 1, {0}) == frozenset()
