"""A worker's connection to its agent: the newest generation comes in, heartbeats and reports go out."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from offcut.errors import InputError, ProtocolError
from offcut.membership.generation import Generation
from offcut.wire import worker_messages
from offcut.wire.messages import NewGeneration
from offcut.wire.worker_env import ENV_AGENT, ENV_JOB, ENV_LOADING, ENV_WORKER, worker_name

#: How often a worker sends a heartbeat.
BEAT_S = 0.2


class AgentLink:
    """A worker's connection to its agent; `changed` is notified with every message that arrives.

    It is shared with the thread that reads messages. When the agent ends, the worker's process ends, because nothing
    that offcut runs may stay on a node after its release.

    Args:
        path: the agent's UNIX socket.
        worker: this worker's name.
    """

    def __init__(self, path: str, worker: str) -> None:
        self.worker = worker
        self.changed = threading.Condition()
        self._newest: Generation | None = None
        #: The newest generation that was formed because a member died: collectives of older ones may never end.
        self._aborting = -1
        self._leave_by: float | None = None
        #: Called in a thread of its own when the worker is told to leave: by when, and whether its node is wanted.
        self.on_leave: Callable[[float, bool], None] | None = None
        #: Called in the reading thread with every newer generation, before `newest` returns it.
        self.on_generation: Callable[[Generation], None] | None = None
        self._agent = worker_messages.connect(path)
        self._progress: dict[str, Any] = {}
        #: Since when the script has not called its session; None while the session works.
        self.script_since_s: float | None = None
        self.send(worker_messages.WorkerHello(worker=worker))
        threading.Thread(target=self._read, name="offcut-link", daemon=True).start()
        threading.Thread(target=self._beat_forever, name="offcut-beat", daemon=True).start()

    @classmethod
    def from_environment(cls) -> AgentLink | None:
        """Connect to the agent that started this process; None in a script that runs without offcut.

        Raises:
            InputError: in a job of mode `restart`, in which every rank would train for itself; or while a script that
                defines `trial(params)` is loaded.
        """
        if ENV_LOADING in os.environ:
            raise InputError(
                "The script begins a training while it is loaded.",
                next_step="Begin it in trial(params); what is for running the script alone belongs below "
                'if __name__ == "__main__".',
            )
        path = os.environ.get(ENV_AGENT)
        if not path and ENV_JOB in os.environ:
            raise InputError(
                f"The script of {os.environ[ENV_JOB]} has a session, but the job's mode is 'restart'.",
                next_step="Submit it without mode 'restart', or take the session out of the script.",
            )
        return cls(path, os.environ[ENV_WORKER]) if path else None

    def send(self, message: worker_messages.FromWorker) -> None:
        """Send `message` to the agent; end this process if the agent is gone."""
        try:
            self._agent.send(message)
        except OSError:
            os._exit(3)

    def progress(self, **fields: Any) -> None:
        """Set what the next heartbeats say: the fields of `worker_messages.StepProgress`.

        Called in every step, so the message is made only when it is sent.
        """
        self._progress = fields

    def beat_now(self) -> None:
        """Send a heartbeat."""
        since_s = self.script_since_s
        script_s = time.monotonic() - since_s if since_s is not None else 0.0
        progress = worker_messages.StepProgress(**self._progress) if self._progress else None
        self.send(worker_messages.Beat(progress=progress, script_s=script_s))

    def newest(self) -> Generation | None:
        """Return the newest generation that the agent has told of; None before the first."""
        with self.changed:
            return self._newest

    def newer_than(self, generation: int) -> bool:
        """Return whether a generation after `generation` is known."""
        # Read without the lock: it is one reference, and the next call sees what this one misses.
        newest = self._newest
        return newest is not None and newest.generation > generation

    def aborted(self, generation: int) -> bool:
        """Return whether `generation` has lost a member."""
        return self._aborting > generation

    @property
    def leaving(self) -> bool:
        """Whether this worker was told to leave."""
        return self._leave_by is not None

    def await_newer(self, generation: int) -> Generation | None:
        """Wait for a generation after `generation` and return it; None if this worker is told to leave first."""
        with self.changed:
            self.changed.wait_for(lambda: self.leaving or self.newer_than(generation))
            return self._newest if self.newer_than(generation) else None

    def _read(self) -> None:
        try:
            for message in self._agent.messages():
                self._receive(message)
        except OSError:
            pass
        except ProtocolError as error:
            sys.stderr.write(f"offcut: {error}\n")
            sys.stderr.flush()
        except Exception:  # a worker that can read no messages any more must not go on
            traceback.print_exc()
        os._exit(3)

    def _receive(self, message: worker_messages.ToWorker) -> None:
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
            threading.Thread(
                target=self.on_leave, args=(self._leave_by, message.node_wanted), name="offcut-leave", daemon=True
            ).start()

    def _beat_forever(self) -> None:
        while True:
            self.beat_now()
            time.sleep(BEAT_S)
