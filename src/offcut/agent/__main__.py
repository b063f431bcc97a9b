"""`python -m offcut.agent`: how a cluster adapter starts an agent. The token comes from a file, never from argv."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

import structlog

from offcut.agent.agent import EMPTY_LIMIT_S, LEAVE_LIMIT_S, ORPHAN_LIMIT_S, Agent, AgentConfig
from offcut.process.nonblocking_log import NonblockingLog
from offcut.wire.worker_env import ENV_WORKER_ENV

#: How long the last lines of the log may take.
_LOG_LIMIT_S = 0.05


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="offcut.agent", description="Runs on a claimed node.")
    parser.add_argument("--node", required=True)
    parser.add_argument("--pilot", required=True, help="the name of the pilot that holds this node")
    parser.add_argument("--address-file", type=Path, required=True, help="the file with the controller's address")
    parser.add_argument("--token-file", type=Path, required=True)
    parser.add_argument("--socket", type=Path, required=True, help="the socket on which to listen for workers")
    parser.add_argument("--template", type=Path, help="socket of the process that workers are forked from")
    parser.add_argument("--leave-limit-s", type=float, default=LEAVE_LIMIT_S)
    parser.add_argument("--empty-limit-s", type=float, default=EMPTY_LIMIT_S)
    parser.add_argument("--orphan-limit-s", type=float, default=ORPHAN_LIMIT_S)
    given = parser.parse_args(argv)
    config = AgentConfig(
        node=given.node,
        pilot=given.pilot,
        address_file=given.address_file,
        token_file=given.token_file,
        socket=given.socket,
        template=given.template,
        leave_limit_s=given.leave_limit_s,
        empty_limit_s=given.empty_limit_s,
        orphan_limit_s=given.orphan_limit_s,
        # Not an argument, because every user can see those.
        worker_env=tuple(json.loads(os.environ.pop(ENV_WORKER_ENV, "{}")).items()),
    )
    # The log may lie on a file system that hangs.
    log_writer = NonblockingLog(1)
    structlog.configure(
        logger_factory=lambda *_: log_writer, wrapper_class=structlog.make_filtering_bound_logger("info")
    )
    asyncio.run(Agent(config).run())
    log_writer.flush(_LOG_LIMIT_S)
    return 0


if __name__ == "__main__":
    code = main()
    # The queue waits for the node, and an orderly end of the interpreter would only delay its release.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
