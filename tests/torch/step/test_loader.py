"""Parts are loaded ahead in the order that is foreseen; the order of many samples takes no memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from offcut.torch.state.cursor import Cursor
from offcut.torch.step import sampler as sampler_module
from offcut.torch.step.batch import Fetcher
from offcut.torch.step.batch_policy import BatchPolicy, Part
from offcut.torch.step.keyed_permutation import KeyedPermutation
from offcut.torch.step.loader import PartLoader
from offcut.torch.step.sampler import Sampler

CPU = torch.device("cpu")


class Squares(Dataset):
    """Samples are read by rows, and counted."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []

    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> tuple[torch.Tensor, float]:
        raise AssertionError("it can read several rows at once")

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, float]]:
        self.rows.append(indices)
        return [(torch.full((2,), float(i * i)) + 0 * torch.rand(2), float(torch.rand(()))) for i in indices]


def parts(*, seed: int = 0) -> list[tuple[int, Part]]:
    """The parts of a member of two, of three data epochs of 40 samples in batches of 12."""
    sampler, policy, found, cursor, step = Sampler(40, seed), BatchPolicy(global_batch=12), [], Cursor(), 0
    while cursor.epoch < 3:
        batch = sampler.batch(cursor, 12)
        found += [(step, part) for part in policy.parts(batch, 1, 2)]
        cursor, step = sampler.after(cursor, 12), step + 1
        if sampler.done(cursor):
            cursor = Cursor(cursor.epoch + 1, 0)
    return found


def load(loader: PartLoader, wanted: list[tuple[int, Part]]) -> list[Any]:
    def following(i: int) -> Iterator[tuple[int, Part]]:
        return iter(wanted[i + 1 :])

    return [loader.load(part, step, lambda i=i: following(i)).data for i, (step, part) in enumerate(wanted)]


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_foreseen_is_loaded_in_one_go_over_the_ends_of_epochs(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    loader = PartLoader(Squares(), None, workers, CPU, seed=3)
    assert loader._shares is not None
    begin = loader._shares.begin
    monkeypatch.setattr(loader._shares, "begin", lambda shares: (begun.append(shares), begin(shares)))
    wanted = parts()
    found = load(loader, wanted)
    assert len(begun) == 1
    by_hand = Fetcher(Squares(), None, seed=3)
    for (step, part), (squares, noise) in zip(wanted, found, strict=True):
        assert squares[:, 0].tolist() == [float(i * i) for i in part.indices.tolist()]
        same = by_hand.fetch(part.indices, step, part.stream)
        assert torch.equal(noise, same[1]), "random numbers depend on the step and the part alone"
    loader.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_after_a_change_of_members_other_parts_are_loaded(workers: int) -> None:
    loader = PartLoader(Squares(), None, workers, CPU, seed=3)
    wanted, others = parts(), parts(seed=9)
    first = load(loader, wanted[:2])
    again = load(loader, [wanted[1], *others[2:4]])
    assert torch.equal(again[0][0], first[1][0]), "a step that failed comes again"
    assert again[2][0][:, 0].tolist() == [float(i * i) for i in others[3][1].indices.tolist()]
    loader.close()


def test_rows_are_read_at_once_where_the_dataset_can() -> None:
    dataset = Squares()
    load(PartLoader(dataset, None, 0, CPU, seed=0), parts()[:2])
    Fetcher(dataset, None, seed=0).fetch(torch.tensor([4, 5]), 0, 0)
    assert [len(rows) for rows in dataset.rows] == [6, 6, 2]


@pytest.mark.parametrize("length", [1, 2, 3, 5, 16, 17, 64, 65, 1000, 4097])
@pytest.mark.parametrize("key", [0, 1, 2**63 - 1])
def test_a_keyed_permutation_has_every_number_once(length: int, key: int) -> None:
    assert sorted(KeyedPermutation(length, key)[:].tolist()) == list(range(length))


def test_a_keyed_permutation_is_as_random_as_torch_s_own() -> None:
    """Over many keys each number comes to each place equally often; neighbours do not stay neighbours."""
    length, keys = 64, 1_000
    found = np.stack([KeyedPermutation(length, key)[:].numpy() for key in range(keys)])
    for place in (0, 1, 31, 63):
        counts, expected = np.bincount(found[:, place], minlength=length), keys / length
        assert ((counts - expected) ** 2 / expected).sum() < 63 + 5 * (2 * 63) ** 0.5
    assert abs((np.abs(np.diff(found, axis=1)) == 1).mean() - 2 / length) < 0.006
    large = KeyedPermutation(10**9, 7)[5_000_000:5_100_000].numpy()
    assert abs(large.mean() / 1e9 - 0.5) < 0.005
    assert abs(np.corrcoef(large[1:], large[:-1])[0, 1]) < 0.02


def test_a_large_dataset_s_order_is_computed_and_a_smaller_one_s_is_torch_s(monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch.equal(Sampler(40, 2).batch(Cursor(1, 4), 8), torch.randperm(40, generator=_seeded(2_000_007))[4:12])
    huge = Sampler(10**12, 2)
    batch = huge.batch(Cursor(3, 10**12 - 100), 256)
    assert len(batch) == 100
    assert batch.unique().numel() == 100
    assert int(batch.min()) >= 0
    assert int(batch.max()) < 10**12
    monkeypatch.setattr(sampler_module, "DRAWN_AT_ONCE", 10)
    whole = [Sampler(37, 5).batch(Cursor(0, place), 6) for place in range(0, 37, 6)]
    assert sorted(torch.cat(whole).tolist()) == list(range(37))


def _seeded(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def test_the_random_numbers_of_a_share_s_pieces_are_those_of_no_other_step() -> None:
    """20 ranks with two pieces each, over 40 steps: a seed for each."""
    policy = BatchPolicy(global_batch=80, max_local_batch=2)
    numbers = [
        step * 65_537 + part.stream
        for step in range(40)
        for rank in range(20)
        for part in policy.parts(torch.arange(80), rank, 20)
    ]
    assert len(set(numbers)) == len(numbers) == 40 * 40
