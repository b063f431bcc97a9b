"""How Slurm's commands are run."""

from __future__ import annotations

import asyncio
import resource

from offcut.cluster.slurm.commands import Commands


def test_commands_have_the_user_s_own_limit_of_open_files() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        own = min(256, before[1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (own, before[1]))
        commands = Commands(20.0)
        assert asyncio.run(commands.run(["sh", "-c", "ulimit -S -n"])).strip() == str(own)
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
        assert asyncio.run(commands.run(["sh", "-c", "ulimit -S -n; cat"], "a script")).split() == [
            str(own),
            "a",
            "script",
        ]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
