"""Directories and files that others could write to are refused, and those that they could read are closed to them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from offcut.errors import InputError, StoreError
from offcut.service.paths import StatePaths
from offcut.wire.client import Client
from offcut.wire.ownership import read_own
from strangers import NOBODY, stranger

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make what belongs to another user")


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Return a directory like /tmp: every user may make files there, and remove only their own."""
    place = Path(tempfile.mkdtemp(prefix="offcut-test-"))
    place.chmod(0o1777)
    yield place
    shutil.rmtree(place)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_a_new_state_directory_is_its_owners_alone(scratch: Path) -> None:
    StatePaths(scratch / "deep" / "state").prepare()
    assert mode(scratch / "deep" / "state") == 0o700
    StatePaths(scratch / "deep" / "state").prepare()


def test_a_used_state_directory_that_others_may_read_is_closed_to_them(scratch: Path) -> None:
    root = scratch / "state"
    for part in ("", "jobs", "cluster", "tls", "jobs/a-1"):
        (root / part).mkdir()
        (root / part).chmod(0o755)
    (root / "lock").touch()
    StatePaths(root).prepare()
    assert [mode(root / part) for part in ("", "jobs", "cluster", "tls")] == [0o700] * 4


def test_a_directory_of_other_things_is_not_closed(scratch: Path) -> None:
    (scratch / "project").mkdir()
    (scratch / "project" / "paper.tex").touch()
    (scratch / "project").chmod(0o755)
    with pytest.raises(StoreError, match="can be read by other users, and holds other things"):
        StatePaths(scratch / "project").prepare()
    assert mode(scratch / "project") == 0o755


@pytest.mark.parametrize("bits", [0o770, 0o777, 0o702])
@pytest.mark.parametrize("part", ["", "jobs", "cluster", "tls", "agents"])
def test_a_state_directory_that_others_may_write_is_refused(scratch: Path, part: str, bits: int) -> None:
    place = scratch / "state" / part
    (scratch / "state").mkdir(mode=0o700)
    place.mkdir(exist_ok=True)
    place.chmod(bits)
    with pytest.raises(StoreError, match="can be written by other users"):
        StatePaths(scratch / "state").prepare()


def test_a_state_directory_that_others_could_replace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(StoreError, match="every user can replace it"):
        StatePaths(tmp_path / "open" / "state").prepare()


def test_parts_may_be_links_of_our_own_to_where_there_is_room(scratch: Path, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.mkdir(mode=0o700)
    (scratch / "state").mkdir(mode=0o700)
    (scratch / "state" / "jobs").symlink_to(large)
    StatePaths(scratch / "state").prepare()


def squat(connection: Connection, root: str, what: str) -> None:
    """Do what another user does before us in a directory like /tmp."""
    path = Path(root)
    if what == "directory":
        path.mkdir()
    elif what == "link":
        (path.parent / "elsewhere").mkdir()
        path.symlink_to(path.parent / "elsewhere")
    elif what == "link to ours":
        path.symlink_to(path.parent / "ours")
    connection.send(os.getuid())
    connection.recv()


@as_root
@pytest.mark.parametrize("what", ["directory", "link", "link to ours"])
def test_a_squatted_directory_is_refused(scratch: Path, what: str) -> None:
    (scratch / "ours").mkdir(mode=0o700)
    with stranger(squat, str(scratch / "state"), what) as other:
        assert other.recv() == NOBODY
        with pytest.raises(StoreError, match="belongs to nobody"):
            StatePaths(scratch / "state").prepare()
        assert list((scratch / "state").iterdir()) == [], "nothing was written there"
        up = subprocess.run(
            [sys.executable, "-m", "offcut", "up", "--state", str(scratch / "state")],
            capture_output=True, text=True, check=False, timeout=100,
        )  # fmt: skip
    assert up.returncode == 2
    assert "belongs to nobody" in up.stderr
    assert "Traceback" not in up.stderr


@as_root
def test_files_of_another_user_in_it_are_named(scratch: Path) -> None:
    root = scratch / "state"
    root.mkdir(mode=0o700)
    (root / "agents.key").touch()
    os.chown(root / "agents.key", NOBODY, NOBODY)
    with pytest.raises(StoreError, match=r"holds agents\.key, which belongs to another user"):
        StatePaths(root).prepare()


@as_root
@pytest.mark.parametrize(
    "spoil", [lambda path: os.chown(path, NOBODY, NOBODY), lambda path: path.chmod(0o666)], ids=["owner", "mode"]
)
def test_agents_believe_no_address_that_another_user_could_have_written(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    path = tmp_path / "address.json"
    path.write_text("{}")
    assert read_own(path) == "{}"
    spoil(path)
    with pytest.raises(InputError, match="could have been written by another user"):
        read_own(path)


def ask(connection: Connection, socket: str) -> None:
    """Connect as another user, and return what listens there."""
    try:
        Client(Path(socket)).close()
        connection.send("asked")
    except InputError as error:
        connection.send(str(error))


@as_root
def test_commands_tell_nothing_to_a_socket_of_another_user(scratch: Path) -> None:
    (scratch / "control.sock").touch()
    with stranger(ask, str(scratch / "control.sock")) as other:
        assert "belongs to root, who would receive what is sent" in other.recv()
