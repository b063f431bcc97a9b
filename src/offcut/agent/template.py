"""Agents forked from one process, where nodes share a machine: `python -m offcut.agent.template SOCKET PARENT`.

`PARENT` is the process that started it, and with which it ends.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from offcut.agent.__main__ import main as run_agent
from offcut.process.fork_server import ForkServer
from offcut.process.parent_death import die_with_parent


def main() -> None:
    die_with_parent(int(sys.argv[2]), signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ForkServer(Path(sys.argv[1]), run_agent).serve()


if __name__ == "__main__":
    main()
