"""Every sample of a global batch is worked on by exactly one member, whatever the policy and the size."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from offcut.errors import InputError
from offcut.torch.state.cursor import Cursor
from offcut.torch.step.batch_policy import BatchPolicy
from offcut.torch.step.sampler import Sampler

small = st.integers(1, 12)


@given(samples=st.integers(1, 60), world=small, limit=st.none() | small, shards=st.none() | small)
def test_parts_cover_the_batch_once(samples: int, world: int, limit: int | None, shards: int | None) -> None:
    policy = BatchPolicy(global_batch=samples, max_local_batch=limit, virtual_shards=shards)
    batch = torch.randperm(samples) + 100
    counted, weights = [], 0.0
    for rank in range(world):
        parts = policy.parts(batch, rank, world)
        assert parts, "every member has something to work on"
        own = [part for part in parts if part.weight > 0]
        share = policy.share(batch, rank, world).tolist()
        assert [i for part in own for i in part.indices.tolist()] == share
        assert all(len(part.indices) <= (limit or samples) for part in parts)
        assert all(part.weight == len(part.indices) / samples for part in own)
        counted += share
        weights += sum(part.weight for part in parts)
    assert sorted(counted) == sorted(batch.tolist())
    assert weights == pytest.approx(1.0)


@given(samples=st.integers(1, 60), world=small, limit=st.none() | small, shards=small)
def test_virtual_shards_are_the_same_at_every_size(samples: int, world: int, limit: int | None, shards: int) -> None:
    policy = BatchPolicy(global_batch=samples, max_local_batch=limit, virtual_shards=shards)
    batch = torch.randperm(samples)

    def all_parts(size: int) -> set[tuple[int, tuple[int, ...]]]:
        parts = [part for rank in range(size) for part in policy.parts(batch, rank, size) if part.weight > 0]
        return {(part.stream, tuple(part.indices.tolist())) for part in parts}

    assert all_parts(world) == all_parts(1)


@given(samples=st.integers(1, 60), world=small)
def test_shares_differ_by_one_sample_at_most(samples: int, world: int) -> None:
    policy = BatchPolicy(global_batch=samples)
    sizes = [len(policy.share(torch.arange(samples), rank, world)) for rank in range(world)]
    assert max(sizes) - min(sizes) <= 1


def test_more_members_than_samples_work_at_weight_zero() -> None:
    policy = BatchPolicy(global_batch=2)
    weights = [policy.parts(torch.tensor([7, 9]), rank, 4)[0].weight for rank in range(4)]
    assert weights == [0.5, 0.5, 0.0, 0.0]


def test_a_batch_per_rank_grows_with_the_size() -> None:
    assert [BatchPolicy(batch_per_rank=8).size(world) for world in (1, 2, 5)] == [8, 16, 40]


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, "global_batch"),
        ({"global_batch": 0}, "global_batch is 0"),
        ({"global_batch": 4, "batch_per_rank": 4}, "either"),
        ({"global_batch": 4, "max_local_batch": -1}, "max_local_batch"),
        ({"batch_per_rank": 4, "virtual_shards": 2}, "virtual_shards"),
        ({"global_batch": 2.5}, "whole number"),
    ],
)
def test_an_invalid_policy_is_refused_with_the_reason(fields: dict, word: str) -> None:
    with pytest.raises(InputError, match=word):
        BatchPolicy(**fields)


@given(samples=st.integers(1, 50), sizes=st.lists(st.integers(1, 20), min_size=1, max_size=5), seed=st.integers(0, 9))
def test_an_epoch_holds_every_sample_once_whatever_the_batch_sizes(samples: int, sizes: list[int], seed: int) -> None:
    sampler = Sampler(samples, seed)
    cursor, seen, turn = Cursor(3, 0), [], 0
    while not sampler.done(cursor):
        size = sizes[turn % len(sizes)]
        seen += sampler.batch(cursor, size).tolist()
        cursor, turn = sampler.after(cursor, size), turn + 1
    assert sorted(seen) == list(range(samples))
    assert len(sampler.batch(cursor, 5)) == 0


def test_epochs_are_shuffled_again_and_repeatably() -> None:
    first, again = Sampler(100, 1), Sampler(100, 1)
    one, two = first.batch(Cursor(0, 0), 100), first.batch(Cursor(1, 0), 100)
    assert not torch.equal(one, two)
    assert torch.equal(again.batch(Cursor(1, 0), 100), two)
    assert not torch.equal(Sampler(100, 2).batch(Cursor(0, 0), 100), one)


@given(
    samples=st.integers(1, 20),
    size=small,
    epochs=st.integers(0, 4),
    goal=st.none() | st.integers(-1, 90),
    steps_done=st.integers(0, 8),
    drop_last=st.booleans(),
)
def test_what_is_left_is_what_a_training_does(samples, size, epochs, goal, steps_done, drop_last) -> None:
    size = min(size, samples)
    sampler = Sampler(samples, 0, drop_last=drop_last)
    cursor, steps, trained = Cursor(), 0, 0
    told = sampler.left(cursor, epochs, size, goal)
    while cursor.epoch < epochs and (goal is None or trained < goal):
        if sampler.done(cursor):
            cursor = Cursor(cursor.epoch + 1, 0)
            continue
        if steps == steps_done:
            now = sampler.left(cursor, epochs, size, None if goal is None else goal - trained)
            assert (steps + now[0], trained + now[1]) == told
        trained += len(sampler.batch(cursor, size))
        cursor, steps = sampler.after(cursor, size), steps + 1
    assert (steps, trained) == told
