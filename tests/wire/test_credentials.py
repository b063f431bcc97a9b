"""A credential is good for one node and one pilot, under one controller's key."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from offcut.errors import InputError
from offcut.wire import tokens
from offcut.wire.credentials import Credentials, Identity

ALICE = Identity("n01", "n01-7")


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    return Credentials.load(tmp_path / "agents.key", tmp_path / "agents")


def test_the_next_controller_accepts_issued_credentials(tmp_path: Path, credentials: Credentials) -> None:
    path = credentials.issue(ALICE.node, ALICE.pilot)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert Credentials.load(tmp_path / "agents.key", tmp_path / "agents").check(tokens.read(path)) == ALICE


@pytest.mark.parametrize(
    "forge",
    [
        lambda token: "",
        lambda token: "x",
        lambda token: "...",
        lambda token: "ä" + token,
        lambda token: token[:-1] + ("0" if token[-1] != "0" else "1"),
        lambda token: token + "." + token.rpartition(".")[2],
        lambda token: token * 20,
        lambda token: token.replace("offcut1", "offcut2"),
    ],
)
def test_a_changed_credential_is_refused(credentials: Credentials, forge) -> None:
    assert credentials.check(forge(credentials.of_identity(ALICE))) is None


def test_a_credential_does_not_serve_another_node_pilot_or_controller(tmp_path: Path, credentials: Credentials) -> None:
    token = credentials.of_identity(ALICE)
    other = credentials.of_identity(Identity("n02", "n01-7"))
    mixed = other.rpartition(".")[0] + "." + token.rpartition(".")[2]
    assert credentials.check(mixed) is None
    assert Credentials.load(tmp_path / "other.key", tmp_path / "agents").check(token) is None
    # Names cannot be shifted from one field to the other.
    assert credentials.of_identity(Identity("a.b", "c")) != credentials.of_identity(Identity("a", "b.c"))
    odd = Identity("n 01.é", "…")
    assert credentials.check(credentials.of_identity(odd)) == odd


def test_only_the_credentials_of_present_holds_are_kept(credentials: Credentials) -> None:
    for pilot in ("1", "2", "3"):
        credentials.issue("n01", pilot)
    credentials.keep_only(["2"])
    assert [path.name for path in credentials.directory.iterdir()] == ["2.token"]
    credentials.withdraw("2")
    credentials.withdraw("2")
    assert list(credentials.directory.iterdir()) == []


def test_a_directory_that_others_may_open_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents").chmod(0o777)
    with pytest.raises(InputError, match="only you can open"):
        Credentials.load(tmp_path / "agents.key", tmp_path / "agents")
    (tmp_path / "agents").rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "agents").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="only you can open"):
        Credentials.load(tmp_path / "agents.key", tmp_path / "agents")


def test_a_secret_that_is_not_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(0o600)
    with pytest.raises(InputError, match="is empty"):
        tokens.create(path)
    path.unlink()
    (tmp_path / "elsewhere").write_text("guessed")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="cannot be read"):
        tokens.create(path)
    path.unlink()
    tokens.create(path)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
        with pytest.raises(InputError, match="belongs to another user"):
            tokens.read(path)


def test_a_file_system_that_hangs_holds_up_no_withdrawal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = Credentials.load(tmp_path / "agents.key", tmp_path / "agents")
    files = [credentials.issue("n01", pilot) for pilot in ("1", "2")]
    answers = threading.Event()
    withdraw = credentials.withdraw
    monkeypatch.setattr(credentials, "withdraw", lambda pilot: answers.wait(60) and withdraw(pilot))
    for pilot in ("1", "2"):
        credentials.withdraw_later(pilot)
    assert all(file.exists() for file in files), "it has returned"
    answers.set()
    end_s = time.monotonic() + 60
    while any(file.exists() for file in files):
        assert time.monotonic() < end_s
        time.sleep(0.01)
