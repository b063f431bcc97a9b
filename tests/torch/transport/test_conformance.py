"""What every transport promises, over real processes; see `Transport` for the sentences."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing

from offcut.torch.membership.rendezvous_store import RendezvousStore
from offcut.torch.testing.fake_accelerator import FakeAcceleratorTransport, FakePlan
from offcut.torch.transport import abort
from offcut.torch.transport.abort import abort_or_exit
from offcut.torch.transport.gloo import FORMING, GlooTransport
from offcut.torch.transport.nccl import NcclTransport
from offcut.torch.transport.protocol import Transport, TransportError
from rendezvous import LIMIT_S, shared_store

#: In one process of xdist with the other tests that start the rendezvous store's server.
pytestmark = pytest.mark.xdist_group("members")

HAS_GPUS = torch.cuda.device_count() > 1
KINDS = [
    "gloo",
    "fake",
    pytest.param("nccl", marks=pytest.mark.skipif(not HAS_GPUS, reason="NCCL needs two GPUs of NVIDIA's")),
]
MAKE: dict[str, Callable[..., Transport]] = {
    "gloo": GlooTransport,
    "fake": FakeAcceleratorTransport,
    "nccl": NcclTransport,
}
JOB = "transports"


class Member:
    """One member in a process of its own."""

    def __init__(self, kind: str, rank: int, world: int, place: Path, meeting: dict[str, Any]) -> None:
        self.kind, self.rank, self.world, self._place, self._meeting = kind, rank, world, place, meeting
        #: Referenced for as long as the transports.
        self._stores: list[Any] = []
        self._generations = itertools.count()
        self.device = torch.device("cuda", rank) if kind == "nccl" else torch.device("cpu")
        if kind == "nccl":
            torch.cuda.set_device(rank)

    def formed(self, **options: Any) -> Transport:
        transport = MAKE[self.kind](lambda: None, **options)
        self._stores.append(RendezvousStore(self._meeting["store"], JOB, 1, self._meeting["secret"], FORMING))
        generation = next(self._generations)
        store = dist.PrefixStore(f"{self._place}/{generation}", self._stores[-1])
        transport.form(store, self.rank, self.world, "127.0.0.1")
        # An abort ends connections that others may still be making.
        self.say(f"formed {generation} {self.rank}")
        for rank in range(self.world):
            self.hear(f"formed {generation} {rank}")
        return transport

    def ones(self, count: int = 4) -> torch.Tensor:
        return torch.full((count,), self.rank + 1.0, device=self.device)

    def say(self, what: str) -> None:
        (self._place / what).touch()

    def hear(self, what: str) -> None:
        until((self._place / what).exists)


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.001)


def wait(transport: Transport, *operations: Any) -> None:
    until(lambda: all(transport.done(operation) for operation in operations))


Task = Callable[[Member], Any]


def _run(task: Task, member: tuple[Any, ...], pipe: Any) -> None:
    torch.set_num_threads(1)
    pipe.send(task(Member(*member)))
    pipe.recv()  # until all are done: an end is noticed by the others
    os._exit(0)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[Any]]:
    """Return `run(kind, world, task)`: what `task(member)` returns in each process, or the process's exit code."""

    def run(kind: str, world: int, task: Task) -> list[Any]:
        context = torch.multiprocessing.get_context("spawn" if kind == "nccl" else "fork")
        meeting = shared_store().meeting_point(JOB, 1)
        running = []
        for rank in range(world):
            ours, theirs = context.Pipe()
            member = kind, rank, world, tmp_path, meeting
            process = context.Process(target=_run, args=(task, member, theirs), daemon=True)
            process.start()
            theirs.close()
            running.append((process, ours))
        results = []
        for process, pipe in running:
            try:
                results.append(pipe.recv() if pipe.poll(LIMIT_S) else "did not end")
            except EOFError:
                process.join(LIMIT_S)
                results.append(("exit code", process.exitcode))
        for process, pipe in running:
            with suppress(OSError):
                pipe.send("end")
            process.join(LIMIT_S)
        return results

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_buckets_are_summed_in_order_to_the_same_bits(run: Callable, kind: str) -> None:
    def task(member: Member) -> list[list[float]]:
        transport = member.formed()
        torch.manual_seed(member.rank)
        buckets = [torch.randn(count, device=member.device) for count in (5, 1, 300)]
        wait(transport, *[transport.reduce(bucket) for bucket in buckets])
        return [bucket.tolist() for bucket in buckets]

    first, *others = run(kind, 3, task)
    assert all(other == first for other in others)
    seeds = [torch.Generator().manual_seed(rank) for rank in range(3)]
    if kind != "nccl":
        for bucket in first:
            assert bucket == pytest.approx(
                sum(torch.randn(len(bucket), generator=seed) for seed in seeds).tolist(), abs=1e-5
            )


