"""A controller's pilots: agents that never connect, pilots that a person cancels, the end. Without Slurm."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from offcut.cluster.slurm import pilot_commands
from offcut.cluster.slurm.commands import CommandError, Commands
from offcut.cluster.slurm.pilot_commands import PilotCommands
from offcut.cluster.slurm.pilot_script import PilotOptions
from offcut.cluster.slurm.pilot_state import Pilot, PilotState
from offcut.cluster.slurm.pilot_table import PilotTable
from offcut.cluster.slurm.records import JobRow
from offcut.cluster.slurm.set_aside import SetAside
from offcut.cluster.slurm.site import make_site
from offcut.wire.credentials import Credentials


class Noted(Commands):
    """Notes commands and carries none out."""

    def __init__(self) -> None:
        super().__init__(1.0)
        self.ran: list[tuple[str, ...]] = []

    async def run(self, command: Sequence[str], stdin: str = "") -> str:
        self.ran.append(tuple(command))
        return ""


def row(node: str, state: str = "RUNNING") -> JobRow:
    return JobRow(id=f"p-{node}", state=state, user="me", partitions=("idle",), node_count=1, nodes=node)


def rows(state: str, *nodes: str) -> Mapping[str, JobRow]:
    return {f"p-{node}": row(node, state) for node in nodes}


def table(directory: Path, *nodes: str, **site: object) -> PilotTable:
    """Return a table in which pilots of these nodes have been submitted at 0 s."""
    given = make_site({"partition": "idle", "pause_after": 2, "pause_s": 60.0, "bench_s": 600.0, **site}, "test")
    commands = PilotCommands(Noted(), lambda: None)
    credentials = Credentials("key", directory / "agents")
    made = PilotTable(given, commands, credentials, lambda node, reason: None, directory)
    for node in nodes:
        made.by_node[node] = Pilot(node, PilotState.SUBMITTED, 0.0, f"p-{node}")
    return made


def ends(made: PilotTable, at_s: float, state: str, *nodes: str) -> None:
    """The pilots run from 1 s on, and end by themselves; what is left was running when it was last seen."""

    async def update() -> None:
        made.update(rows("RUNNING", *made.by_node), 1.0, is_busy=lambda node: False)
        left = set(made.by_node) - set(nodes)
        made.update({**rows("RUNNING", *left), **rows(state, *nodes)}, at_s, is_busy=lambda node: False)

    asyncio.run(update())


def test_agents_that_never_connect_bring_on_a_pause_until_one_does(tmp_path: Path) -> None:
    made = table(tmp_path, "n1", "n2", "n3")
    ends(made, 61.0, "COMPLETED", "n1", "n2", "n3")
    assert "did not reach this controller" in made.pause.reason
    now_s = made.pause.until_s + 1
    assert made.submissions_now(60, now_s - 2) == 0
    assert made.submissions_now(60, now_s) == 1, "one tries whether it works again"
    made.by_node["n4"] = Pilot("n4", PilotState.RUNNING, now_s, "p-n4")
    assert made.submissions_now(60, now_s) == 0, "and no other beside it"
    made.by_node["n4"].agent_came = True
    made.pause.succeeded()
    assert made.submissions_now(60, now_s) == 60


@pytest.mark.parametrize(("at_s", "came"), [(5.0, False), (61.0, True)])
def test_pilots_that_end_early_or_after_their_agents_came_are_not_failures(
    tmp_path: Path, at_s: float, came: bool
) -> None:
    made = table(tmp_path, "n1", "n2", "n3")
    for pilot in made.by_node.values():
        pilot.agent_came = came
    ends(made, at_s, "PREEMPTED", "n1", "n2", "n3")
    assert made.pause.reason == ""


def test_a_cancelled_pilot_s_node_is_left_alone_over_a_restart(tmp_path: Path) -> None:
    made = table(tmp_path, "n1", "n2")
    now_s = asyncio.run(_now_s())
    ends(made, now_s, "CANCELLED", "n1")
    assert made.set_aside.nodes(now_s + 599.0) == {"n1"}
    assert made.pause.reason == "", "another pilot still runs"
    later = SetAside(tmp_path / "set-aside.json")
    later.load(600.0)
    assert later.nodes(now_s + 500.0) == {"n1"}
    shorter = SetAside(tmp_path / "set-aside.json")
    shorter.load(100.0)
    assert shorter.nodes(now_s + 500.0) == set(), "never longer than bench_s"
    (tmp_path / "set-aside.json").write_text("{")
    later = SetAside(tmp_path / "set-aside.json")
    later.load(600.0)
    assert later.nodes(now_s) == set()


def test_a_node_that_is_forgiven_is_claimed_again(tmp_path: Path) -> None:
    made = table(tmp_path, "n1", "n2", "n3")
    now_s = asyncio.run(_now_s())
    ends(made, now_s, "CANCELLED", "n1")
    ends(made, now_s, "NODE_FAIL", "n2")
    assert [(one["node"], one["reason"]) for one in made.set_aside.describe(now_s)] == [
        ("n1", "somebody has cancelled its pilot"),
        ("n2", "its pilot ended with its node"),
    ]
    made.set_aside.forgive(["n1", "unknown"])
    assert made.set_aside.nodes(now_s) == {"n2"}
    later = SetAside(tmp_path / "set-aside.json")
    later.load(600.0)
    assert later.nodes(now_s) == set()
    made.set_aside.forgive([])
    assert made.set_aside.nodes(now_s) == set()


async def _now_s() -> float:
    return asyncio.get_running_loop().time()


def test_a_node_that_broke_is_not_remembered_over_a_restart(tmp_path: Path) -> None:
    made = table(tmp_path, "n1")
    ends(made, 61.0, "NODE_FAIL", "n1")
    assert made.set_aside.nodes(600.0) == {"n1"}
    assert not (tmp_path / "set-aside.json").exists()


def test_a_node_that_slurm_refuses_is_left_alone_and_others_are_not(tmp_path: Path) -> None:
    refused: list[str] = []

    class Refusing(Noted):
        async def run(self, command: Sequence[str], stdin: str = "") -> str:
            bad = "--nodelist=n1" in command
            said = "Requested node configuration is not available" if bad else "Invalid account"
            raise CommandError(f"sbatch failed: {said}", said, refused=True)

    async def submit() -> PilotTable:
        site = make_site({"partition": "idle"}, "test")
        commands = PilotCommands(Refusing(), lambda: None)
        credentials = Credentials("key", tmp_path / "agents")
        made = PilotTable(site, commands, credentials, lambda node, reason: refused.append(node), tmp_path)
        options = PilotOptions(
            site=site, name="offcut-00000001", logs=tmp_path, address_file=tmp_path, credentials=tmp_path
        )
        for node in ("n1", "n2"):
            made.submit(options, node, 60.0)
        await commands.finished()
        return made

    made = asyncio.run(submit())
    assert refused == ["n1", "n2"]
    assert made.set_aside.nodes(0.0) == {"n1"}


def test_no_pilot_is_submitted_elsewhere_when_all_were_cancelled(tmp_path: Path) -> None:
    made = table(tmp_path, "n1", "n2")
    ends(made, 61.0, "CANCELLED", "n1", "n2")
    assert made.pause.reason == "somebody has cancelled all pilots"
    assert made.submissions_now(60, 61.0 + 599.0) == 0
    assert made.submissions_now(60, 61.0 + 601.0) == 1


def test_at_the_end_each_pilot_is_cancelled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pilot_commands, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(pilot_commands, "_LONGEST_WAIT_S", 0.001)
    commands, queries = Noted(), 0
    names = [f"n{i}" for i in range(50)]

    async def query() -> Mapping[str, JobRow]:
        nonlocal queries
        queries += 1
        # A long epilog: all are completing for a while.
        return rows("RUNNING" if queries == 1 else "COMPLETING" if queries < 20 else "CANCELLED", *names)

    left = asyncio.run(PilotCommands(commands, lambda: None).cancel_all(query, 60.0))
    assert left == []
    assert commands.ran == [("scancel", "--quiet", *(f"p-{name}" for name in names))]


def test_at_the_end_a_pilot_that_does_not_end_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pilot_commands, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(pilot_commands, "_LONGEST_WAIT_S", 0.001)
    monkeypatch.setattr(pilot_commands, "_CANCEL_AGAIN_S", 0.05)
    commands = Noted()

    async def query() -> Mapping[str, JobRow]:
        return rows("RUNNING" if len(commands.ran) < 3 else "CANCELLED", "n1")

    assert asyncio.run(PilotCommands(commands, lambda: None).cancel_all(query, 60.0)) == []
    assert len(commands.ran) == 3


def test_at_the_end_what_is_left_is_named() -> None:
    async def query() -> Mapping[str, JobRow]:
        return rows("RUNNING", "n1")

    assert asyncio.run(PilotCommands(Noted(), lambda: None).cancel_all(query, 0.05)) == ["p-n1"]
