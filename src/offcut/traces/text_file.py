"""Text files, gzipped or not. Faults of the file itself are reported here; the readers of formats only see lines."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from offcut.errors import InputError

_GZIP_MAGIC = b"\x1f\x8b"


def read_text(path: str | Path) -> str:
    """Return the text of a file, which may be gzip (recognised by its first bytes, not by its name).

    Args:
        path: the file.

    Returns:
        Its text.

    Raises:
        InputError: the file is missing, cannot be read, is a truncated or damaged gzip, or is not UTF-8.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}.", next_step="Check the path.") from None
    if data[:2] == _GZIP_MAGIC:
        try:
            data = gzip.decompress(data)
        except EOFError:
            raise InputError(
                f"{path}: the gzip file is truncated ({len(data):,} bytes are there).", next_step="Copy it again."
            ) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{path}: the gzip file is damaged ({error}).", next_step="Copy it again.") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, line {line}: not UTF-8 text.", next_step="Check that this is the right file."
        ) from None


def first_line(path: str | Path) -> str:
    """Return the first line that is not blank, stripped, without reading the rest; raises InputError as `read_text`."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            with gzip.open(file) if packed else file as lines:
                return next((line.decode("utf-8-sig").strip() for line in lines if line.strip()), "")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        return read_text(path).strip().partition("\n")[0].strip()


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path`, gzipped if the name ends in `.gz`; the same text gives the same bytes."""
    path = Path(path)
    data = text.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=6, mtime=0)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}.", next_step="Choose another place.") from None
