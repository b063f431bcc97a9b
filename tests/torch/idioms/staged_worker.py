"""A worker's side of `real_members`: it runs a script, in which it can be stopped, and tells the test how that ends."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from offcut.process.parent_death import die_with_parent


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a worker ended: `returned`, `left`, `raised`, `exited`, or `died` without a word."""

    how: str
    value: Any = None
    traceback: str = ""


class Stage:
    """The test's side, as a script sees it."""

    def __init__(self, pipe: Connection, name: str) -> None:
        self._pipe = pipe
        self.name = name

    def at(self, point: str, session: Any) -> None:
        """Stand here if the test wants it, until what it has told this worker meanwhile has arrived.

        `session` may be a TrainingMember too.
        """
        self._pipe.send(("at", point, session.steps))
        generation, leaving = self._pipe.recv()
        link = session._training.link if hasattr(session, "_training") else session.link
        if link is not None:
            with link.changed:
                link.changed.wait_for(lambda: link.newer_than(generation - 1) and (link.leaving or not leaving))

    def note(self, *what: Any) -> None:
        """Tell the test."""
        self._pipe.send(("note", what))


def work(script: Callable[..., Any], options: dict[str, Any], name: str, env: dict[str, str], pipe: Connection) -> None:
    """Run a script in this process, and tell the test how it ends."""
    die_with_parent(os.getppid())
    gc.freeze()  # collecting what the server has imported would copy it
    torch.set_num_threads(1)
    # The script may have processes of its own that load data, which a daemon of multiprocessing may not.
    multiprocessing.process.current_process()._config["daemon"] = False
    os.environ |= env
    try:
        outcome = Outcome("returned", script(Stage(pipe, name), **options))
    except SystemExit as end:
        outcome = Outcome("left" if end.code == 0 else "exited", end.code)
    except BaseException as error:
        outcome = Outcome("raised", f"{type(error).__name__}: {error}", traceback.format_exc())
    pipe.send(("end", outcome))
    sys.stdout.flush()
    os._exit(0)
