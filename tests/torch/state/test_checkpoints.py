"""Checkpoints are complete or absent, few, and a disk that fails is reported and does not end a training."""

from __future__ import annotations

import http
import os
import resource
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

from live import wait_for
from offcut.errors import InputError
from offcut.torch.state import dcp_shards
from offcut.torch.state.checkpoint_directory import KEEP
from offcut.torch.state.checkpoint_layout import WholeState
from offcut.torch.state.checkpoints import Checkpoints
from offcut.torch.state.generation_mark import GenerationMark
from offcut.torch.state.training_state import map_tensors

WORKERS = ("n1#1:0", "n2#2:0", "n3#3:0")
LARGE = 3000


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def checkpoints(tmp_path: Path, notes: list[str]) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", 0.0, notes.append, WholeState())


@pytest.fixture
def members(tmp_path: Path, notes: list[str]) -> list[Checkpoints]:
    """Three members, the first of which publishes."""
    return [Checkpoints(tmp_path / "checkpoints", 0.0, notes.append, WholeState()) for _ in WORKERS]


def tree(step: int) -> dict[str, Any]:
    """Of every kind: large and small tensors, none, half precision, numbers as keys, tuples."""
    return {
        "model": {"weight": torch.full((LARGE,), float(step)), "table": torch.arange(LARGE).view(3, -1).bfloat16()},
        "optimizers": [
            {
                "state": {0: {"step": torch.tensor(1.0 * step), "sum": torch.full((LARGE,), 2.0)}, 1: {}},
                "betas": (0, 1),
            }
        ],
        "registered": [{"empty": torch.zeros(0, 5), "many": torch.arange(LARGE * 4)}],
        "progress": {"step": step},
    }


def assert_same(found: dict[str, Any] | None, wanted: dict[str, Any]) -> None:
    assert found is not None
    ours: list[torch.Tensor] = []
    theirs: list[torch.Tensor] = []
    bones = [map_tensors(item, lambda t, into=into: into.append(t)) for item, into in ((found, ours), (wanted, theirs))]
    assert bones[0] == bones[1]
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints.directory.path.iterdir())


def wait_for_writers(*members: Checkpoints) -> None:
    for member in members:
        if member._writer is not None:
            member._writer.join()


def begin(
    members: list[Checkpoints], step: int, generation: int = 1, only: tuple[int, ...] = (0, 1, 2)
) -> dict[str, Any]:
    living = tree(step)
    for rank in only:
        members[rank].begin(step, generation, WORKERS, rank, lambda: living)
    return living


def test_only_the_newest_stay(checkpoints: Checkpoints) -> None:
    for step in (1, 5, 20, 100):
        checkpoints.save_now(step, tree(step))
    assert names(checkpoints) == ["step-0000000020", "step-0000000100"][-KEEP:]
    assert_same(checkpoints.read_newest(), tree(100))


def test_each_member_writes_its_share_and_others_read_the_whole(members: list[Checkpoints]) -> None:
    begin(members, 7)
    wait_for_writers(*members)
    members[0].publish(7)
    assert names(members[0]) == ["step-0000000007"]
    directory = members[0].directory.path / "step-0000000007"
    sizes = {path.name: path.stat().st_size for path in directory.glob("*.distcp")}
    assert sorted(sizes) == ["__0_0.distcp", "__1_0.distcp", "__2_0.distcp"]
    assert min(sizes.values()) > LARGE, "each has about a third"
    assert_same(Checkpoints(members[0].directory.path, 0.0, print, WholeState()).read_newest(), tree(7))


def test_torch_reads_a_checkpoint_without_offcut(members: list[Checkpoints]) -> None:
    begin(members, 3)
    wait_for_writers(*members)
    members[0].publish(3)
    directory = members[0].directory.path / "step-0000000003"
    found = dcp.FileSystemReader(directory).read_metadata().state_dict_metadata
    (name,) = (name for name in found if name.endswith("model.weight"))
    wanted = {name: torch.empty(LARGE)}
    with pytest.warns(UserWarning, match="single process"):
        dcp.load(wanted, checkpoint_id=directory, no_dist=True)
    assert torch.equal(wanted[name], torch.full((LARGE,), 3.0))


def test_a_checkpoint_is_a_copy_and_published_only_once_its_step_is_stable(members: list[Checkpoints]) -> None:
    living = begin(members, 7)
    map_tensors(living, lambda tensor: tensor.zero_())
    wait_for_writers(*members)
    members[0].publish(6)
    assert members[0].read_newest() is None
    members[0].publish(7)
    assert_same(members[0].read_newest(), tree(7))


