"""Logs take a bounded part of the disk."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from controlled import Controlled

from offcut.control import Settings
from offcut.service.log_files import LogFile, bound, cut_file, too_many

MIB = 1 << 20


def test_the_oldest_go_first_and_no_more_than_must():
    files = [LogFile(name, 10, at_s, open=False) for name, at_s in (("new", 3.0), ("old", 1.0), ("mid", 2.0))]
    assert too_many(files, 30) == ([], [])
    assert too_many(files, 25) == (["old"], [])
    assert too_many(files, 0) == (["old", "mid", "new"], [])


def test_what_is_still_written_to_is_cut_where_nothing_else_helps():
    files = [LogFile("old", 10, 1.0, open=True), LogFile("ended", 10, 2.0, open=False)]
    assert too_many(files, 15) == (["ended"], [])
    large = [LogFile("large", 50 * MIB, 1.0, open=True), LogFile("small", MIB, 2.0, open=True)]
    assert too_many(large, 40 * MIB) == ([], ["large"])


def test_of_a_file_that_is_cut_the_end_stays_and_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "n1#1:0.log"
    with log.open("ab") as writer:
        writer.write(b"x" * (3 * MIB) + b"the end\n")
        writer.flush()
        cut_file(log)
        writer.write(b"more\n")
    data = log.read_bytes()
    assert data.startswith(b"[2097160 bytes before this were cut: log_bytes]\nxxx")
    assert data.endswith(b"xthe end\nmore\n")
    assert len(data) < MIB + 100


def test_a_directory_is_bounded(tmp_path: Path) -> None:
    for i in range(10):
        (tmp_path / f"{i}.log").write_bytes(b"x" * 100)
        os.utime(tmp_path / f"{i}.log", (i, i))
    (tmp_path / "model.pt").write_bytes(b"x" * 1000)
    bound(tmp_path, 350, lambda name, _: name == "0.log")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.log", "8.log", "9.log", "model.pt"]
    bound(tmp_path / "none", 0, lambda *_: False)


def test_logs_of_running_workers_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        it = Controlled(tmp_path, monkeypatch, Settings(profiler="oracle", log_bytes=0))
        it.submit("a")
        it.train("a", "n1")
        running = it.state.nodes["n1"].incarnation
        logs = it.paths.job("a") / "logs"
        logs.mkdir(parents=True)
        for name in (f"n1#{running}:0.log", f"n1#{running + 1}0:0.log", "n2#7:0.log"):
            (logs / name).write_text("x")
        await it.controller._retention.bound_logs()
        assert [path.name for path in logs.iterdir()] == [f"n1#{running}:0.log"]

    asyncio.run(scenario())
