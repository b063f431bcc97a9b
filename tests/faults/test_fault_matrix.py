"""Members die, freeze and are cut off at named points: nothing is lost or counts twice, and the table is true."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from golden import SCRIPT, STEPS_PER_EPOCH, assert_same_training, undisturbed

from faults.account import Account, End, Strike, incarnation_of, node_of
from faults.matrix import EARLY, JOINING, LATE, Case, cases
from faults.outcomes import Fate
from live import Running, wait_for
from offcut.torch.state import dcp_shards
from offcut.wire.step_records import StepHistory, history

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-2"), pytest.mark.timeout(300)]

EPOCHS = 20
STEPS = EPOCHS * STEPS_PER_EPOCH
#: Seconds of a turn: as a rule; once most of the training is over and what has to come of the fault is not there yet.
PACE_S, WAITING_PACE_S = 0.05, 0.5
#: A fault strikes this many steps after it was made ready: by then all members are known to see it.
LEAD = 5
#: What the agent reports of a worker that was struck.
TOLD = {Fate.DIES: End("lost", "killed by signal 9"), Fate.FROZEN: End("lost", "it froze and was killed")}


@pytest.fixture(scope="module")
def reference() -> dict[int, StepHistory]:
    """Return the steps of the same script by plain Python, undisturbed."""
    return undisturbed(EPOCHS)


class Training:
    """A job under `plans`: two members train, a third node can be offered. It is slow while something is awaited."""

    def __init__(self, cluster: Running, directory: Path, plans: tuple[dict[str, Any], ...]) -> None:
        self.cluster = cluster
        self._pace = directory / "pace"
        self._set_pace(PACE_S)
        cluster.client.post("/v1/nodes/offer", {"nodes": ["n01", "n02"]})
        cluster.client.post("/v1/nodes/want", {"nodes": ["n03"]})
        # What the last case froze or killed has to be gone; a worker that stayed would keep its node from this one.
        wait_for("two nodes that nobody has", lambda: self._free() == {"n01", "n02"})
        wait_for("the last case's workers to be gone", lambda: not cluster.workers())
        self.job = cluster.submit(
            SCRIPT, "--epochs", str(EPOCHS), "--pace-file", str(self._pace),
            sizes="1:3", checkpoint_age_s=1.0, max_failures=3, env={"OFFCUT_FAULTS": json.dumps(plans)},
        )  # fmt: skip
        self.account = Account(cluster.paths, self.job)
        #: Every set of published checkpoints that was seen.
        self.published: list[tuple[int, ...]] = []
        self.until("two members", lambda shown: shown["size"] == 2 and shown["steps"] >= 2)

    def _free(self) -> set[str]:
        return {node["name"] for node in self.cluster.client.get("/v1/status")["nodes"] if node["job"] is None}

    def _set_pace(self, turn_s: float) -> None:
        new = self._pace.with_suffix(".new")
        new.write_text(str(turn_s))
        new.replace(self._pace)

    def make_ready(self, when: str) -> None:
        """Faults of this time strike from now on, at a step that all members are still to come to."""
        step = 1 if when == JOINING else self.cluster.job(self.job)["steps"] + LEAD
        new = self.account.directory / f"{when}.new"
        new.write_text(str(step))
        new.rename(new.with_suffix(""))

    def offer_the_third(self) -> None:
        self.cluster.client.post("/v1/nodes/offer", {"nodes": ["n03"]})

    def until(self, what: str, holds: Callable[[dict[str, Any]], Any]) -> None:
        def look(shown: dict[str, Any]) -> Any:
            self._note_checkpoints()
            if shown["steps"] > 0.6 * STEPS:
                self._set_pace(WAITING_PACE_S)
            return holds(shown)

        self.cluster.until(self.job, what, look)

    def _note_checkpoints(self) -> None:
        names = tuple(self.account.checkpoints)
        if not self.published or self.published[-1] != names:
            self.published.append(names)

    def end(self) -> dict[int, StepHistory]:
        self._set_pace(0.0)
        self.cluster.until(self.job, "the end", lambda shown: shown["state"] == "finished")
        self._note_checkpoints()
        return history(self.account.directory / "records")


def undergo(training: Training, case: Case) -> None:
    """Wait until all faults have struck."""
    account = training.account

    def struck(when: str) -> Callable[[dict[str, Any]], bool]:
        planned = {number for number, plan in enumerate(case.plans) if plan.get("after") == when}
        return lambda _: planned <= {strike.plan for strike in account.strikes}

    if case.strikes(EARLY):
        training.make_ready(EARLY)
        training.until("the fault to strike", struck(EARLY))
    if case.strikes(JOINING):
        training.make_ready(JOINING)
    training.offer_the_third()
    training.until("the fault to strike", struck(JOINING))
    training.until("three members", lambda shown: shown["size"] == 3)
    if case.strikes(LATE):
        training.until("a checkpoint", lambda _: account.checkpoints)
        training.make_ready(LATE)
        training.until("the fault to strike", struck(LATE))


def await_outcome(training: Training, case: Case, struck: list[Strike]) -> None:
    """Wait until what the matrix says has happened."""
    account, outcome = training.account, case.outcome

    def replaced(strike: Strike) -> bool:
        return any(
            node_of(worker) == node_of(strike.worker) and incarnation_of(worker) > incarnation_of(strike.worker)
            for generation, workers in account.contributed.items()
            if generation > strike.generation
            for worker in workers
        )

    for strike in struck:
        fate = case.fate(strike.plan)
        if fate is not Fate.STAYS:
            training.until("the struck worker to be gone", lambda _, pid=strike.pid: not _lives(pid))
        if fate in TOLD:
            training.until("its end to be told", lambda _, worker=strike.worker: worker in account.ends)
        if outcome.renewed:
            training.until("another generation", lambda _, e=strike.generation: max(account.contributed, default=0) > e)
        if outcome.replaced and fate is not Fate.STAYS:
            training.until("another worker in its place", lambda _, strike=strike: replaced(strike))
    newest = max(account.checkpoints, default=0)
    training.until("all members, and another checkpoint", lambda shown: shown["size"] == 3 and _newer(account, newest))


def _lives(pid: int) -> bool:
    with suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def _newer(account: Account, step: int) -> bool:
    return max(account.checkpoints, default=0) > step


def check_training(training: Training, reference: dict[int, StepHistory], redone: int) -> None:
    steps = training.end()
    assert_same_training(steps, reference)
    again = sum(len(record.applied_in) - 1 for record in steps.values())
    assert again <= redone, training.cluster.story(training.job)


def check_workers(account: Account, case: Case, struck: list[Strike]) -> None:
    """Check which workers were ended and which were members."""
    outcome, ends, contributed = case.outcome, account.ends, account.contributed
    for strike in struck:
        later = [
            generation
            for generation, workers in contributed.items()
            if generation > strike.generation and strike.worker in workers
        ]
        fate = case.fate(strike.plan)
        if fate is Fate.STAYS:
            assert later or not outcome.renewed, "it is a member again"
            assert ends[strike.worker].outcome in ("finished", "left")
        else:
            assert not later, "nothing that it does counts"
            if outcome.newcomer:
                assert account.last_generation(strike.worker) == 0, "it has never been a member"
        if fate in TOLD:
            assert ends[strike.worker] == TOLD[fate]
    if not case.all_die:
        names = {strike.worker for strike in struck}
        others = {worker: end for worker, end in ends.items() if worker not in names}
        assert {end.outcome for end in others.values()} <= {"finished", "left"}, others
        assert len(contributed[max(contributed)]) == 3 or not outcome.replaced
    if not outcome.renewed:
        assert account.last_generation(struck[0].worker) <= struck[0].generation or outcome.newcomer
    if outcome.ahead:
        step = struck[0].step
        assert list(account.applied(step)) == [struck[0].generation], "it was not done again"
        assert not account.applied(step)[struck[0].generation] & {strike.worker for strike in struck}


def check_checkpoints(training: Training, case: Case, struck: list[Strike], saved: int) -> None:
    """Check that no checkpoint disappears before a newer one is there, and that all can be read.

    `saved`: the newest one's step when all had died; a training that went back to it may save at any later step again.
    """
    for before, after in zip(training.published, training.published[1:], strict=False):
        assert max(after, default=0) >= max(before, default=0), "the newest is never older than what was there"
    readable = training.account.checkpoints
    assert readable
    for path in readable.values():
        dcp_shards.read(path)
    for strike in struck:
        if case.plans[strike.plan]["point"] in ("writing", "publishing"):
            interrupted = strike.step - 1
            if case.all_die:
                assert saved < interrupted, "it was not published"
            else:
                assert all(interrupted not in names for names in training.published), "it was never published"


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=() if case.default else pytest.mark.ci) for case in cases()],
)
def test_fault(cluster: Running, reference: dict[int, StepHistory], tmp_path: Path, case: Case) -> None:
    training = Training(cluster, tmp_path, case.plans)
    account = training.account
    undergo(training, case)
    saved, ended, struck = 0, 0, account.strikes
    if case.all_die:
        for worker in cluster.workers():
            worker.kill()
        # The others may have trained on without the one that was struck.
        saved, ended = max(account.checkpoints), max(account.contributed)
    if not case.at_the_end:
        await_outcome(training, case, struck)
    check_training(training, reference, case.outcome.redone)
    if case.at_the_end:
        struck = account.strikes
    assert {strike.plan for strike in struck} == set(range(len(case.plans))), cluster.stories(training.job)
    check_workers(account, case, struck)
    check_checkpoints(training, case, struck, saved)
    if case.outcome.from_checkpoint:
        assert account.first_step_after(ended) == saved + 1, "all went on from the newest checkpoint"


def test_the_rendezvous_store_dies(cluster: Running, reference: dict[int, StepHistory], tmp_path: Path) -> None:
    """Training goes on without it; the next generation forms with its successor."""
    training = Training(cluster, tmp_path, ())
    training.offer_the_third()
    training.until("three members", lambda shown: shown["size"] == 3)
    old = json.loads(cluster.paths.rendezvous.read_text())
    os.kill(old["pid"], signal.SIGKILL)
    victim = cluster.workers()[-1]
    generation = cluster.job(training.job)["generation"]
    victim.kill()

    def another() -> bool:
        try:
            return json.loads(cluster.paths.rendezvous.read_text())["pid"] != old["pid"]
        except (OSError, ValueError):
            return False

    training.until("a new store", lambda _: another())
    training.until("three members again", lambda shown: shown["size"] == 3 and shown["generation"] > generation)
    check_training(training, reference, redone=1)
