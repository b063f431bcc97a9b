"""Fixtures for live tests; one controller serves many cases, for starting one takes longer than a case."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from live import Running


@pytest.fixture(scope="module")
def cluster() -> Iterator[Running]:
    """A controller of three nodes."""
    root = Path(tempfile.mkdtemp(prefix="offcut-test-"))
    running = Running(root, 3)
    try:
        yield running
        running.stop()
    finally:
        running.kill_everything()
        shutil.rmtree(root, ignore_errors=True)
