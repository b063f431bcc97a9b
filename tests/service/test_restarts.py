"""A restarted controller: nodes go on booting, clocks may have jumped, numbers continue."""

from __future__ import annotations

import asyncio
import json
import os
import time

import pytest
from controlled import Controlled

from offcut.model import events as ev
from offcut.model.events import Timer
from offcut.service import recovery, views
from offcut.wire import messages


class Wall:
    """The wall clock, which may be set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_s = 0.0
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + self.ahead_s)


@pytest.fixture
def wall(monkeypatch):
    return Wall(monkeypatch)


def test_a_node_that_boots_keeps_its_limit(tmp_path, monkeypatch):
    """Agents of nodes that were up have to connect soon; one that boots could not have."""
    monkeypatch.setattr(recovery, "RETURN_S", 0.1)

    async def scenario():
        it = Controlled(tmp_path, monkeypatch)
        it.submit("a")
        it.train("a", "n1")
        it.claim("a", "n1", "n2")
        assert it.state.nodes["n2"].phase == "claimed"
        it.restart()
        await it.begin()
        await asyncio.sleep(0.5)
        assert "n1" not in it.state.nodes, "its agent did not come back"
        assert it.state.nodes["n2"].phase == "claimed"
        assert it.state.timers[Timer("boot", "n2")] > it.controller.clock.now() + 30
        it.dial("n2")
        assert it.state.nodes["n2"].phase == "up"

    asyncio.run(scenario())


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_wall_clock_that_is_set_delays_no_timer(tmp_path, monkeypatch, wall, jump_s):
    async def scenario():
        it = Controlled(tmp_path, monkeypatch)
        it.submit("a")
        it.train("a", "n1")
        wall.ahead_s = jump_s
        now_s = it.controller.clock.now()
        it.send(ev.JobNoted, job="a", text="x", time_s=now_s)
        worker = it.state.nodes["n1"].member
        it.send(ev.WorkerExited, job="a", member=worker, outcome="failed", generation=1, stable_step=5, time_s=now_s)
        assert it.state.nodes["n1"].worker == "stopped"
        for _ in range(100):
            await asyncio.sleep(0.1)
            if it.state.nodes["n1"].worker == "starting":
                break
        assert it.state.nodes["n1"].worker == "starting", "it was to be tried again after half a second"
        assert abs(it.state.now_s - now_s) < 60

    asyncio.run(scenario())


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_wall_clock_that_was_set_between_two_controllers(tmp_path, monkeypatch, wall, jump_s):
    async def scenario():
        it = Controlled(tmp_path, monkeypatch)
        it.submit("a")
        it.claim("a", "n1")
        left_s = it.state.timers[Timer("boot", "n1")] - it.now_s()
        wall.ahead_s = jump_s
        before_s = it.now_s()
        it.restart()
        await it.begin()
        assert it.now_s() >= before_s, "the journal's time does not go back"
        assert left_s - 1 < it.state.timers[Timer("boot", "n1")] - it.controller.clock.now() < left_s + 1

    asyncio.run(scenario())


def test_numbers_go_on_where_the_journal_is_an_older_one(tmp_path, monkeypatch):
    async def scenario():
        it = Controlled(tmp_path, monkeypatch)
        it.submit("a", "1")
        it.train("a", "n1")
        it.journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        older = it.paths.journal.read_bytes()
        for _ in range(3):
            worker = it.state.nodes["n1"].member
            it.send(ev.WorkerExited, job="a", member=worker, outcome="lost", generation=1, stable_step=5)
            it.send(ev.WorkersReady, job="a", members=(it.state.nodes["n1"].member,))
        generation, incarnation = it.state.jobs["a"].generation, it.state.incarnations
        noted = json.loads(it.paths.numbers.read_text())
        assert noted == {"event": it.state.event_id, "incarnation": incarnation, "generations": {"a": generation}}
        it.journal.close()
        for path in tmp_path.glob("journal.sqlite*"):
            path.unlink()
        it.paths.journal.write_bytes(older)
        it.start()
        assert it.state.jobs["a"].generation < generation
        await it.begin()
        assert it.state.jobs["a"].generation == generation + 1
        assert it.state.incarnations == incarnation
        report = messages.WorkerReport(job="a", incarnation=incarnation, ready=True, generation=generation)
        connection = it.dial("n1", report, incarnation=incarnation)
        (heard,) = [m for m in connection._socket.heard if isinstance(m, messages.NewGeneration)][-1:]
        assert heard.generation > generation
        assert [(m.node, m.incarnation) for m in heard.members] == [("n1", incarnation)]

    asyncio.run(scenario())


def test_an_unreadable_note_counts_as_missing(tmp_path, monkeypatch):
    async def scenario():
        it = Controlled(tmp_path, monkeypatch)
        it.paths.numbers.write_text('{"incarnation": -3')
        await it.begin()
        assert it.state.incarnations == 0

    asyncio.run(scenario())


def test_numbers_that_others_remember_are_on_the_disk_first(tmp_path, monkeypatch):
    """Generations and starts; nodes are released before the disk is waited for."""
    order: list[str] = []

    async def scenario():
        it = Controlled(tmp_path, monkeypatch)
        sync = it.journal.sync
        monkeypatch.setattr(it.journal, "sync", lambda: (order.append("sync"), sync()))
        monkeypatch.setattr(it.controller.agents, "send", lambda node, message: order.append(message.kind))
        monkeypatch.setattr(
            it.controller.agents, "send_generation", lambda node, whole, change: order.append(whole.kind)
        )
        it.submit("a")
        assert order == ["sync"], "the user was told that the job is accepted"
        order.clear()
        it.train("a", "n1", "n2")
        assert order[:3] == ["sync", "start", "start"]
        assert order[3] == "sync"
        assert set(order[4:]) == {"generation"}
        order.clear()
        it.send(ev.NodesChanged, wanted=("n2",))
        assert order[0] == "release_node"
        assert order[1] == "sync"
        order.clear()
        it.send(ev.JobNoted, job="a", text="x")
        assert order == []

    asyncio.run(scenario())


def test_sync_reaches_the_file_that_was_written(tmp_path, monkeypatch):
    async def scenario():
        it = Controlled(tmp_path, monkeypatch)
        synced = []
        monkeypatch.setattr("os.fsync", synced.append)
        it.submit("a")
        assert len(synced) == 1
        assert os.readlink(f"/proc/self/fd/{synced[0]}") == f"{it.paths.journal}-wal"

    asyncio.run(scenario())


def heard(connection) -> list[str]:
    return [message.kind for message in connection._socket.heard if isinstance(message, messages.NewGeneration)]


@pytest.mark.parametrize("mode", ["session", "restart"])
def test_members_that_come_back_are_told_the_generation_and_others_only_if_they_wait_for_it(
    tmp_path, monkeypatch, mode
):
    async def scenario():
        it = Controlled(tmp_path, monkeypatch)
        it.submit("a", mode=mode)
        it.train("a", "n1", "n2", "n3")
        it.controller.generations._unsent.clear()  # as it was when the addresses were known
        job = it.state.jobs["a"]
        for member in job.members:
            it.controller.generations._addresses[member.node] = member.incarnation, f"{member.node}:1"

        def dial(name):
            node = it.state.nodes[name]
            report = messages.WorkerReport(job="a", incarnation=node.incarnation, ready=True, address=f"{name}:1")
            return it.dial(name, report)

        agents = {name: dial(name) for name in ("n2", "n3", "n1")}
        assert [m.node for m in job.members] == ["n1", "n2", "n3"]
        # Where the members of a launch meet at the first one's address, its coming back is news to all.
        assert {name: len(heard(agent)) for name, agent in agents.items()} == (
            {"n1": 1, "n2": 1, "n3": 1} if mode == "session" else {"n1": 1, "n2": 2, "n3": 2}
        )
        encoded = {id(message) for _, message in it.controller.generations._resent.values()}
        assert len(encoded) == 1

    asyncio.run(scenario())


def test_events_that_the_journal_has_lost_are_told(tmp_path, monkeypatch):
    """A page of SQLite's log was damaged, so that the last events are gone; see tests/store/test_damage.py."""

    async def scenario():
        it = Controlled(tmp_path, monkeypatch)
        it.submit("a")
        ends_with = it.state.event_id
        it.journal.close()
        it.paths.journal.with_name("journal.sqlite-last").write_text(f"{ends_with + 3:020d}\n")
        it.start()
        await it.begin()
        (remark,) = views.status(it.controller)["journal"]
        assert f"It ends with event {ends_with}: events {ends_with + 1} to {ends_with + 3} had been written" in remark
        it.restart()
        await it.begin()
        assert views.status(it.controller)["journal"] == [], "once"

    asyncio.run(scenario())
