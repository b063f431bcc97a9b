"""A simulated worker of a job: `offcut.torch`'s member with its own decisions, and with simulated steps and transport.

It does what `torch.membership.member`, `torch.training_member` and `torch.membership.state_sync` do, in their order,
and decides with the same functions of `offcut.membership`. What it computes is a chain of steps, which the job's ledger
compares with what the others have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import NoReturn

from offcut.membership.boundary import at_boundary
from offcut.membership.entering import NextMove, next_move
from offcut.membership.generation import Generation
from offcut.membership.leaving import (
    BOUNDARY_WAIT_S,
    SAVING_S,
    Departure,
    others_go_on,
    saves_replica,
    saves_replica_in_time,
)
from offcut.membership.state_givers import newest_step, transfer_rounds
from offcut.testing.campaign.collectives import AbandonedError, Group
from offcut.testing.campaign.ledger import JobLedger, TrainingStep
from offcut.testing.campaign.member_surroundings import Flags, LeftError, Surroundings
from offcut.testing.campaign.worker_link import WorkerLink
from offcut.wire.worker_messages import (
    Beat,
    StepProgress,
    WorkerBroken,
    WorkerFinished,
    WorkerFormed,
    WorkerHello,
    WorkerLeft,
    WorkerReady,
)

#: Heartbeats are not counted as events, and cost time: workers send fewer than the real five a second.
_BEAT_S = 0.5


class SimulatedMember:
    """`ledger` is the job; `random` draws how long its work takes."""

    def __init__(
        self,
        link: WorkerLink,
        ledger: JobLedger,
        surroundings: Surroundings,
        random: Random,
        *,
        checkpoint_age_s: float,
        step_s: float,
    ) -> None:
        self.link = link
        self.ledger = ledger
        self._surroundings = surroundings
        self._random = random
        self._age_s = checkpoint_age_s
        self._step_s = step_s
        self.state: TrainingStep | None = None
        self.has_state = False
        self.group: Group | None = None
        self._tried = -1
        self._formed: Generation | None = None
        self._own_mark = -1
        self._applied = False
        self._outcome: list[Flags] | None = None
        self._stable: TrainingStep | None = None
        self._announced = -1
        #: Held from applying a step until the next boundary is passed; while free, the state is a boundary's.
        self._changing = asyncio.Lock()
        self._changes = False
        self._next_checkpoint_s = 0.0
        self._begun: tuple[int, TrainingStep | None, tuple[str, ...]] | None = None
        self._progress: StepProgress | None = None
        self._boundary_s = 0.0
        self._last_steps_s: list[float] = []
        link.on_leave = self._told_to_leave
        self.spawn: Callable[[object], object] = lambda _: None

    @property
    def step(self) -> int:
        return 0 if self.state is None else self.state.number

    # -- the script ---------------------------------------------------------------------------------------------------

    async def run(self, boot_s: float, end_s: float) -> int:
        """Train to the goal; return the exit code of the script."""
        self.link.send(WorkerHello(worker=self.link.worker))
        await asyncio.sleep(boot_s)
        self._next_checkpoint_s = self._now_s() + self._age_s / 2
        try:
            await self._enter_next()
            while True:
                await self._boundary()
                if self.step >= self.ledger.goal_steps:
                    if not await self._finish():
                        continue
                    break
                await self._run_step()
        except LeftError:
            return 0
        await asyncio.sleep(end_s)
        return 0

    async def beat_forever(self) -> None:
        while True:
            self.link.send(Beat(progress=self._progress))
            await asyncio.sleep(_BEAT_S)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def _run_step(self) -> None:
        group = self.group
        assert group is not None
        await asyncio.sleep(self._step_s * self._random.uniform(0.8, 1.2))
        flags = Flags(
            switch=self.link.newer_than(group.membership.generation),
            save=group.rank == 0 and self._begun is None and self._now_s() >= self._next_checkpoint_s,
            leaving=self.link.leaving,
        )
        try:
            self._outcome = await group.gather(flags)
        except AbandonedError as reason:
            self._end_change()
            self._abandon(str(reason))
            return
        self._note_stable()
        await self._begin_change()
        self.state = TrainingStep(
            self.step + 1,
            group.membership.generation,
            (0 if self.state is None else self.state.samples) + self.ledger.batch,
            self.state,
        )
        self._applied = True
        if group.world == 1:
            self._note_stable()
        self._report(group)

    async def _begin_change(self) -> None:
        """Let nothing else save the state until the next boundary is passed."""
        if not self._changes:
            await self._changing.acquire()
            self._changes = True

    def _end_change(self) -> None:
        if self._changes:
            self._changes = False
            self._changing.release()

    def _note_stable(self) -> None:
        self._stable = self.state
        self._surroundings.stable(self.ledger, self.link.worker, self.state)

    def _report(self, group: Group) -> None:
        stable, generation = self._stable, group.membership.generation
        self._progress = StepProgress(
            generation=generation,
            step=0 if stable is None else stable.number,
            samples=0 if stable is None else stable.samples,
            clock_s=self._now_s(),
            own_s=self._now_s(),
            loss=1.0,
            first=group.rank == 0,
        )
        if self._announced != generation:
            self._announced = generation
            if group.rank == 0:
                self.link.send(WorkerFormed(generation=generation, step=self.step, fingerprint=self.ledger.job[:1]))

    # -- boundaries ---------------------------------------------------------------------------------------------------

    async def _boundary(self) -> None:
        await self._begin_change()
        try:
            await self._move_on()
        finally:
            self._end_change()
        now_s = self._now_s()
        if self._boundary_s:
            self._last_steps_s = [*self._last_steps_s[-2:], now_s - self._boundary_s]
        self._boundary_s = now_s
        self._publish()

    async def _move_on(self) -> None:
        group, outcome = self.group, self._outcome
        leaving = [rank for rank, flags in enumerate(outcome or ()) if flags.leaving]
        actions = at_boundary(
            has_group=group is not None,
            aborted=group is not None and self.link.aborted(group.membership.generation),
            applied=self._applied and outcome is not None,
            switch=outcome is not None and any(flags.switch for flags in outcome),
            save=outcome is not None and any(flags.save for flags in outcome),
            leaving=bool(leaving),
        )
        self._applied = False
        if actions.abandon:
            self._abandon("a newer generation came")
        if actions.checkpoint and group is not None:
            self._next_checkpoint_s = self._now_s() + self._age_s / 2
            if group.rank == 0:
                self._begun = self.step, self.state, group.membership.workers
        if actions.enter:
            self._boundary_s = 0.0
            await self._enter_next()
        elif actions.switch:
            self._boundary_s = 0.0
            await self._switch(leaving)

    def _publish(self) -> None:
        begun, stable = self._begun, self._stable
        if begun is not None and stable is not None and begun[0] <= stable.number:
            self._begun = None
            if not self._overtaken():
                self.ledger.publish(begun[1])

    def _overtaken(self) -> bool:
        return self.ledger.mark > self._own_mark >= 0

    def _abandon(self, reason: str) -> None:
        group, self.group = self.group, None
        if group is not None:
            group.leave()
            self.link.send(WorkerBroken(generation=group.membership.generation, detail=reason))

    async def _enter_next(self, gone: Sequence[int] = ()) -> None:
        link, old = self.link, self.group
        self.group = None
        if self._formed is None:
            link.send(WorkerReady())
        while True:
            await link.wait_for(lambda: link.leaving or link.newer_than(self._tried))
            newest = link.newest if link.newer_than(self._tried) else None
            move = next_move(link.worker, newest, was_member=self._formed is not None)
            if move is NextMove.LEAVE or newest is None:
                if old is not None:
                    old.leave()
                await self._leave(save=self._must_save(newest, gone, gone_known=old is not None))
            self._tried = newest.generation
            if move is NextMove.WAIT:
                continue
            try:
                group = await self._form(newest)
            except AbandonedError as reason:
                if link.leaving and not self.has_state:
                    await self._leave(save=False)
                link.send(WorkerBroken(generation=newest.generation, detail=str(reason)))
                continue
            if old is not None:
                old.leave()
            self.group, self._formed = group, newest
            self._own_mark = newest.generation
            if group.rank == 0:
                self.ledger.mark = newest.generation
            if self._begun is not None and not set(self._begun[2]) <= set(newest.workers):
                self._begun = None
            return

    async def _form(self, newest: Generation) -> Group:
        link = self.link
        group = self._surroundings.group(newest, newest.workers.index(link.worker))
        group.stale = lambda: link.newer_than(newest.generation) or (link.leaving and not self.has_state)
        try:
            await asyncio.sleep(self._random.uniform(0.005, 0.05))
            await self._synchronise(group)
        except AbandonedError:
            group.leave()
            raise
        group.stale = lambda: link.aborted(newest.generation)
        return group

    async def _synchronise(self, group: Group) -> None:
        steps = list(await group.gather(self.step if self.has_state else -1))
        if newest_step(steps) < 0:
            if group.rank == 0:
                self.state = self.ledger.newest_checkpoint()
                self._surroundings.begins(self.ledger, self.link.worker, self.state)
            steps[0] = 0
        for pairs in transfer_rounds(steps):
            given = await group.gather(self.state)
            for giver, receiver in pairs:
                if group.rank == receiver:
                    await asyncio.sleep(self._random.uniform(0.005, 0.1))
                    self.state = given[giver]
                    self.has_state = True
        self.has_state = True

    async def _switch(self, leaving: Sequence[int]) -> None:
        group = self.group
        assert group is not None
        if group.rank in leaving:
            save = self._must_save(self.link.newest, leaving, gone_known=True, handed_over=len(leaving) < group.world)
            await self._leave(save=save)
        await self._enter_next(leaving)

    # -- leaving ------------------------------------------------------------------------------------------------------

    def _must_save(
        self, newest: Generation | None, gone: Sequence[int], *, gone_known: bool, handed_over: bool = False
    ) -> bool:
        departure = Departure(
            self.link.worker, self._formed, newest, gone, gone_known=gone_known, handed_over=handed_over
        )
        return saves_replica(departure)

    async def _leave(self, *, save: bool) -> NoReturn:
        if save:
            await self._save()
        self.link.send(Beat(progress=self._progress))
        self.link.send(WorkerLeft())
        raise LeftError

    async def _save(self) -> None:
        state = self.state
        await asyncio.sleep(self._random.uniform(0.01, 0.1))
        if not self._overtaken():
            self.ledger.publish(state)

    def _told_to_leave(self, leave_by_s: float, node_wanted: bool) -> None:
        self.spawn(self._leave_in_time(leave_by_s, node_wanted))

    async def _leave_in_time(self, leave_by_s: float, node_wanted: bool) -> None:
        boundary_by_s = min(leave_by_s, self._now_s() + BOUNDARY_WAIT_S) if node_wanted else leave_by_s
        known = self._last_steps_s and self._boundary_s
        if (self._boundary_s + min(self._last_steps_s) if known else 0.0) > boundary_by_s:
            await self._leave_to_others(leave_by_s)
        await asyncio.sleep(max(0.0, leave_by_s - SAVING_S - self._now_s()))
        group, newest = self.group, self.link.newest
        if group is None:
            return
        try:
            async with asyncio.timeout(max(0.0, leave_by_s - self._now_s())):
                await self._changing.acquire()
        except TimeoutError:
            return
        if not saves_replica_in_time(self.link.worker, group.membership, newest):
            self._changing.release()
            return
        await self._save()
        self.link.send(WorkerLeft())
        self._surroundings.exit(0)

    async def _leave_to_others(self, leave_by_s: float) -> None:
        link, group = self.link, self.group
        if group is None:
            return
        current = group.membership
        limit_s = leave_by_s - SAVING_S - self._now_s()
        await link.wait_for(lambda: link.newer_than(current.generation), limit_s)
        if others_go_on(link.worker, current, link.newest):
            link.send(WorkerLeft())
            self._surroundings.exit(0)

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _finish(self) -> bool:
        """Wait until every member has applied the last step. Return False if the membership changed."""
        group = self.group
        assert group is not None
        try:
            rows = await group.gather(self.link.newer_than(group.membership.generation))
            if not any(rows) and group.rank == 0:
                if self._overtaken():
                    raise LeftError
                await self._save()
        except AbandonedError as reason:
            self._abandon(str(reason))
            return False
        if any(rows):
            await self._switch(())
            return False
        self._note_stable()
        self._report(group)
        self.link.send(Beat(progress=self._progress))
        self.link.send(WorkerFinished(generation=group.membership.generation, step=self.step, first=group.rank == 0))
        return True
