"""A generation that is sent as a change of another one is read as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offcut.errors import ProtocolError
from offcut.wire import messages as m
from offcut.wire.generation_changes import GenerationReader, change_between


def members(*incarnations: int) -> tuple[m.GenerationMember, ...]:
    return tuple(m.GenerationMember(node=f"n{i % 40}", incarnation=i) for i in incarnations)


def generation(number: int, of: tuple[m.GenerationMember, ...], **fields: object) -> m.NewGeneration:
    given = {"store": "h:1", "secret": f"s{number}", "abort": False, **fields}
    return m.NewGeneration.model_validate({"job": "a", "generation": number, "members": of, **given})


def over_the_wire(message: m.NewGeneration | m.GenerationChange) -> m.NewGeneration | m.GenerationChange:
    read = m.to_agent(message.encoded)
    assert isinstance(read, m.NewGeneration | m.GenerationChange)
    return read


@given(
    st.lists(st.sets(st.integers(1, 60), max_size=30), min_size=2, max_size=6),
    st.booleans(),
)
def test_changes_restore_the_whole_generation(sets: list[set[int]], abort: bool) -> None:
    reader = GenerationReader()
    base: m.NewGeneration | None = None
    order: list[int] = []
    for number, wanted in enumerate(sets, 1):
        gone = [i for i in order if i not in wanted]
        order = [i for i in order if i in wanted] + sorted(wanted.difference(order))
        departing = members(*gone[: len(gone) // 2])
        whole = generation(number, members(*order), departing=departing, abort=abort)
        change = change_between(base, whole) if base is not None else None
        assert reader.read(over_the_wire(change or whole)) == whole
        base = whole if whole.members else None


def test_one_of_a_thousand_that_leaves_is_told_in_a_few_bytes() -> None:
    base = generation(7, members(*range(1000)))
    new = generation(8, members(*range(1, 1000)), departing=members(0))
    change = change_between(base, new)
    assert change is not None
    assert len(change.encoded) < 200 < len(new.encoded)


@pytest.mark.parametrize(
    "new",
    [
        generation(8, members(*reversed(range(10)))),
        generation(8, members(*range(100, 110))),
        generation(8, members(*range(9)), departing=members(77)),
    ],
)
def test_generations_that_changes_cannot_express_are_sent_whole(new: m.NewGeneration) -> None:
    assert change_between(generation(7, members(*range(10))), new) is None


def test_a_change_of_an_unknown_generation_is_refused() -> None:
    change = change_between(generation(7, members(*range(10))), generation(8, members(*range(9))))
    assert change is not None
    reader = GenerationReader()
    with pytest.raises(ProtocolError, match="not told"):
        reader.read(change)
    reader.read(generation(6, members(*range(10))))
    with pytest.raises(ProtocolError, match="not told"):
        reader.read(change)
