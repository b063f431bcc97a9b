"""Faults at named points, for tests: a member is killed, frozen, cut off, or sees its generation break.

`OFFCUT_FAULTS` holds a JSON list of plans, each with a `point` of POINTS and `how` (below). Optional are:

- `step`: the first step, counted from 1, at which it may strike (1)
- `after`: the name of a file in the job's directory that holds this step instead; without the file nothing happens
- `rank` (null: any) and `generation` (the first generation; 0)
- `pass`: how many matching visits to let pass (0)
- `applied_by`: the ranks that have to apply the step before the fault strikes; the member waits for them at the point
  (none)
- `thaw_s`: seconds after which a freeze ends (null: never)
- `times`: how many members it strikes (1)

`times` counts over all processes of the job and all their incarnations: for each strike a file `fault-PLAN-TIME` is
created in the job's directory, which names the worker and the point. `how` is:

- `kill`: the worker, by signal 9
- `freeze`: the worker stops; after `thaw_s` it goes on
- `kill-agent`, `freeze-agent`: the agent of its node
- `freeze-node`: worker and agent
- `cut`: all its network connections close; it goes on
- `silence`: nothing arrives any more over its present network connections, and neither end is told
- `break`: it treats the generation as broken while others may not; only at points where a generation can break

Nothing here runs unless the variable is set.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import socket
import struct
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from offcut.errors import InputError
from offcut.process.unix_socket import peer_pid
from offcut.torch.transport.socket_timeouts import own_sockets
from offcut.wire.worker_env import ENV_JOB_DIR, ENV_WORKER

ENV_FAULTS = "OFFCUT_FAULTS"

POINTS = (
    "before-ready",
    "forming",
    "formed",
    "giving",
    "receiving",
    "loaded",
    "exchange",
    "bucket",
    "before-reduce",
    "inside-reduce",
    "after-reduce",
    "after-update",
    "boundary",
    "epoch-end",
    "writing",
    "publishing",
    "finishing",
)
#: How long a fault waits for other members to apply the step.
_APPLIED_WITHIN_S = 60.0
#: A worker whose agent was killed ends within this.
_ENDED_WITHIN_S = 10.0
HOWS = ("kill", "freeze", "kill-agent", "freeze-agent", "freeze-node", "cut", "silence", "break")

#: <linux/filter.h> and <asm-generic/socket.h>, which Python does not know.
_BPF_RETURN = 0x06
_SO_ATTACH_FILTER = 26


@dataclass(slots=True)
class Fault:
    """One plan; `passes` counts the visits that it has still to let pass in this process."""

    number: int
    point: str
    how: str
    step: int = 1
    rank: int | None = None
    generation: int = 0
    passes: int = 0
    applied_by: tuple[int, ...] = ()
    thaw_s: float | None = None
    times: int = 1
    after: str | None = None

    def strikes(self, step: int, rank: int, generation: int) -> bool:
        if self.rank not in (None, rank) or generation < self.generation or step < self._first_step():
            return False
        self.passes -= 1
        return self.passes < 0 and self._first(step=step, rank=rank, generation=generation)

    def _first_step(self) -> float:
        if self.after is None:
            return self.step
        try:
            return float(Path(os.environ[ENV_JOB_DIR], self.after).read_text() or "inf")
        except FileNotFoundError:
            return math.inf

    def _first(self, **where: int) -> bool:
        directory = Path(os.environ[ENV_JOB_DIR])
        told = {"worker": os.environ.get(ENV_WORKER, ""), "pid": os.getpid(), "time_s": time.time(), **where}
        for number in range(self.times):
            with suppress(FileExistsError):
                file = os.open(directory / f"fault-{self.number}-{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                os.write(file, json.dumps(told).encode())
                os.close(file)
                return True
        return False


def read_plans(text: str) -> list[Fault]:
    """Read a list of plans. InputError if it is not one."""
    try:
        plans = [
            Fault(number, passes=plan.pop("pass", 0), **plan) for number, plan in enumerate(json.loads(text or "[]"))
        ]
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{ENV_FAULTS}: {error}.", next_step="It is a JSON list of plans.") from None
    for plan in plans:
        if plan.point not in POINTS or plan.how not in HOWS:
            raise InputError(f"{ENV_FAULTS}: no such fault: {plan.how} at {plan.point}.")
    return plans


class Faults:
    """The faults that a process may meet. `at` returns True if its caller should take the generation for broken."""

    def __init__(self, plans: list[Fault]) -> None:
        self._plans = plans

    @classmethod
    def from_environment(cls) -> Faults:
        return cls(read_plans(os.environ.get(ENV_FAULTS, "")))

    def visit(self, point: str, *, step: int = 0, rank: int = 0, generation: int = 0) -> bool:
        """Let the faults of this point strike. `step` is the last applied one."""
        broken = False
        if point == "after-update" and any(rank in plan.applied_by for plan in self._plans):
            _note_applied(step, rank)
        for plan in self._plans:
            if plan.point == point and plan.strikes(step + 1, rank, generation):
                _await_applied(step + 1, plan.applied_by)
                broken |= _strike(plan)
        return broken


def _applied_file(rank: int) -> Path:
    return Path(os.environ[ENV_JOB_DIR], f"applied-by-{rank}")


def _note_applied(step: int, rank: int) -> None:
    new = _applied_file(rank).with_suffix(".new")
    new.write_text(str(step))
    new.replace(_applied_file(rank))


def _await_applied(step: int, ranks: tuple[int, ...]) -> None:
    """Wait until all of `ranks` have applied `step`."""
    ends_at = time.monotonic() + _APPLIED_WITHIN_S
    while time.monotonic() < ends_at and any(_last_applied(rank) < step for rank in ranks):
        time.sleep(0.01)


def _last_applied(rank: int) -> int:
    try:
        return int(_applied_file(rank).read_text())
    except FileNotFoundError:
        return 0


def _strike(plan: Fault) -> bool:
    me = os.getpid()
    match plan.how:
        case "kill":
            os.kill(me, signal.SIGKILL)
        case "freeze":
            _freeze([me], plan.thaw_s)
        case "kill-agent":
            os.kill(_agent(), signal.SIGKILL)
            # This worker ends a moment after its agent. Until then it must not go past the point.
            time.sleep(_ENDED_WITHIN_S)
        case "freeze-agent":
            _freeze([_agent()], plan.thaw_s)
        case "freeze-node":
            _freeze([_agent(), me], plan.thaw_s)
        case "cut":
            _cut()
        case "silence":
            _silence()
        case "break":
            return True
    return False


def _freeze(pids: list[int], thaw_s: float | None) -> None:
    if thaw_s is not None:
        subprocess.Popen(
            ["/bin/sh", "-c", f"sleep {thaw_s}; kill -CONT {' '.join(map(str, pids))}"],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


def _cut() -> None:
    for connection in _network():
        with connection, suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _silence() -> None:
    """Drop what arrives before it is acknowledged, by a packet filter that accepts nothing (socket(7))."""
    keep_nothing = ctypes.create_string_buffer(struct.pack("HBBI", _BPF_RETURN, 0, 0, 0))
    program = struct.pack("HP", 1, ctypes.addressof(keep_nothing))
    for connection in _network():
        with connection, suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def _network() -> list[socket.socket]:
    """Return its connections, but no listening sockets: gloo takes their end for a bug of its own and aborts."""
    found = []
    for connection in own_sockets():
        listens = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if connection.family in (socket.AF_INET, socket.AF_INET6) and not listens:
            found.append(connection)
        else:
            connection.close()
    return found


def _agent() -> int:
    """Return the id of the process that serves this worker's connection."""
    for connection in own_sockets():
        with suppress(OSError):
            if connection.family == socket.AF_UNIX and connection.getpeername():
                return peer_pid(connection)
    raise OSError("this worker has no agent")
