"""A script of mode `restart` gets the environment that torchrun would give it."""

from __future__ import annotations

import pytest

from offcut.agent.restart_workers import torchrun_env
from offcut.wire.messages import GenerationMember, NewGeneration

GENERATION = NewGeneration(
    job="ddp-1",
    generation=4,
    members=tuple(GenerationMember(node=node, incarnation=i, ranks=2) for i, node in enumerate(("n5", "n1", "n9"))),
    store="10.0.0.5:23456",
    abort=False,
)


@pytest.mark.parametrize(
    ("node", "local_rank", "rank", "group"), [("n5", 0, 0, 0), ("n5", 1, 1, 0), ("n1", 0, 2, 1), ("n9", 1, 5, 2)]
)
def test_ranks_count_through_the_members_in_order(node: str, local_rank: int, rank: int, group: int) -> None:
    assert torchrun_env(GENERATION, node, local_rank) == {
        "RANK": str(rank),
        "ROLE_RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "GROUP_RANK": str(group),
        "WORLD_SIZE": "6",
        "ROLE_WORLD_SIZE": "6",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_WORLD_SIZE": "3",
        "ROLE_NAME": "default",
        "MASTER_ADDR": "10.0.0.5",
        "MASTER_PORT": "23456",
        "TORCHELASTIC_RUN_ID": "ddp-1",
        "TORCHELASTIC_RESTART_COUNT": "3",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