@pytest.mark.parametrize("kind", KINDS)
def test_starting_waits_for_no_member_and_nothing_is_done_before_all_have_started(run: Callable, kind: str) -> None:
    def task(member: Member) -> bool:
        transport = member.formed()
        tensor = member.ones()
        if member.rank == 1:
            member.hear("started")
        operation = transport.reduce(tensor)
        early = transport.done(operation) if member.rank == 0 else False
        member.say("started")
        wait(transport, operation)
        assert tensor.tolist() == [3.0] * 4
        return early

    assert run(kind, 2, task) == [False, False]


@pytest.mark.parametrize("kind", KINDS)
def test_messages_arrive_where_they_are_sent(run: Callable, kind: str) -> None:
    def task(member: Member) -> list[float]:
        transport = member.formed()
        other, given = 1 - member.rank, torch.zeros(4, device=member.device)
        if member.rank == 0:
            wait(transport, transport.send(member.ones(), other, 3))
            wait(transport, transport.receive(given, other, 4))
        else:
            wait(transport, transport.receive(given, other, 3))
            wait(transport, transport.send(member.ones(), other, 4))
        return given.tolist()

    assert run(kind, 2, task) == [[2.0] * 4, [1.0] * 4]


@pytest.mark.parametrize("kind", KINDS)
def test_after_an_abort_the_next_generation_has_its_own_sums(run: Callable, kind: str) -> None:
    """The first member has started a sum in which the other one never took part."""

    def task(member: Member) -> list[float]:
        transport = member.formed()
        if member.rank == 0:
            transport.reduce(member.ones())
        abort_or_exit(transport, member.rank)
        following, tensor = member.formed(), member.ones()
        wait(following, following.reduce(tensor))
        following.leave()
        return tensor.tolist()

    assert run(kind, 2, task) == [[3.0] * 4] * 2


# -- what only accelerators do


def test_a_tensor_means_nothing_before_its_operation_is_done_and_after_an_abort(run: Callable) -> None:
    def task(member: Member) -> list[bool]:
        transport = member.formed(plan=FakePlan(stuck=frozenset({1})))
        first, second, third = member.ones(), member.ones(), member.ones()
        operations = [transport.reduce(tensor) for tensor in (first, second, third)]
        before = second.isnan().all()
        wait(transport, operations[0])
        transport.abort()
        with pytest.raises(TransportError):
            transport.done(operations[1])
        return [bool(before), first.tolist() == [3.0] * 4, bool(second.isnan().all()), bool(third.isnan().all())]

    assert run("fake", 2, task) == [[True] * 4] * 2


def test_an_operation_may_end_on_some_members_only(run: Callable) -> None:
    def task(member: Member) -> bool:
        transport = member.formed(plan=FakePlan(lost=frozenset({0} if member.rank == 1 else {}), late_s=0.02))
        operation = transport.reduce(member.ones())
        if member.rank == 0:
            wait(transport, operation)
            member.say("done")
        member.hear("done")
        return transport.done(operation)

    assert run("fake", 2, task) == [True, False]


def test_a_process_that_cannot_abort_ends(run: Callable) -> None:
    def task(member: Member) -> str:
        abort.LIMIT_S = 0.2 if member.rank == 1 else LIMIT_S
        transport = member.formed(plan=FakePlan(abort_hangs=member.rank == 1))
        abort_or_exit(transport, member.rank)
        return "goes on"

    assert run("fake", 2, task) == ["goes on", ("exit code", 75)]
