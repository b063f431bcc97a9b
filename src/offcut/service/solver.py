"""Answers allocation problems in a process of their own, so that a slow one delays no release.

A solver or policy that does not answer in time is killed, and a greedy answer is used instead.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog

from offcut.allocate import standin
from offcut.histogram import Histogram
from offcut.model import Allocation, AllocationProblem
from offcut.process import clocks
from offcut.service.call_process import CallDiedError, CallProcess, CallTimeoutError

_log = structlog.get_logger()
_Result = TypeVar("_Result")

#: After this time a problem gets the best answer found so far, proven or not; earlier if the process would otherwise
#: be killed before it could answer.
TIME_LIMIT_S = 5.0
#: An answer that took longer than this is delivered even if a newer problem waits. Otherwise a slow policy whose
#: problems come faster than its answers would never be used.
SLOW_S = 1.0
_BOUNDS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

#: `version`, the answer or why there is none, and whether a newer problem has been asked meanwhile.
Answer = Callable[[int, Allocation | str, bool], None]


def _solve(problem: AllocationProblem, policy: str | None, limit_s: float) -> Allocation:
    from offcut.allocate import policy as policies
    from offcut.allocate.solve import solve

    rule = None if policy is None else policies.load(policy)
    return solve(problem, policy=rule, policy_name=policy or "", time_limit_s=min(TIME_LIMIT_S, limit_s / 2))


def _explain(problem: AllocationProblem, job_id: str, allocation: Allocation) -> dict[str, Any]:
    from offcut.allocate.explain import explain

    return explain(problem, job_id, allocation).as_json()


def _warm(policy: str | None) -> None:
    from offcut.allocate import exact
    from offcut.allocate import policy as policies

    if policy is None:
        exact.warm()
    else:
        policies.load(policy)


def _kind(found: Allocation | str) -> str:
    """Return as what an answer is counted."""
    if isinstance(found, str):
        return "failed"
    return "standin" if found.standin else "proven" if found.proven else "unproven"


class SolverProcess(Protocol):
    """What makes the calls to solvers and policies: see `CallProcess`."""

    @property
    def pid(self) -> int | None: ...

    async def start(self) -> None: ...

    async def call(self, function: Callable[..., _Result], *arguments: Any, limit_s: float) -> _Result: ...

    def close(self) -> None: ...


class Solver:
    """Solves one problem at a time. While it does, only the newest problem that arrives is kept."""

    def __init__(
        self,
        answer: Answer,
        policy: str | None = None,
        limit_s: float = 10.0,
        *,
        process: SolverProcess | None = None,
    ) -> None:
        """`policy`: a baseline's name or `file.py:function`; None: the exact optimum.

        `limit_s`: the process is killed when it has not answered after this. `process`: makes the calls, in place of a
        process of this solver's own.
        """
        self._answer = answer
        self.policy = policy
        self._limit_s = limit_s
        self._newest: tuple[int, AllocationProblem]
        self._asked = asyncio.Event()
        #: From the question to the answer: the time in the other process and on the way there.
        self.seconds = Histogram(_BOUNDS_S)
        #: Answers by kind. `standin`: a quick heuristic's, because the solver did not answer. `superseded`: not used,
        #: because a newer problem was asked meanwhile.
        self.answers = Counter(proven=0, unproven=0, standin=0, failed=0, superseded=0)
        self.process: SolverProcess = process or CallProcess(partial(_warm, policy))

    def ask(self, version: int, problem: AllocationProblem) -> None:
        """Ask for an answer to the problem. It comes later, or never if a newer problem is asked before its turn."""
        self._newest = (version, problem)
        self._asked.set()

    async def run(self) -> None:
        """Answer what is asked, until cancelled."""
        # The first answer of a process waits for imports and kernels, so this one is not for anyone who waits.
        with suppress(CallDiedError, CallTimeoutError):
            await self.process.start()
        while True:
            await self._asked.wait()
            version, problem = self._take()
            began_s = clocks.steady_s()
            try:
                found: Allocation | str = await self._ask_process(problem)
            except (CallTimeoutError, CallDiedError) as error:
                if self._asked.is_set():
                    version, problem = self._take()
                found = await self._stand_in(problem, error.what)
            except Exception as error:  # whatever a solver raises, the jobs keep their nodes and the user is told
                _log.error("solver_failed", error=str(error))
                found = str(error) or type(error).__name__
            late, took_s = self._asked.is_set(), clocks.steady_s() - began_s
            used = not late or took_s > SLOW_S
            self.seconds.observe(took_s)
            self.answers[_kind(found) if used else "superseded"] += 1
            if used:
                self._answer(version, found, late)

    def _take(self) -> tuple[int, AllocationProblem]:
        """Return the newest problem. Afterwards no problem waits."""
        self._asked.clear()
        return self._newest

    async def _ask_process(self, problem: AllocationProblem) -> Allocation:
        try:
            return await self.process.call(_solve, problem, self.policy, self._limit_s, limit_s=self._limit_s)
        except CallDiedError:
            # Something may have killed it by chance: try once more.
            return await self.process.call(_solve, problem, self.policy, self._limit_s, limit_s=self._limit_s)

    async def _stand_in(self, problem: AllocationProblem, reason: str) -> Allocation | str:
        what = "The solver" if self.policy is None else f"The policy {self.policy}"
        _log.error("solver_replaced", reason=reason)
        try:
            # In a thread: with thousands of nodes it takes a moment.
            found = await asyncio.to_thread(standin.solve, problem)
        except Exception as error:
            return f"{what} failed ({reason}) and so did the greedy answer: {error}"
        return replace(found, standin=f"{what}: {reason}")

    async def explain(self, problem: AllocationProblem, job_id: str, allocation: Allocation) -> dict[str, Any]:
        """Return why the job has what the allocation gives it; see `offcut.allocate.explain`."""
        return await self.process.call(_explain, problem, job_id, allocation, limit_s=self._limit_s)

    def close(self) -> None:
        """End the process at once, whatever it does."""
        self.process.close()
