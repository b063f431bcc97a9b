"""Allocation problems answered in a process of their own, so that a slow one delays no release."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import structlog

from offcut.model import Allocation, AllocationProblem
from offcut.wire.forkserver import die_with_parent

_log = structlog.get_logger()

#: A problem that has no proven answer by then is answered with the best found.
TIME_LIMIT_S = 5.0

#: `version`, and the answer or why there is none.
Answer = Callable[[int, Allocation | str], None]


def _prepare(parent: int) -> None:
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _solve(problem: AllocationProblem, policy: str | None) -> Allocation:
    from offcut.allocate import exact, milp
    from offcut.allocate import policy as policies

    if policy is not None:
        return policies.decide(policies.load(policy), problem, policy)
    solve = milp.solve if problem.needs_milp else exact.solve
    return solve(problem, time_limit_s=TIME_LIMIT_S)


def _explain(problem: AllocationProblem, job_id: str, allocation: Allocation) -> dict[str, Any]:
    from offcut.allocate.explain import explain

    return explain(problem, job_id, allocation).as_json()


def _warm() -> None:
    from offcut.allocate import exact

    exact.warm()


class Solver:
    """One problem at a time; while one is being solved only the newest of those that arrive is kept."""

    def __init__(self, answer: Answer, policy: str | None = None) -> None:
        """`policy`: a baseline's name or `file.py:function`; None: the exact optimum."""
        self._answer = answer
        self._policy = policy
        self._loop = asyncio.get_running_loop()
        self._pool = self._new_pool()
        self._busy = False
        self._next: tuple[int, AllocationProblem] | None = None
        # The first answer of a process waits for imports and kernels: let it be one that nobody waits for.
        self._pool.submit(_warm)

    @staticmethod
    def _new_pool() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            max_workers=1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_prepare,
            initargs=(os.getpid(),),
        )

    def ask(self, version: int, problem: AllocationProblem) -> None:
        """The answer comes later, or never if a newer problem is asked first."""
        if self._busy:
            self._next = (version, problem)
            return
        self._busy = True
        try:
            future = self._pool.submit(_solve, problem, self._policy)
        except BrokenProcessPool:
            self._pool = self._new_pool()
            future = self._pool.submit(_solve, problem, self._policy)
        future.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._done, version, done))

    async def explain(self, problem: AllocationProblem, job_id: str, allocation: Allocation) -> dict[str, Any]:
        """Why the job has what the allocation gives it; see `offcut.allocate.explain`."""
        return await asyncio.wrap_future(self._pool.submit(_explain, problem, job_id, allocation))

    def _done(self, version: int, future: Future[Allocation]) -> None:
        self._busy = False
        if self._next is not None:
            newest, self._next = self._next, None
            self.ask(*newest)
            return
        try:
            self._answer(version, future.result())
        except Exception as error:  # whatever a solver raises, the jobs keep their nodes and the user is told
            _log.error("solver_failed", error=str(error))
            self._answer(version, str(error) or type(error).__name__)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in (self._pool._processes or {}).values():
            process.kill()