def test_without_one_member_s_share_nothing_is_published(members: list[Checkpoints], notes: list[str]) -> None:
    begin(members, 5)
    wait_for_writers(*members)
    members[0].publish(5)
    begin(members, 9, generation=2, only=(0, 1))
    wait_for_writers(*members)
    members[0].publish(9)
    members[0].members_changed(2, WORKERS)
    assert not members[0].due, "the third may still be writing"
    members[0].members_changed(2, WORKERS[:2])
    assert members[0].due, "it is gone, and its share will not come"
    members[0].publish(9)
    assert_same(members[0].read_newest(), tree(5))
    begin(members, 12, generation=3)
    wait_for_writers(*members)
    members[0].publish(12)
    assert names(members[0]) == ["step-0000000005", "step-0000000012"], "what was left half is cleared away"


def test_a_share_that_cannot_be_written_gives_the_checkpoint_up(members: list[Checkpoints], notes: list[str]) -> None:
    begin(members, 5, only=(0, 1))
    wait_for_writers(*members)
    with_limit(lambda: (begin(members, 5, only=(2,)), wait_for_writers(members[2])), 1 << 10)
    assert len(notes) == 1
    assert "step 5 could not be written" in notes[0]
    members[0].publish(5)
    assert members[0].due
    assert members[0].read_newest() is None


