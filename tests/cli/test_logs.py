"""`offcut logs`: the exact bytes that workers wrote, from the end of files that may be large."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fake_api import FakeClient, job

from offcut.client import job as client_job
from offcut.client.log_tail import tail

RAW = b"\x1b[31m[bold]loss[/] :smile:\x1b[0m \xff\xfe 10%\r20%\r30%\n"


@pytest.fixture
def worker_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of the worker n01#1:0 of the job."""
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(FakeClient, "directory", tmp_path)
    monkeypatch.setattr("offcut.client.controller.Client", FakeClient)
    return tmp_path / "logs" / "n01#1:0.log"


@pytest.fixture
def raw(monkeypatch, capfdbinary):
    """Return the standard output of `offcut logs a ...` in bytes."""

    def run(*words: str) -> bytes:
        from offcut.cli import main

        monkeypatch.setattr("sys.argv", ["offcut", "logs", "a", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        out: bytes = capfdbinary.readouterr()[0]
        return out

    return run


def test_bytes_are_copied(worker_log: Path, raw) -> None:
    worker_log.write_bytes(RAW)
    assert raw() == b"==> n01#1:0 <==\n" + RAW


def test_a_line_ends_at_a_line_feed_and_nowhere_else(worker_log: Path, raw) -> None:
    worker_log.write_bytes(b"first\n" + RAW + b"last, unfinished")
    assert raw("-n", "2") == b"==> n01#1:0 <==\n" + RAW + b"last, unfinished"


@pytest.mark.parametrize("lines", [1, 3, 10_000])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_the_last_lines_are_read_from_the_end_of_the_file(tmp_path: Path, lines: int, end: bytes) -> None:
    path = tmp_path / "log"
    every = [b"%d %s" % (i, b"x" * (i % 700)) for i in range(5_000)]
    path.write_bytes(b"\n".join(every) + end)
    assert tail(path, lines) == b"\n".join(every[-lines:]) + end


def test_a_large_file_is_not_read_whole(worker_log: Path, raw) -> None:
    with worker_log.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of nothing, and one line
        file.seek(0, 2)
        file.write(b"\nlast\n")
    assert raw("-n", "1") == b"==> n01#1:0 <==\nlast\n"
    assert len(raw("-n", "2")) < 20 << 20


def test_several_workers_are_told_apart(worker_log: Path, raw) -> None:
    worker_log.write_bytes(b"one")
    other = worker_log.with_name("n02#1:0.log")
    other.write_bytes(b"two\n")
    os.utime(worker_log, (1.0, 1.0))
    assert raw() == b"==> n01#1:0 <==\none\n==> n02#1:0 <==\ntwo\n"
    assert raw("--worker", "n02") == b"==> n02#1:0 <==\ntwo\n"


def test_json(worker_log: Path, raw) -> None:
    worker_log.write_bytes(b"a\nb \xff\x1b\n")
    assert json.loads(raw("--json")) == [{"worker": "n01#1:0", "lines": ["a", "b \ufffd\x1b"]}]


def test_no_log_yet(worker_log: Path, raw) -> None:
    assert raw() == b"No worker has printed anything yet.\n"


def test_follow_ends_with_the_job(worker_log: Path, raw, monkeypatch) -> None:
    monkeypatch.setattr(client_job, "_ASK_WHILE_FOLLOWING_S", 0.0)
    monkeypatch.setattr(client_job, "_SETTLE_S", 0.0)
    worker_log.write_bytes(b"before\n")
    asked = []

    def get(self, path: str, **_: object):
        if path.endswith("directory"):
            return {"id": "a", "directory": str(worker_log.parent.parent)}
        asked.append(path)
        if len(asked) == 2:
            with worker_log.open("ab") as file:
                file.write(b"after\n")
            worker_log.with_name("n02#2:0.log").write_bytes(b"new\n")
        return job("a") | {"state": "running" if len(asked) < 3 else "finished"}

    monkeypatch.setattr(FakeClient, "get", get)
    out = raw("-f")
    assert out.startswith(b"==> n01#1:0 <==\nbefore\nafter\n")
    assert out.endswith(b"==> n02#2:0 <==\nnew\n")


def test_follow_and_json_exclude_each_other(offcut, worker_log: Path) -> None:
    code, out, _ = offcut("logs", "a", "-f", "--json")
    assert code == 2
    assert "Give one of them" in json.loads(out)["next_step"]


def test_labels_stand_before_each_line(worker_log: Path, raw) -> None:
    worker_log.write_bytes(b"one\ntwo")
    worker_log.with_name("n02#1:0.log").write_bytes(b"three\n")
    assert sorted(raw("--label").splitlines()) == [b"n01#1:0: one", b"n01#1:0: two", b"n02#1:0: three"]
