"""An agent that the batch system tells to end says so, and its job goes on without the node at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from controlled import Controlled

from offcut.wire import messages


def test_the_others_get_a_generation_without_a_node_whose_agent_was_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        controlled = Controlled(tmp_path, monkeypatch)
        controlled.submit("a")
        controlled.claim("a", "n1", "n2")
        connections = {node: controlled.dial(node) for node in ("n1", "n2")}
        controlled.train("a", "n1", "n2")
        job = controlled.state.jobs["a"]
        before = job.generation
        for _ in range(2):  # the second time says nothing new
            controlled.controller.agent_said("n1", messages.NodeWanted())
            await asyncio.sleep(0)
            assert job.generation == before + 1
        assert [member.node for member in job.members] == ["n2"]
        assert "n1" not in controlled.state.nodes
        assert controlled.cluster.calls.count(("release", ("n1",))) == 1
        told = connections["n2"]._socket.heard
        assert [item.generation for item in told if isinstance(item, messages.NewGeneration)][-1] == before + 1
        controlled.journal.close()

    asyncio.run(scenario())