def test_a_share_that_is_left_out_for_a_slow_disk_gives_the_checkpoint_up_at_once(
    members: list[Checkpoints], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one is begun when it is due, not when the wait for what never comes is over."""
    healed, write = threading.Event(), dcp_shards.write

    def slow(directory: Path, part: dcp_shards.Share, visit: Callable[[], object]) -> None:
        if part.name == "2":
            assert healed.wait(60.0)
        write(directory, part, visit)

    monkeypatch.setattr(dcp_shards, "write", slow)
    begin(members, 5)
    wait_for_writers(*members[:2])
    members[0].publish(5)
    assert not members[0].due, "the third is writing"
    members[0].members_changed(2, WORKERS[:2])  # it has to go on without the third's, which comes back and still writes
    begin(members, 7, generation=3)
    wait_for_writers(*members[:2])

    def given_up() -> bool:
        members[0].publish(7)
        return members[0].due

    wait_for("the third to say that it writes no share of this one", given_up, 30.0)
    healed.set()
    wait_for_writers(*members)
    begin(members, 9, generation=3)
    wait_for_writers(*members)
    members[0].publish(9)
    assert_same(members[0].read_newest(), tree(9))


def test_a_checkpoint_that_a_member_may_not_have_begun_is_given_up_with_its_generation(
    members: list[Checkpoints],
) -> None:
    """The third did not see the end of the step at which the others began it; the same members re-form."""
    begin(members, 5, only=(0, 1))
    wait_for_writers(*members)
    members[0].publish(4)
    members[0].members_changed(2, WORKERS)
    assert members[0].due


@pytest.mark.parametrize("damage", ["empty", "cut", "garbage", "gone"])
def test_a_damaged_newest_checkpoint_falls_back_to_the_previous_one(
    checkpoints: Checkpoints, notes: list[str], damage: str
) -> None:
    for step in (1, 2):
        checkpoints.save_now(step, tree(step))
    path = checkpoints.directory.path / "step-0000000002" / "__0_0.distcp"
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "garbage": os.urandom(len(whole))}[damage])
    assert_same(checkpoints.read_newest(), tree(1))
    assert len(notes) == 1
    assert "step-0000000002 cannot be read" in notes[0]


def read_only_place(checkpoints: Checkpoints) -> None:
    # A file stands where the directory should be: fails for root as well, unlike permissions.
    checkpoints.directory.path.write_text("")


def test_an_unwritable_directory_is_reported_once_and_so_is_its_recovery(
    checkpoints: Checkpoints, notes: list[str]
) -> None:
    read_only_place(checkpoints)
    for step in (3, 4):
        checkpoints.begin(step, 1, WORKERS[:1], 0, lambda: tree(3))
        wait_for_writers(checkpoints)
        checkpoints.publish(step)
    assert len(notes) == 1
    assert "could not be written" in notes[0]
    checkpoints.directory.path.unlink()
    checkpoints.save_now(5, tree(5))
    assert notes[1:] == ["checkpoints can be written again: step 5"]


def test_a_full_disk_is_a_note_and_leaves_no_debris(checkpoints: Checkpoints, notes: list[str]) -> None:
    checkpoints.save_now(1, tree(1))
    with_limit(lambda: checkpoints.save_now(2, {"weight": torch.zeros(1 << 20)}), 1 << 16)
    assert len(notes) == 1
    assert "step 2 could not be written: [Errno 27] File too large" in notes[0]
    assert names(checkpoints) == ["step-0000000001"]


def with_limit(action: Callable[[], object], limit_bytes: int) -> None:
    """Let writes beyond this many bytes of a file fail, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        action()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_files_of_a_killed_writer_are_removed(checkpoints: Checkpoints) -> None:
    for step in (3, 12):
        (checkpoints.directory.path / f".step-{step:010d}.1").mkdir(parents=True)
    checkpoints.save_now(9, tree(9))
    assert names(checkpoints) == [".step-0000000012.1", "step-0000000009"]


def test_the_same_step_twice_is_published_once(checkpoints: Checkpoints, notes: list[str]) -> None:
    for _ in range(2):
        checkpoints.save_now(4, tree(4))
    assert names(checkpoints) == ["step-0000000004"]
    assert not notes
    shutil.rmtree(checkpoints.directory.path)


def test_unreadable_checkpoints_are_set_aside_and_later_ones_stay(checkpoints: Checkpoints, notes: list[str]) -> None:
    for step in (50, 100, 200):
        checkpoints.save_now(step, tree(step))
    for step in (100, 200):
        (checkpoints.directory.path / f"step-{step:010d}" / ".metadata").write_bytes(b"damaged")
    assert checkpoints.read_newest() is None
    assert len(notes) == 2
    for step in (10, 20, 30):
        checkpoints.save_now(step, tree(step))
    assert [name for name in names(checkpoints) if not name.startswith(".")] == ["step-0000000020", "step-0000000030"]
    assert_same(checkpoints.read_newest(), tree(30))
    checkpoints.save_now(201, tree(201))
    assert not [name for name in names(checkpoints) if name.startswith(".")]


def test_the_next_checkpoint_after_a_fallback_is_the_newest(checkpoints: Checkpoints) -> None:
    for step in (100, 200):
        checkpoints.save_now(step, tree(step))
    (checkpoints.directory.path / "step-0000000200" / ".metadata").write_bytes(b"damaged")
    assert_same(checkpoints.read_newest(), tree(100))
    for step in (110, 120):
        checkpoints.save_now(step, tree(step))
    assert_same(checkpoints.read_newest(), tree(120))


@pytest.mark.parametrize("odd", [{"box": object()}, {"status": http.HTTPStatus.OK}])
def test_a_state_that_could_not_be_read_back_is_not_written(checkpoints: Checkpoints, odd: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="cannot be read back"):
        checkpoints.save_now(1, {"registered": [odd]})
    assert checkpoints.read_newest() is None


def test_members_that_were_cut_off_publish_nothing_once_others_have_gone_on(tmp_path: Path, notes: list[str]) -> None:
    cut_off, newer = GenerationMark(tmp_path / "generation"), GenerationMark(tmp_path / "generation")
    cut_off.formed(4, first=True)
    place = tmp_path / "checkpoints"
    old = Checkpoints(place, 0.0, notes.append, WholeState(), overtaken_by=cut_off.overtaken_by)
    new = Checkpoints(place, 0.0, notes.append, WholeState(), overtaken_by=newer.overtaken_by)
    old.save_now(50, tree(50))
    newer.formed(6, first=True)
    new.save_now(20, tree(20))
    assert not notes
    old.save_now(60, tree(60))
    assert notes == ["the checkpoint at step 60 does not count: generation 6 has formed elsewhere"]
    assert names(old) == ["step-0000000020", "step-0000000050"]


def test_a_generation_with_a_smaller_number_goes_on_after_a_journal_was_restored(tmp_path: Path) -> None:
    """Its first member writes the number down before the others look."""
    before, first, other = (GenerationMark(tmp_path / "generation") for _ in range(3))
    before.formed(12, first=True)
    first.formed(5, first=True)
    other.formed(5, first=False)
    assert (first.overtaken_by(), other.overtaken_by()) == (0, 0)


def test_without_a_mark_that_can_be_read_no_member_counts_as_overtaken(tmp_path: Path) -> None:
    mark = GenerationMark(tmp_path / "gone" / "generation")
    assert mark.overtaken_by() == 0
    mark.formed(3, first=True)
    assert mark.overtaken_by() == 0
