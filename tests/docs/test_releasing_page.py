"""The times on the page about releasing a node are the ones of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from offcut.agent import agent
from offcut.agent.heartbeat_timeouts import HeartbeatTimeouts
from offcut.control import Settings, network_blips
from offcut.membership import leaving
from offcut.service import agents

PAGE = " ".join((Path(__file__).resolve().parents[2] / "docs" / "releasing.md").read_text().split())


def test_the_times_after_a_request_are_the_agents_and_the_members() -> None:
    forced_s = agent.LEAVE_LIMIT_S + agent.EXIT_WATCHDOG_S
    for beginning in (
        f"| {agent.LEAVE_LIMIT_S - leaving.SAVING_S:.1f}, if no boundary has come",
        f"| {agent.LEAVE_LIMIT_S:g} | SIGKILL to the process group",
        f"| {forced_s:g} at the latest |",
        f"Saving may take {leaving.SAVING_S:g} s,",
        f"ends the agent {forced_s:g} s after the request",
    ):
        assert beginning in PAGE


def test_the_limits_of_silence_are_the_ones_of_agent_and_controller() -> None:
    timeouts = HeartbeatTimeouts()
    assert f"after {timeouts.stopped_s:g} s of silence if the kernel says that it is stopped" in PAGE
    assert f"else after {timeouts.any_s:g} s |" in PAGE
    assert f"{agents.RECONNECT_S:g} s after the connection broke, or after {agents.SILENCE_S:g} s of silence" in PAGE
    assert f"they are waited for up to {agents.BLIP_S:g} s more" in PAGE
    assert f"the controller: {network_blips._LEAST_AGENTS} agents or more" in PAGE


@pytest.mark.parametrize(("seconds", "name"), re.findall(r"([\d.]+) s \(`(\w+)`\)", PAGE))
def test_a_limit_that_is_a_setting_is_its_default(seconds: str, name: str) -> None:
    assert float(seconds) == getattr(Settings(), name)


def test_an_agents_own_limits_are_the_settings_defaults() -> None:
    assert (Settings().empty_limit_s, Settings().orphan_limit_s) == (agent.EMPTY_LIMIT_S, agent.ORPHAN_LIMIT_S)
