"""The token that opens the page expires, can be made worthless, and is only for its owner to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from offcut.errors import StoreError
from offcut.service.page import token_file
from offcut.service.page.token_file import VALID_S, PageKey, WatchedKey


def test_a_token_opens_until_it_expires() -> None:
    key = PageKey(b"k" * 64)
    token = key.token(1000.0)
    assert key.token_is_good(token, 999.9)
    assert not key.token_is_good(token, 1000.0)
    assert not PageKey(b"l" * 64).token_is_good(token, 0.0)


@pytest.mark.parametrize(
    "shown", ["", "-", "x", "1000", "1000-", "9999999999999-0", "1000-0é", "١٠٠٠-00", "-5-00", "1e9-00"]
)
def test_other_text_opens_nothing(shown: str) -> None:
    key = PageKey(b"k" * 64)
    assert not key.token_is_good(shown, 0.0)
    assert not key.cookie_is_good(shown, 0.0)


def test_the_time_cannot_be_changed_and_a_cookie_does_not_count_as_a_token() -> None:
    key = PageKey(b"k" * 64)
    signature = key.token(1000.0).partition("-")[2]
    assert not key.token_is_good(f"2000-{signature}", 0.0)
    assert key.cookie_is_good(key.cookie(1000.0), 0.0)
    assert not key.token_is_good(key.cookie(1000.0), 0.0)
    assert not key.cookie_is_good(key.token(1000.0), 0.0)


def test_the_token_in_the_file_is_renewed_at_half_its_time_and_both_are_good(tmp_path: Path) -> None:
    key_file, file = tmp_path / "key", tmp_path / "token"
    first = token_file.current_token(key_file, file, 0.0)
    assert token_file.current_token(key_file, file, VALID_S / 2 - 1) == first
    second = token_file.current_token(key_file, file, VALID_S / 2 + 1)
    assert second != first
    assert file.read_text() == f"{second}\n"
    key = token_file.read_key(key_file)
    assert key is not None
    assert key.token_is_good(first, VALID_S - 1)
    assert key.token_is_good(second, VALID_S + 1)


def test_a_new_key_makes_earlier_tokens_worthless(tmp_path: Path) -> None:
    key_file, file = tmp_path / "key", tmp_path / "token"
    watched = WatchedKey(key_file)
    assert watched.now() is None
    before = token_file.current_token(key_file, file, 0.0)
    assert watched.now().token_is_good(before, 0.0)  # type: ignore[union-attr]
    token_file.rotate(key_file)
    assert not watched.now().token_is_good(before, 0.0)  # type: ignore[union-attr]
    assert token_file.current_token(key_file, file, 0.0) != before


def test_both_files_are_for_their_owner_alone_also_where_others_lay_there(tmp_path: Path) -> None:
    key_file, file = tmp_path / "key", tmp_path / "token"
    for path in (key_file, file):
        path.write_text("abc")
        path.chmod(0o666)
    (tmp_path / "token.new").symlink_to(tmp_path / "elsewhere")
    token_file.current_token(key_file, file, 0.0)
    assert [path.stat().st_mode & 0o777 for path in (key_file, file)] == [0o600, 0o600]
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        token_file.current_token(tmp_path / "no" / "key", tmp_path / "token", 0.0)
