"""The process that workers are forked from: `python -m offcut.torch.programs.worker_template SOCKET`.

It has torch imported and waits for requests; see `offcut.process.fork_server`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from offcut.process.fork_server import ForkServer
from offcut.process.parent_death import die_with_parent
from offcut.torch.elastic_parts.current_training import finish_at_end
from offcut.torch.membership.process_exit import Left
from offcut.torch.programs.destroyed_groups import keep_destroyed_groups
from offcut.wire.worker_env import ENV_AGENT


def run_script(argv: list[str]) -> int:
    """Run a script as `python script.py ...` would. Return its exit code."""
    return run_as_script(argv, lambda: runpy.run_path(argv[0], run_name="__main__"))


def run_as_script(argv: list[str], program: Callable[[], object]) -> int:
    """Call a function in a forked process as if it were a whole script. Return its exit code.

    Args:
        argv: the script and its arguments.
        program: the function.
    """
    # What Python itself would do at the start and end of a script has to be done here.
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) > 1:
        importlib.import_module("torch").set_num_threads(int(threads))
    sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in sys.path]
    if ENV_AGENT not in os.environ:
        keep_destroyed_groups()
    try:
        code = _run(argv, program)
    except Left:
        return 0  # its node is wanted: nothing is waited for
    # Waits for what the script has begun in threads.
    threading._shutdown()  # type: ignore[attr-defined]
    return code


def _run(argv: list[str], program: Callable[[], object]) -> int:
    sys.argv = list(argv)
    sys.path.insert(0, os.path.dirname(os.path.abspath(argv[0])))
    try:
        try:
            program()
        except SystemExit as leaving:
            if leaving.code or isinstance(leaving, Left):
                raise
        finish_at_end()
    except Left:
        raise
    except SystemExit as leaving:
        if leaving.code is None:
            return 0
        if isinstance(leaving.code, int):
            return leaving.code
        sys.stderr.write(f"{leaving.code}\n")
        return 1
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("socket", type=Path, help="where to listen")
    # An argument, because os.getppid() would name another process if the parent died while this one started.
    parser.add_argument("--parent", type=int, help="the process that started this one, and with which it ends")
    parser.add_argument("--preload", default="", help="modules to import beside torch, separated by commas")
    arguments = parser.parse_args()
    if arguments.parent is not None:
        die_with_parent(arguments.parent, signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # One thread per worker. Set before a library starts more, because only a single-threaded process may fork.
    importlib.import_module("torch").set_num_threads(1)
    importlib.import_module("offcut.torch")
    # The first optimizer that a process makes imports this, which costs as much as torch itself.
    for module in ("torch._dynamo", *filter(None, arguments.preload.split(","))):
        with suppress(ImportError):
            importlib.import_module(module)
    ForkServer(arguments.socket, run_script).serve()


if __name__ == "__main__":
    main()
