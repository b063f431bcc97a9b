"""Suggesters that fail, for `tests/service/test_searcher.py`: a process of its own imports them by name."""

from __future__ import annotations

import os
import time
from typing import NoReturn


def no_warming() -> None:
    """Import nothing."""


def die(question: object, number: int) -> NoReturn:
    os._exit(1)


def hang(question: object, number: int) -> NoReturn:
    while True:
        time.sleep(600)


def raise_error(question: object, number: int) -> NoReturn:
    raise ValueError("no such distribution")
