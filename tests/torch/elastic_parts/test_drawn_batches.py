"""Global batches that a function draws: alone as the script draws them, and the same for a worker that joins late."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from offcut.errors import InputError
from offcut.torch.elastic_parts.batch_division import BatchDivision
from offcut.torch.elastic_parts.drawn_batches import DrawnBatches
from offcut.torch.elastic_parts.loop_random import LoopRandom
from offcut.torch.elastic_parts.rows import rows_in
from offcut.torch.state.cursor import Cursor


def draw() -> dict[str, Any]:
    """Return a batch of which each part comes from another generator."""
    return {"x": torch.rand(3, 2), "y": (torch.from_numpy(np.random.rand(3)), torch.full((3,), random.random()))}


ALONE: Any = SimpleNamespace(rank=0, world=1)


def drawn(source: DrawnBatches, offset: int) -> Any:
    (batch,) = source.load(ALONE, Cursor(0, offset))
    return batch


def seed() -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


def plain(count: int) -> list[Any]:
    seed()
    return [draw() for _ in range(count)]


def source_of(function: Callable[[], Any], *, seeded: bool) -> tuple[DrawnBatches, LoopRandom]:
    random_numbers = LoopRandom([], seeded=seeded)
    random_numbers.record_start()
    return DrawnBatches(function, BatchDivision(1), random_numbers), random_numbers


def member(function: Callable[[], Any] = draw, *, seeded: bool = True) -> DrawnBatches:
    seed()
    return source_of(function, seeded=seeded)[0]


def look(source: DrawnBatches, offset: int) -> None:
    source.look(ALONE, Cursor(0, offset), offset)


def trained_to(source: DrawnBatches, step: int, noise: Callable[[], Any] = lambda: None) -> list[Any]:
    """Return the batches up to `step`, as a loop asks for them; the script draws `noise` between them."""
    source.begin(0, None)
    batches = []
    for offset in range(step):
        look(source, offset)
        batches.append(drawn(source, offset))
        noise()
    return batches


def same(found: list[Any], expected: list[Any]) -> bool:
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    return True


def test_alone_they_are_drawn_by_the_scripts_own_random_numbers() -> None:
    seed()
    expected = [(draw(), torch.rand(1)) for _ in range(5)]
    noises: list[torch.Tensor] = []
    batches = trained_to(member(seeded=False), 5, lambda: noises.append(torch.rand(1)))
    assert same([*zip(batches, noises, strict=True)], expected)


def test_in_a_job_they_do_not_depend_on_what_the_script_draws_besides() -> None:
    assert same(trained_to(member(), 5, lambda: torch.rand(7)), plain(5))


def test_a_worker_that_joins_draws_from_the_step_on_at_which_the_others_are() -> None:
    first = member()
    expected = trained_to(first, 251)
    state = first.state_dict()
    torch.seed()
    calls: list[int] = []

    def counted() -> Any:
        calls.append(1)
        return draw()

    joiner, _ = source_of(counted, seeded=True)
    joiner.load_state_dict(state)
    joiner.begin(0, None)
    look(joiner, 250)
    assert same([drawn(joiner, 250)], expected[250:])
    assert len(calls) == 1
    assert joiner.state_dict() == state
    for offset in range(251, 420):
        for source in (first, joiner):
            look(source, offset)
        assert same([drawn(joiner, offset)], [drawn(first, offset)])
        assert joiner.state_dict()["order"] == first.state_dict()["order"] != state["order"] * (offset > 300)


def test_a_step_that_failed_gets_the_same_batch_again() -> None:
    source = member()
    trained_to(source, 200)
    look(source, 200)
    before = source.state_dict()
    batch = drawn(source, 200)
    source.load_state_dict(before)
    look(source, 200)
    assert same([drawn(source, 200)], [batch])
    assert source.state_dict() == before


def test_a_worker_that_joins_between_two_loops_goes_on_with_the_same_numbers() -> None:
    first = member()
    expected = trained_to(first, 5)
    first.leave()
    state = first.state_dict()
    torch.seed()
    joiner, _ = source_of(draw, seeded=True)
    joiner.load_state_dict(state)
    for source in (first, joiner):
        source.begin(1, None)
    assert same([drawn(joiner, 0)], [drawn(first, 0)])
    assert same([*expected, drawn(first, 0)], plain(6))


def test_a_member_that_has_missed_batches_goes_on_where_the_others_are() -> None:
    first, behind = member(), member()
    batches = trained_to(first, 8)
    trained_to(behind, 5)
    behind.load_state_dict(first.state_dict())
    look(behind, 7)
    assert same([drawn(behind, 7)], batches[7:])


def test_members_that_draw_differently_have_another_hash() -> None:
    first, other = member(), member(lambda: {"x": torch.rand(3, 2) + 1})
    for source in (first, other):
        trained_to(source, 2)
    assert first.state_dict()["order"] != other.state_dict()["order"]


def test_members_share_the_rows_out_and_one_alone_has_the_batch_itself() -> None:
    source = member()
    (batch,) = trained_to(source, 1)
    parts = [source.load(SimpleNamespace(rank=rank, world=2), Cursor(0, 0))[0] for rank in range(2)]
    assert [len(part["x"]) for part in parts] == [2, 1]
    assert torch.equal(parts[0]["x"], batch["x"][::2])
    assert torch.equal(parts[1]["y"][0], batch["y"][0][1::2])
    assert drawn(source, 0)["x"] is batch["x"]


@pytest.mark.parametrize("batch", [(), torch.tensor(1.0), torch.zeros(0, 2)])
def test_a_batch_without_rows_is_an_error(batch: Any) -> None:
    with pytest.raises(InputError, match="no tensor with rows"):
        rows_in(batch)


def test_tensors_with_different_numbers_of_rows_are_an_error() -> None:
    with pytest.raises(InputError, match="different numbers of rows"):
        rows_in((torch.zeros(3), torch.zeros(4)))
