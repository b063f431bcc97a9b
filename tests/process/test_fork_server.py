"""The fork server answers every client, whatever another client does."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from live import wait_for
from offcut.process.fork_server import Forked

SERVER = """
import os, sys
from pathlib import Path
from offcut.process.fork_server import ForkServer
from offcut.process.parent_death import die_with_parent
die_with_parent(int(sys.argv[2]))
def run(argv):
    return int(argv[0])
ForkServer(Path(sys.argv[1]), run).serve()
"""


@pytest.fixture
def server() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="offcut-test-"))
    path = root / "fork.sock"
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(path), str(os.getpid())])
    wait_for("the server", path.exists)
    yield path
    assert process.poll() is None, "it serves on"
    process.kill()
    process.wait()
    shutil.rmtree(root)


async def code_of(server: Path, code: int) -> int:
    forked = await Forked.start(server, [str(code)], env={}, workdir="/", log=server.with_name("log"), patience_s=60.0)
    return await forked.wait()


def connected(server: Path, said: bytes) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(server))
    client.sendall(said)
    return client


def test_a_client_that_sends_nothing_or_half_a_request_delays_no_other(server: Path) -> None:
    stuck = [connected(server, said) for said in (b"", b'{"argv": [', b"\xff\n", b"[]", b"[]\n")]

    async def scenario() -> list[int]:
        async with asyncio.timeout(60):
            return [await code_of(server, code) for code in (0, 3)]

    assert asyncio.run(scenario()) == [0, 3]
    for client in stuck:
        client.close()


def test_a_large_request_comes_in_pieces(server: Path) -> None:
    async def scenario() -> int:
        async with asyncio.timeout(60):
            env = {f"V{i}": "x" * 1000 for i in range(500)}
            forked = await Forked.start(
                server, ["7"], env=env, workdir="/", log=server.with_name("log"), patience_s=60.0
            )
            return await forked.wait()

    assert asyncio.run(scenario()) == 7


def test_a_server_whose_parent_died_before_it_began_ends_at_once(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    late = subprocess.run([sys.executable, "-c", SERVER, str(tmp_path / "s"), str(gone.pid)], timeout=60, check=False)
    assert late.returncode == 3
