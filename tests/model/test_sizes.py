"""The sizes that a job may have."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from offcut.errors import InputError
from offcut.model import Sizes

any_sizes = st.sets(st.integers(1, 60), min_size=1).map(lambda found: Sizes(tuple(sorted(found))))


@given(any_sizes, st.integers(-2, 70))
@settings(max_examples=100, deadline=None)
def test_largest_within_is_the_largest_size_of_at_most_that_many_nodes(sizes, nodes):
    assert sizes.largest_within(nodes) == max((n for n in sizes.allowed if n <= nodes), default=0)
    assert (nodes in sizes) == (nodes in sizes.allowed)


@given(any_sizes)
@settings(max_examples=60, deadline=None)
def test_sizes_survive_a_round_trip_through_text(sizes):
    assert Sizes.parse(str(sizes)) == sizes
    assert sizes.contiguous == (tuple(sizes.allowed) == tuple(range(sizes.smallest, sizes.largest + 1)))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("4", (4,)),
        ("1:3", (1, 2, 3)),
        ("2:8:2", (2, 4, 6, 8)),
        ("2:7:2", (2, 4, 6)),
        (" 1, 2,4 ", (1, 2, 4)),
        ("3:3", (3,)),
    ],
)
def test_ways_to_write_sizes(text, allowed):
    assert tuple(Sizes.parse(text).allowed) == allowed


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("8:1", "sizes '8:1': min 8 > max 1."),
        ("1:8:0", "sizes '1:8:0': the stride is 0."),
        ("0", "sizes: 0 is below 1."),
        ("-2,4", "sizes: -2 is below 1."),
        ("4,2", "sizes: 2 follows 4."),
        ("2,2", "sizes: 2 follows 2."),
        ("", "sizes '' cannot be read."),
        ("1.5", "sizes '1.5' cannot be read."),
        ("1:", "sizes '1:' cannot be read."),
        ("one", "sizes 'one' cannot be read."),
        ("1:1000000000000", "sizes '1:1000000000000': 1000000000000 is beyond any machine."),
        ("1,1000001", "sizes: 1000001 is beyond any machine."),
        ("1:1000000:3", "sizes: 333,334 of them are listed, at most 10,000 may be."),
        ("1:" + "9" * 5000, f"sizes '1:{'9' * 38}...' cannot be read."),
    ],
)
def test_invalid_sizes_are_refused_with_a_reason(text, sentence):
    with pytest.raises(InputError) as caught:
        Sizes.parse(text)
    assert caught.value.what == sentence
    assert caught.value.next_step


def test_a_list_and_a_range_of_the_same_sizes_are_equal():
    assert Sizes((1, 2, 3)) == Sizes.parse("1:3")
    assert Sizes((2, 4, 6, 8)) == Sizes.parse("2:8:2")
    assert str(Sizes((2, 4, 6, 8))) == "2:8:2"
    assert str(Sizes((1, 2, 4))) == "1,2,4"
    assert str(Sizes((3,))) == "3"


def test_a_large_range_takes_no_memory():
    sizes = Sizes.parse("1:1000000")
    assert isinstance(sizes.allowed, range)
    assert sizes.largest_within(999) == 999
    assert TypeAdapter(Sizes).dump_json(sizes) == b'"1:1000000"'


@pytest.mark.parametrize("written", ['"1:3"', '{"allowed": [1, 2, 3]}', '{"allowed": "1:3:1"}'])
def test_sizes_are_read_from_json(written):
    assert TypeAdapter(Sizes).validate_json(written) == Sizes.parse("1:3")


@pytest.mark.parametrize("written", ["3", "null", "{}", '{"allowed": [0]}', '"x"', '{"allowed": 3}'])
def test_json_that_is_not_a_list_of_sizes_is_refused(written):
    with pytest.raises(ValidationError):
        TypeAdapter(Sizes).validate_json(written)


def test_an_empty_list_of_sizes_is_refused():
    with pytest.raises(InputError, match="sizes: none given"):
        Sizes(())
