"""The token that opens the page: it says until when it is good, and is signed with a key that only the owner can read.

So several tokens are good at a time: a new one is written when half of the last one's time is over, and a browser that
has that one stays. A new key makes all of them worthless.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from pathlib import Path

from offcut.wire import tokens

#: How long a token opens the page.
VALID_S = 7 * 86400.0
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class PageKey:
    """The key that signs tokens, and the cookies that browsers keep in their place."""

    key: bytes

    def token(self, expires_s: float) -> str:
        """Return a token that is good until `expires_s`, in seconds since 1970."""
        return self._signed("token", int(expires_s))

    def cookie(self, expires_s: float) -> str:
        """Return a cookie that is good until then. No token can be made of it."""
        return self._signed("cookie", int(expires_s))

    def token_is_good(self, token: str, now_s: float) -> bool:
        """Return whether `token` opens the page at `now_s`, in seconds since 1970."""
        return self._is_good("token", token, now_s)

    def cookie_is_good(self, cookie: str, now_s: float) -> bool:
        """Return whether `cookie` opens the page at `now_s`."""
        return self._is_good("cookie", cookie, now_s)

    def _signed(self, use: str, expires_s: int) -> str:
        signature = hmac.new(self.key, f"offcut page {use} {expires_s}".encode(), hashlib.sha256).hexdigest()
        return f"{expires_s}-{signature}"

    def _is_good(self, use: str, shown: str, now_s: float) -> bool:
        expires_s = expiry(shown)
        if expires_s is None or now_s >= expires_s:
            return False
        return hmac.compare_digest(shown.encode(), self._signed(use, int(expires_s)).encode())


def expiry(token: str) -> float | None:
    """Return until when a token or cookie says that it is good, in seconds since 1970; None if it says nothing."""
    text = token.partition("-")[0]
    return float(text) if text.isascii() and text.isdecimal() and len(text) <= 12 else None


def rotate(key_file: Path) -> PageKey:
    """Replace the key: no token or cookie that was made before opens the page. StoreError: it cannot be written."""
    key = secrets.token_hex(_KEY_BYTES)
    tokens.write(key_file, key)
    return PageKey(key.encode())


def read_key(key_file: Path) -> PageKey | None:
    """Return the key; None if there is none that can be read."""
    try:
        key = key_file.read_text().strip()
    except (OSError, ValueError):
        return None
    return PageKey(key.encode()) if len(key) >= _KEY_BYTES else None


def current_token(key_file: Path, token_file: Path, now_s: float) -> str:
    """Return a token that is good for at least half of `VALID_S`, and write it down.

    Args:
        key_file: has the key; one is made if there is none.
        token_file: has the token alone, as programs read it.
        now_s: seconds since 1970.

    Raises:
        StoreError: One of them cannot be written.
    """
    key = read_key(key_file) or rotate(key_file)
    try:
        token = token_file.read_text().strip()
    except (OSError, ValueError):
        token = ""
    if key.token_is_good(token, now_s + VALID_S / 2):
        return token
    token = key.token(now_s + VALID_S)
    tokens.write(token_file, token)
    return token


class WatchedKey:
    """The key in a file, read again whenever the file is another one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._key: PageKey | None = None

    def now(self) -> PageKey | None:
        """Return the key in the file; None if there is none."""
        try:
            told = self._path.stat()
        except OSError:
            return None
        if self._seen != (told.st_ino, told.st_mtime_ns):
            self._seen, self._key = (told.st_ino, told.st_mtime_ns), read_key(self._path)
        return self._key
