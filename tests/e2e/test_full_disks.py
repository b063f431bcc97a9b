"""A disk that is really full: it is named, and survived, and no job or node is held at fault."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from golden import SCRIPT

from live import Running, command_of, wait_for
from offcut.errors import OffcutError
from offcut.service.paths import StatePaths
from offcut.wire.client import Client

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-2")]


@pytest.fixture
def small_disk() -> Iterator[Callable[[Path, int], Path]]:
    """`small_disk(directory, MiB)` puts a file system of that size there."""
    mounted: list[Path] = []

    def mount(directory: Path, size_mib: int) -> Path:
        if os.geteuid() != 0:
            pytest.skip("only root may mount a small file system")
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        options = f"size={size_mib}m,mode=700"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "offcut-test", str(directory)], capture_output=True, check=False
        )
        if done.returncode != 0:
            pytest.skip(f"a file system cannot be mounted here: {done.stderr.decode().strip()}")
        mounted.append(directory)
        return directory

    yield mount
    for directory in mounted:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(directory: Path) -> Path:
    """Write a file that takes all the room that is left."""
    filler = directory / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        (directory / "more").write_bytes(b"x" * 65536)
    return filler


def test_a_job_waits_for_the_disk_of_its_files_and_goes_on(up: Callable, state_dir: Path, small_disk: Callable) -> None:
    jobs = small_disk(state_dir / "jobs", 4)
    running: Running = up(1)
    job = running.submit(SCRIPT, "--epochs", "300", "--pace", "0.05", sizes="1", max_failures=0)
    running.until(job, "training", lambda shown: shown["steps"] > 5)
    filler = fill(jobs)
    running.until(
        job,
        "the disk to be named",
        lambda _: any(f"nothing can be written in {jobs / job}" in text for text in running.story(job)),
    )
    words = " ".join(running.client.get(f"/v1/jobs/{job}/why")["words"])
    assert os.strerror(errno.ENOSPC) in words
    filler.unlink()
    (jobs / "more").unlink(missing_ok=True)
    steps = running.job(job)["steps"]
    shown = running.until(job, "going on", lambda shown: shown["steps"] > steps + 5)
    assert shown["failures"] == 0
    running.client.post(f"/v1/jobs/{job}/cancel")


def test_a_controller_whose_own_disk_is_full_says_so_and_leaves_nothing(
    state_dir: Path, tmp_path: Path, small_disk: Callable
) -> None:
    small_disk(state_dir, 16)
    said = tmp_path / "said"
    with said.open("wb") as log:
        controller = subprocess.Popen(
            [sys.executable, "-m", "offcut", "up", "--nodes", "1", "--state", str(state_dir)], stderr=log
        )
    client = Client(StatePaths(state_dir).socket)

    def answers() -> bool:
        assert controller.poll() is None, said.read_text()
        with suppress(OffcutError):
            return bool(client.get("/v1/status"))
        return False

    wait_for("the controller", answers)
    fill(state_dir)

    def provoke() -> bool:
        for verb in ("want", "offer"):
            with suppress(OffcutError):
                client.post(f"/v1/nodes/{verb}", {"nodes": ["n01"]})
        return controller.poll() is not None

    wait_for("it to notice", provoke)
    assert controller.returncode == 2
    assert any(
        line.startswith("offcut: ") and str(state_dir / "journal.sqlite") in line
        for line in said.read_text().splitlines()
    )
    client.close()
    wait_for("every process to end", lambda: not any(str(state_dir) in command_of(p) for p in psutil.process_iter()))
