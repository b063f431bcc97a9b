"""Moves of layers: only what is lacking, from a rank that has it, in rounds of disjoint pairs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_job import SHAPES, plan

from offcut.errors import InputError
from offcut.pipeline.layer_moves import (
    layers_by_first_holder,
    layers_by_rank,
    layers_to_take_over,
    missing_layers,
    rounds_of_moves,
)
from offcut.pipeline.plan_set import PlanSet, plan_set, read_plans

LAYERS = 7
BYTES = [100, 1, 50, 50, 7, 0, 30]
some_layers = st.frozensets(st.integers(0, LAYERS - 1))
ranks = st.integers(1, 6)


@st.composite
def states(draw):
    world = draw(ranks)
    return [draw(some_layers) for _ in range(world)], [draw(some_layers) for _ in range(world)]


@settings(max_examples=200, deadline=None)
@given(states())
def test_each_rank_gets_what_it_lacks_and_nothing_else(state):
    have, need = state
    there = [set(layers) for layers in have]
    got = [set() for _ in have]
    for turn in rounds_of_moves(have, need, BYTES):
        assert turn, "no empty round"
        busy = [rank for move in turn for rank in (move.giver, move.receiver)]
        assert len(busy) == len(set(busy)), "one thing at a time"
        before = [set(layers) for layers in there]
        for move in turn:
            assert set(move.layers) <= before[move.giver], "only what the giver has by then"
            assert not set(move.layers) & there[move.receiver], "nothing twice"
            there[move.receiver] |= set(move.layers)
            got[move.receiver] |= set(move.layers)
    gone = missing_layers(have, LAYERS)
    for mine, wanted, received in zip(have, need, got, strict=True):
        assert received == (wanted - mine) - gone


def test_a_rank_that_has_received_a_layer_sends_it_on():
    """One giver, four receivers: 1, then 2 at a time, as many rounds as a doubling takes."""
    turns = rounds_of_moves([{0}, set(), set(), set(), set()], [{0}] * 5, BYTES)
    assert [len(turn) for turn in turns] == [1, 2, 1]


@settings(max_examples=200, deadline=None)
@given(states(), st.data())
def test_staying_ranks_take_over_every_layer_that_only_leaving_ranks_have(state, data):
    have, wish = state
    leaving = data.draw(st.frozensets(st.integers(0, len(have) - 1)))
    takes = layers_to_take_over(have, leaving, wish, BYTES)
    stay = [rank for rank in range(len(have)) if rank not in leaving]
    assert all(not takes[rank] for rank in leaving)
    if stay:
        kept = frozenset().union(*(have[rank] for rank in stay))
        going = frozenset().union(*(have[rank] for rank in leaving)) - kept
        assert frozenset().union(*takes) == going
        for rank in stay:
            wished_by_nobody = going.difference(*(wish[other] for other in stay))
            assert takes[rank] <= (wish[rank] & going) | wished_by_nobody


def test_placement_and_who_saves_what():
    held = layers_by_rank(plan("2x2"))
    assert held == (frozenset(range(4)), frozenset(range(4)), frozenset({4, 5}), frozenset({4, 5}))
    assert layers_by_first_holder(held) == [frozenset(range(4)), frozenset(), frozenset({4, 5}), frozenset()]
    assert sum(map(len, layers_by_first_holder(layers_by_rank(plan("3"))))) == 6


def test_a_resize_moves_only_the_layers_that_change_places():
    """Two stages become three: the first keeps its layers, the second one of its four."""
    (turn,) = rounds_of_moves([*layers_by_rank(plan("2")), frozenset()], layers_by_rank(plan("3")), [1] * 6)
    (move,) = turn
    assert (move.giver, move.receiver, move.layers) == (1, 2, (3, 4, 5))


def test_a_plan_set_has_sizes_and_a_curve_and_is_read_back_from_its_file(tmp_path):
    import json

    plans = plan_set(plan(name) for name in ("4", "1", "2"))
    assert plans.devices == (1, 2, 4)
    assert str(plans.sizes()) == "1,2,4"
    assert tuple(plans.sizes(2).allowed) == (1, 2)
    assert plans.curve().rate_at(4) == pytest.approx(plan("4").samples_per_s)
    (tmp_path / "p.json").write_text(json.dumps(plans.to_json()))
    assert read_plans(tmp_path / "p.json") == plans
    assert plans.one_device_plan() == plan("1")


def test_without_a_plan_for_one_device_all_layers_are_on_it():
    alone = PlanSet((plan("2"),)).one_device_plan()
    assert (alone.devices, alone.cuts, alone.batch) == (1, (0, 6), 48)
    assert layers_by_rank(alone) == (frozenset(range(6)),)


@pytest.mark.parametrize(
    ("plans", "sentence"),
    [
        ((), "has no plan"),
        ((plan("2"), plan("2")), "two plans for 2 devices"),
        ((plan("2"), plan("1")), "two plans for 1 devices"),
    ],
)
def test_an_inconsistent_plan_set_is_refused(plans, sentence):
    with pytest.raises(InputError, match=sentence):
        PlanSet(plans)


def test_plans_of_two_batches_are_refused():
    from dataclasses import replace

    with pytest.raises(InputError, match="a resize would change the training"):
        PlanSet((plan("1"), replace(plan("2"), batch=96)))


def test_every_shape_of_the_live_tests_covers_the_model():
    for name in SHAPES:
        assert missing_layers(layers_by_rank(plan(name)), 6) == frozenset()
