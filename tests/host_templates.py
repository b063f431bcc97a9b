"""Worker templates for several hosts: one process imports torch, and its forks serve in the hosts' namespaces.

python host_templates.py SOCKET PID...       PID: a process on the host; SOCKET is private to each
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
from pathlib import Path

from offcut.process.fork_server import ForkServer
from offcut.process.parent_death import die_with_parent
from offcut.torch.programs.worker_template import run_script

_libc = ctypes.CDLL(None, use_errno=True)


def enter(pid: int) -> None:
    """Move this process to the network, the host name and the mounts of another one."""
    for name in ("net", "uts", "mnt"):
        handle = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        if _libc.setns(handle, 0):
            raise OSError(ctypes.get_errno(), f"setns {name} of {pid}")
        os.close(handle)


def main() -> None:
    importlib.import_module("torch").set_num_threads(1)
    importlib.import_module("offcut.torch")
    importlib.import_module("torch._dynamo")
    ours = os.getpid()
    for pid in map(int, sys.argv[2:]):
        if os.fork() == 0:
            die_with_parent(ours)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            enter(pid)
            ForkServer(Path(sys.argv[1]), run_script).serve()
    signal.pause()


if __name__ == "__main__":
    main()
