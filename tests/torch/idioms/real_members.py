"""Real sessions over real gloo in processes of their own, while the test plays their agents and their controller.

A `Cluster` starts workers, forms generations of them, has them leave or be killed, and waits: everything on the test's
side happens in the test's own thread. A worker runs a *script*: a function of a module on pytest's `pythonpath`, called
as `script(stage, **options)`. At `stage.at(point, session)` a worker can be stopped from the test, so that events
strike at a chosen place in the script; inside a session they strike through `faults` (see
`offcut.torch.testing.fault_injection`).

Workers are forked from a server that has imported torch and has no threads, and so is the rendezvous store. All of
them end with the server, and the server ends with the test process, however that ends.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import selectors
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import pytest
from staged_worker import Outcome, Stage, work

from offcut.process import unix_socket
from offcut.torch.testing.fault_injection import ENV_FAULTS
from offcut.wire.messages import GenerationMember, NewGeneration
from offcut.wire.worker_env import ENV_AGENT, ENV_CHECKPOINT_AGE, ENV_JOB_DIR, ENV_WORKER, worker_name
from offcut.wire.worker_messages import Leave, ToWorker, encode
from rendezvous import LIMIT_S, fork_server, shared_store

__all__ = ["Cluster", "Outcome", "Stage", "alone", "same", "train", "train_with_joiner"]

#: How long the controller waits before it renews a generation that one member has found broken: the others may get on.
RENEW_S = 0.2


@dataclass(slots=True)
class _Worker:
    name: str
    process: Any
    pipe: Connection
    agent: socket.socket | None = None
    unread: bytes = b""
    #: Kinds of messages that it has sent.
    said: set[str] = field(default_factory=set)
    #: The point at which it stands, and the step.
    stands: tuple[str, int] | None = None
    leaving: bool = False
    notes: list[tuple[Any, ...]] = field(default_factory=list)
    outcome: Outcome | None = None


class Cluster:
    """Workers of one job that all run `script`. Leaving the context ends every process."""

    #: Jobs share a store.
    _jobs = 0

    def __init__(
        self,
        script: Callable[..., Any],
        *,
        faults: Sequence[dict[str, Any]] = (),
        checkpoint_age_s: float = 1000.0,
        directory: Path | None = None,
        **options: Any,
    ) -> None:
        Cluster._jobs += 1
        self._job = f"job-{os.getpid()}-{Cluster._jobs}"
        self._script = script
        self._options = options
        self._place = tempfile.TemporaryDirectory(prefix="offcut-members-")
        #: The job's directory.
        self.directory = directory or Path(self._place.name)
        self._env = {
            ENV_JOB_DIR: str(self.directory),
            ENV_CHECKPOINT_AGE: str(checkpoint_age_s),
            ENV_FAULTS: json.dumps(list(faults)),
        }
        self._selector = selectors.DefaultSelector()
        self._agent_path = Path(self._place.name) / "agent"
        self._listener = unix_socket.listen(self._agent_path)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._workers: dict[str, _Worker] = {}
        self._stops: list[tuple[str, str, int | None]] = []
        self._held = False
        self.generation = 0
        self.members: tuple[str, ...] = ()
        self._renew_at_s: float | None = None
        #: Every message but heartbeats, with its worker's name.
        self.heard: list[tuple[str, dict[str, Any]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.process.kill()
        for worker in self._workers.values():
            worker.process.join()
            worker.pipe.close()
            if worker.agent is not None:
                worker.agent.close()
        self._selector.close()
        self._listener.close()
        self._place.cleanup()

    # -- what a test does ---------------------------------------------------------------------------------------------

    def start(self, count: int = 1) -> list[str]:
        """Start workers and wait until they are ready. Return their names, in rank order."""
        names = [worker_name(f"n{len(self._workers) + i}", 1, 0) for i in range(count)]
        for name in names:
            self._start(name, {ENV_AGENT: str(self._agent_path), ENV_WORKER: name})
        self.until(lambda: all("ready" in self._workers[name].said or self._workers[name].outcome for name in names))
        return names

    def _start(self, name: str, env: dict[str, str]) -> None:
        ours, theirs = multiprocessing.Pipe()
        process = fork_server().Process(
            target=work, args=(self._script, self._options, name, {**self._env, **env}, theirs), daemon=True
        )
        process.start()
        theirs.close()
        worker = self._workers[name] = _Worker(name, process, ours)
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._hear(worker))

    def form(self, names: Sequence[str], *, abort: bool = False) -> None:
        """Form the next generation: of `names`, in rank order."""
        before, self.members = self.members, tuple(names)
        self.generation += 1
        self._renew_at_s = None
        self._tell_of_generation([*before, *names], abort=abort)

    def leave(self, name: str, limit_s: float = LIMIT_S) -> None:
        """Let the queue want the node of `name`, which has this long for its boundary."""
        self._workers[name].leaving = True
        self._tell(name, Leave(limit_s=limit_s))

    def kill(self, name: str) -> None:
        self._workers[name].process.kill()
        self.until(lambda: self._workers[name].outcome is not None)

    @contextmanager
    def stopped(self, name: str, point: str, step: int | None = None) -> Iterator[None]:
        """`name` stands at `point` of its script (with `step` steps applied) for as long as the context lasts."""
        stop = (name, point, step)
        self._stops.append(stop)
        worker = self._workers[name]
        self.until(lambda: worker.stands is not None and self._is_stop(worker, stop))
        yield
        self._stops.remove(stop)
        self._go_on(worker)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Every worker stands at the next point that its script comes to, for as long as the context lasts."""
        self._held = True
        yield
        self._held = False
        for worker in self._workers.values():
            if worker.stands is not None:
                self._go_on_unless_stopped(worker)

    def hold(self, names: Sequence[str], point: str, step: int) -> Callable[[], None]:
        """Let those of `names` that come to `point` with `step` steps applied stand there; return what ends that."""
        stops = [(name, point, step) for name in names]
        self._stops += stops

        def release() -> None:
            for stop in stops:
                self._stops.remove(stop)
                if self._is_stop(self._workers[stop[0]], stop):
                    self._go_on(self._workers[stop[0]])

        return release

    def until(self, condition: Callable[[], Any]) -> None:
        """Play agent and controller until `condition` holds."""
        end_s = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < end_s, self._story()
            for key, _ in self._selector.select(0.02):
                key.data()
            for worker in self._workers.values():
                if worker.outcome is None and not worker.process.is_alive() and not worker.pipe.poll():
                    self._ended(worker, Outcome("died", worker.process.exitcode))
            if self._renew_at_s is not None and time.monotonic() >= self._renew_at_s:
                self.form(self.members, abort=True)

    def outcomes(self) -> dict[str, Outcome]:
        """Return how all workers have ended, by name."""
        self.until(lambda: all(worker.outcome is not None for worker in self._workers.values()))
        return {name: worker.outcome for name, worker in self._workers.items() if worker.outcome is not None}

    def results(self) -> list[Any]:
        """Return what the scripts returned. Workers may only have ended, left or died."""
        outcomes, bad = self.outcomes(), self.failed()
        assert not bad, "\n".join(outcome.traceback or str(outcome) for outcome in bad)
        return [outcome.value for outcome in outcomes.values() if outcome.how == "returned"]

    def outcome(self, name: str) -> Outcome | None:
        """Return how `name` has ended; None while it runs."""
        return self._workers[name].outcome

    def failed(self) -> list[Outcome]:
        """Return the errors that have ended workers so far."""
        ended = [worker.outcome for worker in self._workers.values() if worker.outcome is not None]
        return [outcome for outcome in ended if outcome.how in ("raised", "exited")]

    def said(self, name: str) -> set[str]:
        """Return the kinds of messages that `name` has sent to its agent."""
        return self._workers[name].said

    def notes(self, name: str) -> list[tuple[Any, ...]]:
        """Return what the script of `name` has noted."""
        return self._workers[name].notes

    def pids(self) -> list[int]:
        """Return the workers' process ids."""
        return [worker.process.pid for worker in self._workers.values() if worker.process.pid is not None]

    # -- the stand-in for agent and controller ------------------------------------------------------------------------

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        # Whose line it is, its first message says.
        hello = json.loads(connection.makefile("rb", buffering=0).readline())
        worker = self._workers[hello["worker"]]
        worker.agent = connection
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(worker))

    def _read(self, worker: _Worker) -> None:
        if worker.agent is None:
            return  # read to its end meanwhile
        try:
            data = worker.agent.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            self._selector.unregister(worker.agent)
            worker.agent.close()
            worker.agent = None
            return
        *lines, worker.unread = (worker.unread + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message["kind"] != "beat":
                self.heard.append((worker.name, message))
            worker.said.add(message["kind"])
            if message["kind"] == "broken" and message["generation"] < self.generation:
                # Others may wait for this member in the older generation.
                self._tell_of_generation(self.members, abort=True)
            elif message["kind"] == "broken" and self._renew_at_s is None:
                self._renew_at_s = time.monotonic() + RENEW_S
            elif message["kind"] == "left" and worker.name in self.members:
                self._form_without(worker, abort=False)

    def _hear(self, worker: _Worker) -> None:
        try:
            kind, *rest = worker.pipe.recv()
        except (EOFError, ConnectionError):
            self._selector.unregister(worker.pipe)
            worker.process.join()
            self._ended(worker, Outcome("died", worker.process.exitcode))
            return
        if kind == "note":
            worker.notes.append(rest[0])
        elif kind == "end":
            self._ended(worker, rest[0])
        else:
            worker.stands = (rest[0], rest[1])
            self._go_on_unless_stopped(worker)

    def _go_on_unless_stopped(self, worker: _Worker) -> None:
        if not self._held and not any(self._is_stop(worker, stop) for stop in self._stops):
            self._go_on(worker)

    def _is_stop(self, worker: _Worker, stop: tuple[str, str, int | None]) -> bool:
        name, point, step = stop
        if worker.name != name or worker.stands is None:
            return False
        return worker.stands == (point, worker.stands[1] if step is None else step)

    def _go_on(self, worker: _Worker) -> None:
        worker.stands = None
        with suppress(OSError):
            worker.pipe.send((self.generation if worker.name in self.members else 0, worker.leaving))

    def _ended(self, worker: _Worker, outcome: Outcome) -> None:
        if worker.outcome is None:
            while worker.agent is not None:
                self._read(worker)  # its last words
            worker.outcome = outcome
            if worker.name in self.members and not worker.said & {"finished", "left"}:
                self._form_without(worker, abort=True)

    def _tell_of_generation(self, names: Sequence[str], *, abort: bool) -> None:
        generation = NewGeneration(
            job=self._job,
            generation=self.generation,
            members=tuple(GenerationMember(node=name.partition("#")[0], incarnation=1) for name in self.members),
            **shared_store().meeting_point(self._job, self.generation),
            abort=abort,
        )
        for name in dict.fromkeys(names):
            self._tell(name, generation)

    def _form_without(self, worker: _Worker, *, abort: bool) -> None:
        rest = [name for name in self.members if name != worker.name]
        if rest:
            self.form(rest, abort=abort)
        else:
            self.members = ()

    def _tell(self, name: str, message: ToWorker) -> None:
        agent = self._workers[name].agent
        if agent is not None:
            with suppress(OSError):
                agent.sendall(encode(message))

    def _story(self) -> str:
        workers = [
            f"{worker.name}: {worker.outcome or 'runs'}, stands at {worker.stands}, noted {worker.notes[-3:]}"
            for worker in self._workers.values()
        ]
        return "\n".join(
            [f"nothing came of it: generation {self.generation} of {self.members}", *workers, *map(str, self.heard)]
        )


def alone(script: Callable[..., Any], **options: Any) -> Any:
    """Run `script` in a process without offcut. Return the result of this undisturbed run."""
    with Cluster(script, **options) as cluster:
        cluster._start("alone", {})
        (result,) = cluster.results()
        return result


def train_with_joiner(script: Callable[..., Any], *where: Any, **options: Any) -> list[Any]:
    """Return the results of two members, of which the second joins while the first is stopped at `where`."""
    with Cluster(script, **options) as cluster:
        first = cluster.start()
        cluster.form(first)
        with cluster.stopped(first[0], *where):
            second = cluster.start()
            cluster.form([*first, *second])
        results = cluster.results()
    assert len(results) == 2
    return results


def train(script: Callable[..., Any], world: int, *faults: dict[str, Any], **options: Any) -> list[Any]:
    """Return the results of members that start together and run into `faults`."""
    with Cluster(script, faults=faults, **options) as cluster:
        cluster.form(cluster.start(world))
        return cluster.results()


def same(results: Sequence[Any], undisturbed: Any) -> None:
    """Check that all members have the same bits, and those of the undisturbed run but for the order of sums."""
    assert results
    assert all(result == results[0] for result in results)
    assert results[0].keys() == undisturbed.keys()
    for name, value in undisturbed.items():
        assert results[0][name] == pytest.approx(value, rel=1e-9, abs=1e-12), name
