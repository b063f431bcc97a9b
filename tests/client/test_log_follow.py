"""Logs are followed without losing or doubling a byte, whatever happens to their files."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest

from offcut.client.log_follow import LogFollower
from offcut.service.log_files import cut_file

MIB = 1 << 20


class Reader:
    """A follower with a clock of its own, and what it has read of each log."""

    def __init__(self, directory: Path, **options: object) -> None:
        self.now_s = 100.0
        self.follower = LogFollower(directory, now_s=lambda: self.now_s, **options)  # type: ignore[arg-type]
        self.read: defaultdict[str, bytes] = defaultdict(bytes)

    def look(self, *, at_end: bool = False) -> list[tuple[str, bytes]]:
        found = [(path.stem, data) for path, data in self.follower.new_lines(at_end=at_end)]
        for name, data in found:
            self.read[name] += data
        self.now_s += 0.1
        return found


def append(path: Path, data: bytes, at_s: float | None = None) -> None:
    with path.open("ab") as file:
        file.write(data)
    if at_s is not None:
        os.utime(path, (at_s, at_s))


def test_a_directory_and_logs_that_come_later(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "logs")
    assert reader.look() == []
    (tmp_path / "logs").mkdir()
    append(tmp_path / "logs" / "n1.log", b"a\n")
    append(tmp_path / "logs" / "notes.txt", b"no log\n")
    assert reader.look() == [("n1", b"a\n")]
    assert reader.look() == []


def test_lines_come_in_the_order_in_which_the_logs_were_written_to(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for second, name in enumerate(["n2", "n1", "n3", "n1", "n2"]):
        append(tmp_path / f"{name}.log", b"%d\n" % second, at_s=1000.0 + second)
    assert [name for name, _ in reader.look()] == ["n3", "n1", "n2"]
    assert reader.read == {"n1": b"1\n3\n", "n2": b"0\n4\n", "n3": b"2\n"}


def test_a_line_that_has_not_ended_is_held_back_for_a_moment(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    append(tmp_path / "n1.log", b"whole\n10 %\r20 %")
    assert reader.look() == [("n1", b"whole\n")]
    append(tmp_path / "n2.log", b"other\n")
    assert reader.look() == [("n2", b"other\n")]
    append(tmp_path / "n1.log", b"\r30 %\n40 %")
    assert reader.look() == [("n1", b"10 %\r20 %\r30 %\n")]
    for _ in range(9):
        assert reader.look() == []
    reader.now_s += 1.0
    assert reader.look() == [("n1", b"40 %")]
    append(tmp_path / "n1.log", b" 50 %")
    assert reader.look() == []
    assert reader.look(at_end=True) == [("n1", b" 50 %")]
    assert reader.look(at_end=True) == []


@pytest.mark.parametrize("behind_bytes", [0, 1000, 3 * MIB // 2])
def test_a_log_that_is_cut_is_read_on_from_the_same_byte(tmp_path: Path, behind_bytes: int) -> None:
    path, lines = tmp_path / "n1.log", [b"%09d\n" % i for i in range(3 * MIB // 10)]
    whole = b"".join(lines)
    path.write_bytes(whole)
    at = (len(whole) - behind_bytes) // 10 * 10
    reader = Reader(tmp_path, read={path: at})
    cut_file(path)
    append(path, b"after\n")
    for _ in range(4):
        reader.look()
    header, kept = path.read_bytes().split(b"\n", 1)
    if behind_bytes <= MIB:
        assert reader.read["n1"] == whole[at:] + b"after\n"
    else:  # a part was cut before it was read: the line that says so is shown
        assert reader.read["n1"] == header + b"\n" + kept
    first = len(reader.read["n1"])
    append(path, b"x\n" * MIB)  # 2 MiB more, and cut again: shorter than, equal to or longer than before
    for _ in range(4):
        reader.look()
    cut_file(path)
    append(path, b"end\n")
    for _ in range(4):
        reader.look()
    assert reader.read["n1"][first:] == b"x\n" * MIB + b"end\n"


def test_a_log_that_grows_past_its_old_size_after_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "n1.log"
    path.write_bytes(b"a\n" * (2 * MIB))
    reader = Reader(tmp_path, read={path: 4 * MIB})
    cut_file(path)
    append(path, b"b\n" * (2 * MIB))
    for _ in range(8):
        reader.look()
    assert reader.read["n1"] == b"b\n" * (2 * MIB)


def test_a_log_in_the_middle_of_being_cut_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "n1.log"
    path.write_bytes(b"0123456789\n" * 10)
    reader = Reader(tmp_path, read={path: 110})
    path.write_bytes(b"")
    assert reader.look() == []
    path.write_bytes(b"[66 bytes before this were cut: log_bytes]\n")
    assert reader.look() == []
    append(path, b"0123456789\n" * 4 + b"new\n")
    assert reader.look() == [("n1", b"new\n")]


def test_a_log_that_was_replaced_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "n1.log"
    path.write_bytes(b"old, and longer\n")
    reader = Reader(tmp_path)
    reader.look()
    path.write_bytes(b"new\n")
    assert reader.look() == []
    reader.now_s += 3.0
    assert reader.look() == [("n1", b"new\n")]


def test_logs_are_deleted(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    append(tmp_path / "n1.log", b"one\ntwo")
    reader.look()
    (tmp_path / "n1.log").unlink()
    append(tmp_path / "n2.log", b"three\n")
    reader.look(at_end=True)
    assert reader.read == {"n1": b"one\ntwo", "n2": b"three\n"}


def test_a_log_of_a_gigabyte_takes_turns_with_the_others(tmp_path: Path) -> None:
    with (tmp_path / "n1.log").open("wb") as file:
        file.truncate(1 << 30)
    append(tmp_path / "n2.log", b"here\n")
    reader = Reader(tmp_path)
    reader.look()
    assert reader.read["n2"] == b"here\n"
    assert len(reader.read["n1"]) <= MIB
