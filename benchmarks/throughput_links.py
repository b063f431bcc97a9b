"""Network namespaces of benchmarks/throughput.py: one for each member, joined by a switch, with links of a set rate.

The namespaces have no names. They are gone when the processes that hold them have ended, and these end with the
benchmark, however it ends.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path

from offcut.process.parent_death import die_with_parent

#: Marks the benchmark's process once it has a network namespace of its own, which holds the switch.
_ENV_INSIDE = "THROUGHPUT_INSIDE"
#: The address of the switch: the stores and the lighthouse are there.
SWITCH = "10.3.0.254"
INTERFACE = "data"
#: Token bucket of a link: larger than the largest packet that the kernel passes on in one piece (64 KiB), and small
#: beside the gradients, because a full bucket is not limited.
_BURST_BYTES = 256 << 10
_QUEUE_BYTES = 16 << 20
_CLONE_NEWNET = 0x40000000


def lacking() -> str:
    """Return in one sentence what is missing here to limit the rate of links; empty if nothing."""
    if os.geteuid() != 0:
        return "throughput.py makes network namespaces and limits their links: run it as root."
    missing = [program for program in ("ip", "tc", "unshare") if shutil.which(program) is None]
    return f"throughput.py needs {', '.join(missing)}: install iproute2 and util-linux." if missing else ""


def enter_own_namespace() -> None:
    """Start this program again in a network namespace of its own, if it is not in one; it keeps its process id."""
    if os.environ.get(_ENV_INSIDE) != str(os.getpid()):
        os.environ[_ENV_INSIDE] = str(os.getpid())
        import sys

        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])


def address(rank: int) -> str:
    """Return the address of a member."""
    return f"10.3.0.{rank + 1}"


class Links:
    """A namespace for each member, whose only link leads to the switch, in this process's own namespace.

    Args:
        members: how many there are.
    """

    def __init__(self, members: int) -> None:
        self._members = members
        self._holders = [_hold() for _ in range(members)]
        _run("ip", "link", "add", "switch", "type", "bridge")
        _run("ip", "address", "add", f"{SWITCH}/24", "dev", "switch")
        _run("ip", "link", "set", "switch", "up")
        _run("ip", "link", "set", "lo", "up")
        for rank, holder in enumerate(self._holders):
            peer = ("peer", "name", INTERFACE, "netns", str(holder.pid))
            _run("ip", "link", "add", f"port{rank}", "type", "veth", *peer)
            _run("ip", "link", "set", f"port{rank}", "master", "switch", "up")
            self._inside(rank, "ip", "address", "add", f"{address(rank)}/24", "dev", INTERFACE)
            self._inside(rank, "ip", "link", "set", INTERFACE, "up")
            self._inside(rank, "ip", "link", "set", "lo", "up")
            # The systems take turns: an idle connection must not begin each turn as if it were new.
            self._inside(rank, "sysctl", "-qw", "net.ipv4.tcp_slow_start_after_idle=0")

    def namespace(self, rank: int) -> str:
        """Return the file of a member's network namespace."""
        return f"/proc/{self._holders[rank].pid}/ns/net"

    def limit(self, gbit_s: float) -> None:
        """Limit every link in both directions."""
        shape = (
            *("root", "tbf", "rate", f"{gbit_s * 1000:.0f}mbit"),
            *("burst", str(_BURST_BYTES), "limit", str(_QUEUE_BYTES)),
        )
        for rank in range(self._members):
            self._inside(rank, "tc", "qdisc", "replace", "dev", INTERFACE, *shape)
            _run("tc", "qdisc", "replace", "dev", f"port{rank}", *shape)

    def _inside(self, rank: int, *command: str) -> None:
        _run("nsenter", f"--net={self.namespace(rank)}", *command)

    def close(self) -> None:
        """Remove the namespaces and the switch; the members' processes must have ended."""
        for holder in self._holders:
            holder.kill()
            holder.wait()
        for rank in range(self._members):
            # The kernel removes the ports too, a moment after the namespaces.
            subprocess.run(["ip", "link", "delete", f"port{rank}"], capture_output=True, check=False)
        _run("ip", "link", "delete", "switch")


def enter(namespace: str) -> None:
    """Move this thread, and the threads that it will start, into a network namespace."""
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"setns {namespace}")
    os.close(descriptor)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")


def _hold() -> subprocess.Popen[bytes]:
    """Start a process in a new network namespace, which ends with this one."""
    holder = subprocess.Popen(
        ["unshare", "--net", "sleep", "infinity"],
        stdin=subprocess.DEVNULL,
        preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509
    )
    until_s = time.monotonic() + 60.0
    # It is in its namespace when it has become `sleep`.
    while Path(f"/proc/{holder.pid}/comm").read_text().strip() != "sleep":
        if holder.poll() is not None or time.monotonic() > until_s:
            raise SystemExit("throughput.py: unshare --net does not work here.")
        time.sleep(0.005)
    return holder
