"""How global batches are divided among members whose memory has a limit."""

from __future__ import annotations

import pytest

from offcut.errors import InputError
from offcut.torch.elastic_parts.batch_division import BatchDivision


@pytest.mark.parametrize("samples", [1, 7, 64, 255, 256])
@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
def test_no_member_works_on_more_than_the_limit_at_once(samples: int, world: int) -> None:
    batch = list(range(samples))
    fits = -(-samples // world) <= 64
    for rank in range(world):
        if not fits:
            with pytest.raises(InputError, match="more than max_local_batch=64"):
                BatchDivision(1, largest=64).portions(batch, rank, world)
            continue
        assert all(len(portion.rows) <= 64 for portion in BatchDivision(1, largest=64).portions(batch, rank, world))


def test_the_error_says_how_many_members_are_enough() -> None:
    with pytest.raises(InputError, match=r"a batch of 256 samples, one of 2 members .* 128 at once") as error:
        BatchDivision(1, largest=64).portions(list(range(256)), 1, 2)
    assert "--sizes 4:" in str(error.value.next_step)


def test_virtual_shards_fit_at_every_size() -> None:
    for world in range(1, 6):
        portions = BatchDivision(1, 4, largest=64).portions(list(range(256)), 0, world)
        assert {len(portion.rows) for portion in portions} == {64}
