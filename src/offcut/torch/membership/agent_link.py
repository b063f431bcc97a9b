"""A worker's line to its agent: the newest generation comes in, heartbeats and reports go out."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from offcut.errors import InputError, ProtocolError
from offcut.wire import worker_messages
from offcut.wire.messages import NewGeneration
from offcut.wire.worker_env import ENV_AGENT, ENV_JOB, ENV_WORKER, worker_name

#: How often a worker says that it lives, and how far it is.
BEAT_S = 0.2
_MESSAGES: dict[str, type[worker_messages.FromWorker]] = {
    "hello": worker_messages.WorkerHello,
    "ready": worker_messages.WorkerReady,
    "beat": worker_messages.Beat,
    "formed": worker_messages.WorkerFormed,
    "broken": worker_messages.WorkerBroken,
    "left": worker_messages.WorkerLeft,
    "finished": worker_messages.WorkerFinished,
    "note": worker_messages.WorkerNote,
}


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation as its members see it: the workers' names in rank order."""

    generation: int
    workers: tuple[str, ...]
    store: str
    job: str
    #: Members of the generation before it live, are left out, and write down what only they have.
    departing: bool = False
    #: What the members show to the store.
    secret: str = field(default="", repr=False)
    #: Which of the generation's groups: all of its members, or some of them under a name.
    group: str = ""

    @property
    def world(self) -> int:
        return len(self.workers)


class AgentLink:
    """Shared with the thread that reads it; `changed` is notified with every message.

    When the agent goes, the worker goes: nothing of ours outlives its hold on a node.
    """

    def __init__(self, path: str, worker: str) -> None:
        self.worker = worker
        self.changed = threading.Condition()
        self._newest: Generation | None = None
        #: The newest generation before which somebody died: what is in flight under an older one may never end.
        self._aborting = -1
        self._leave_by: float | None = None
        #: Called in the reading thread when the worker is told to leave, with the instant by which it must be gone.
        self.on_leave: Callable[[float], None] | None = None
        #: Called in the reading thread with every newer generation, before it is anyone's newest.
        self.on_generation: Callable[[Generation], None] | None = None
        self._agent = worker_messages.connect(path)
        self._progress: worker_messages.StepProgress | None = None
        #: Since when the script has not come back to its session; None while the session has the word.
        self.script_since_s: float | None = None
        self.send("hello", worker=worker)
        threading.Thread(target=self._read, name="offcut-link", daemon=True).start()
        threading.Thread(target=self._beat_forever, name="offcut-beat", daemon=True).start()

    @classmethod
    def from_environment(cls) -> AgentLink | None:
        """The link that the agent asked for, or None in a script that runs alone.

        InputError in a job of mode `restart`: every rank would train for itself, and they would save over each other.
        """
        path = os.environ.get(ENV_AGENT)
        if not path and ENV_JOB in os.environ:
            raise InputError(
                f"The script of {os.environ[ENV_JOB]} has a session, but the job's mode is 'restart'.",
                next_step="Submit it without mode 'restart', or take the session out of the script.",
            )
        return cls(path, os.environ[ENV_WORKER]) if path else None

    def send(self, kind: str, **fields: Any) -> None:
        try:
            self._agent.send(_MESSAGES[kind](**fields) if kind != "left" else worker_messages.WorkerLeft())
        except OSError:
            os._exit(3)

    def progress(self, **fields: Any) -> None:
        """What the next heartbeats say."""
        self._progress = worker_messages.StepProgress(**fields)

    def beat_now(self) -> None:
        since_s = self.script_since_s
        script_s = time.monotonic() - since_s if since_s is not None else 0.0
        self.send("beat", progress=self._progress, script_s=script_s)

    def newest(self) -> Generation | None:
        with self.changed:
            return self._newest

    def newer_than(self, generation: int) -> bool:
        # Read without the lock: one reference, and a late look is made good at the next.
        newest = self._newest
        return newest is not None and newest.generation > generation

    def aborted(self, generation: int) -> bool:
        """Whether `generation` has lost a member."""
        return self._aborting > generation

    @property
    def leaving(self) -> bool:
        return self._leave_by is not None

    def await_newer(self, generation: int) -> Generation | None:
        """Wait for a generation after `generation`; None when told to leave first."""
        with self.changed:
            self.changed.wait_for(lambda: self.leaving or self.newer_than(generation))
            return self._newest if self.newer_than(generation) else None

    def _read(self) -> None:
        try:
            for message in self._agent.messages():
                self._take(message)
        except OSError:
            pass
        except ProtocolError as error:
            sys.stderr.write(f"offcut: {error}\n")
            sys.stderr.flush()
        except Exception:  # a message that this worker cannot take: better gone than deaf
            traceback.print_exc()
        os._exit(3)

    def _take(self, message: worker_messages.ToWorker) -> None:
        with self.changed:
            if isinstance(message, NewGeneration):
                if message.abort:
                    self._aborting = max(self._aborting, message.generation)
                if self._newest is None or message.generation > self._newest.generation:
                    newest = Generation(
                        generation=message.generation,
                        workers=tuple(
                            worker_name(member.node, member.incarnation, rank)
                            for member in message.members
                            for rank in range(member.ranks)
                        ),
                        store=message.store,
                        job=message.job,
                        departing=bool(message.departing),
                        secret=message.secret,
                    )
                    if self.on_generation is not None:
                        self.on_generation(newest)
                    self._newest = newest
            else:
                self._leave_by = time.monotonic() + message.limit_s
            self.changed.notify_all()
        if isinstance(message, worker_messages.Leave) and self.on_leave is not None:
            threading.Thread(target=self.on_leave, args=(self._leave_by,), name="offcut-leave", daemon=True).start()

    def _beat_forever(self) -> None:
        while True:
            self.beat_now()
            time.sleep(BEAT_S)
