"""The solver's watchdog: for any behaviour of a solver or policy there is an answer, and its process ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from offcut.model import Allocation, AllocationProblem, JobRequest, amdahl
from offcut.service.solver import Solver

POLICIES = Path(__file__).with_name("policies_that_hang.py")


def problem(nodes: int = 8) -> AllocationProblem:
    jobs = tuple(JobRequest(id=name, min_nodes=1, max_nodes=4, curve=amdahl(8)) for name in ("a", "b"))
    return AllocationProblem(nodes=nodes, horizon_s=120.0, jobs=jobs)


class Asked:
    """A solver, and everything that it has answered."""

    def __init__(self, policy: str | None, limit_s: float) -> None:
        self.answers: list[tuple[int, Allocation | str, bool]] = []
        self._came = asyncio.Condition()
        self.solver = Solver(self._take, policy, limit_s=limit_s)
        self._running = asyncio.create_task(self.solver.run())

    def _take(self, version: int, answer: Allocation | str, late: bool) -> None:
        self.answers.append((version, answer, late))

    async def until(self, count: int) -> None:
        async with asyncio.timeout(90):
            while len(self.answers) < count:
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        self.solver.close()
        self._running.cancel()
        await asyncio.wait((self._running,))


def run(scenario: Callable[[Asked], Awaitable[None]], policy: str | None = None, limit_s: float = 60.0) -> None:
    async def whole() -> None:
        asked = Asked(policy, limit_s)
        try:
            await scenario(asked)
        finally:
            await asked.close()

    asyncio.run(whole())


def test_a_policy_that_hangs_is_killed_and_a_greedy_answer_is_taken() -> None:
    async def scenario(asked: Asked) -> None:
        for version in (1, 2):
            asked.solver.ask(version, problem())
            await asked.until(version)
        for _, answer, late in asked.answers:
            assert isinstance(answer, Allocation)
            assert answer.nodes == {"a": 4, "b": 4}
            assert "did not answer within 1 s and was killed" in answer.standin
            assert not late

    run(scenario, f"{POLICIES}:loops", limit_s=1.0)


def test_a_frozen_solver_is_replaced() -> None:
    async def scenario(asked: Asked) -> None:
        asked.solver.ask(1, problem())
        await asked.until(1)
        frozen = asked.solver.process.pid
        assert frozen is not None
        os.kill(frozen, signal.SIGSTOP)
        asked.solver.ask(2, problem())
        await asked.until(2)
        asked.solver.ask(3, problem())
        await asked.until(3)
        first, second, third = (answer for _, answer, _ in asked.answers)
        assert isinstance(first, Allocation)
        assert isinstance(second, Allocation)
        assert isinstance(third, Allocation)
        assert (first.standin, third.standin) == ("", "")
        assert "was killed" in second.standin
        assert not psutil.pid_exists(frozen)

    run(scenario, "greedy", limit_s=2.0)


def test_a_solver_that_was_killed_is_asked_once_more() -> None:
    async def scenario(asked: Asked) -> None:
        asked.solver.ask(1, problem())
        await asked.until(1)
        assert asked.solver.process.pid is not None
        os.kill(asked.solver.process.pid, signal.SIGKILL)
        asked.solver.ask(2, problem())
        await asked.until(2)
        assert all(isinstance(answer, Allocation) and not answer.standin for _, answer, _ in asked.answers)

    run(scenario, "greedy")


@pytest.mark.parametrize(("policy", "said"), [("exits", "SystemExit: 3"), ("dies", "Its process died")])
def test_a_policy_that_ends_its_process_is_told(policy: str, said: str) -> None:
    async def scenario(asked: Asked) -> None:
        asked.solver.ask(1, problem())
        await asked.until(1)
        answer = asked.answers[0][1]
        assert said in (answer if isinstance(answer, str) else answer.standin)

    run(scenario, f"{POLICIES}:{policy}")


def test_a_slow_policy_is_heard_though_newer_problems_come_all_the_time() -> None:
    async def scenario(asked: Asked) -> None:
        async def keep_asking() -> None:
            for version in range(1, 1000):
                asked.solver.ask(version, problem())
                await asyncio.sleep(0.1)

        asking = asyncio.create_task(keep_asking())
        await asked.until(2)
        asking.cancel()
        assert [late for _, _, late in asked.answers] == [True, True]

    run(scenario, f"{POLICIES}:slow")


def test_close_ends_the_process_even_while_it_hangs() -> None:
    pids: list[int] = []

    async def scenario(asked: Asked) -> None:
        await asked.solver.process.start()
        asked.solver.ask(1, problem())
        await asyncio.sleep(0.2)
        assert asked.solver.process.pid is not None
        pids.append(asked.solver.process.pid)

    run(scenario, f"{POLICIES}:loops")
    assert not psutil.pid_exists(pids[0])
