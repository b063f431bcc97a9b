"""A job's secrets reach its workers and no other process; files of workers are under their user's umask."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from live import command_of, wait_for

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-2")]

SECRET = "the-key-of-a-tracker"
SCRIPT = """
import json, os, time
umask = os.umask(0)
os.umask(umask)
told = {"key": os.environ["TRACKER_KEY"], "plain": os.environ["PLAIN"], "umask": umask}
with open("told.new", "w") as file:
    json.dump(told, file)
os.rename("told.new", "told.json")
while not os.path.exists("go"):
    time.sleep(0.02)
"""


def test_secrets_from_a_file_are_seen_in_no_argument_list_and_no_readable_file(up: Callable, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "secrets.env").write_text(f"# not for others\n\nTRACKER_KEY={SECRET}\nPLAIN=from the file\n")
    previous = os.umask(0o027)
    try:
        running = up(1)
    finally:
        os.umask(previous)
    options = ("--env-file", "secrets.env", "--env", "PLAIN=a = b", "--mode", "restart", "--sizes", "1")
    command = [sys.executable, "-m", "offcut", "submit", "script.py", *options, "--json"]
    submitted = subprocess.run(
        [*command, "--state", str(running.paths.root)], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    job = json.loads(submitted.stdout)["id"]
    wait_for("the script", (tmp_path / "told.json").exists)
    told = json.loads((tmp_path / "told.json").read_text())
    assert told == {"key": SECRET, "plain": "a = b", "umask": 0o027}
    assert stat.S_IMODE((tmp_path / "told.json").stat().st_mode) == 0o640
    assert not [shown for process in psutil.process_iter() if SECRET in (shown := command_of(process))]
    (tmp_path / "go").touch()
    running.until(job, "the end", lambda shown: shown["state"] == "finished")
    for path in running.paths.root.rglob("*"):
        if path.name != "controller.log":  # that is the test's
            assert not stat.S_IMODE(path.lstat().st_mode) & 0o077, path
    assert SECRET.encode() in b"".join(path.read_bytes() for path in running.paths.root.glob("journal.sqlite*"))
    assert SECRET not in (running.paths.root / "controller.log").read_text()
