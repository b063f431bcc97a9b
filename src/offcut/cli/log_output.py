"""Standard output for the logs of a job's workers: the same bytes, with a heading where another log begins."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO


class LogOutput:
    """Standard output in bytes, with a heading where another log begins; with `label`, the worker before each line."""

    def __init__(self, *, label: bool = False) -> None:
        self._label = label
        sys.stdout.flush()
        self._out: BinaryIO = sys.stdout.buffer
        self._log: Path | None = None
        self._at_line_start = True

    def write(self, log: Path, data: bytes) -> None:
        if not data:
            return
        if self._label:
            lines = data.removesuffix(b"\n").split(b"\n")
            data = b"".join(b"%s: %s\n" % (log.stem.encode(), part) for part in lines)
        elif log != self._log:
            heading = f"==> {log.stem} <==\n".encode()
            self._out.write(heading if self._at_line_start else b"\n" + heading)
            self._log = log
        self._out.write(data)
        self._out.flush()
        self._at_line_start = data.endswith(b"\n")
