"""Machines of a cluster: network namespaces with host names, addresses and routes of their own, and two networks.

    management  10.1.0.0/24  each node reaches the login node over it, and no other node
    data        10.2.0.0/24  connects all

A host resolves its own name to 127.0.1.1, as Debian does, and the others' names to their management addresses: what
looks for a network by a name finds the wrong one. The namespaces have no names: they are gone with the processes that
hold them, however those end. All hosts see one file system, except for what is hidden or private (`Hosts`).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from offcut.process.parent_death import die_with_parent

LOGIN = "login"
_READY_S = 60.0


def lacking() -> str:
    """Return what this machine lacks to have such hosts; empty if nothing."""
    missing = [program for program in ("ip", "unshare", "nsenter", "mount") if shutil.which(program) is None]
    if missing:
        return f"{', '.join(missing)} not found: install iproute2, util-linux and mount"
    try_all = "ip link add br0 type bridge && ip link add veth0 type veth peer name veth1 && mount --make-rprivate /"
    tried = subprocess.run(["unshare", "-n", "-u", "-m", "sh", "-c", try_all], capture_output=True, check=False)
    return f"no network namespaces: {tried.stderr.decode().strip()}" if tried.returncode else ""


class Host:
    """One machine. `enter` is the beginning of a command line that runs a program there."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.management = f"10.1.0.{number}"
        self.data = f"10.2.0.{number}"
        self._holder = _hold("--net", "--uts", "--mount", "--propagation", "private")
        self.pid = self._holder.pid
        self.enter = ("nsenter", "--target", str(self.pid), "--net", "--uts", "--mount")

    def run(self, *command: str) -> str:
        """Run a command on this host and return its output."""
        done = subprocess.run([*self.enter, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    def reaches(self, address: str, port: str) -> bool:
        """Return whether a program on this host can connect there."""
        connect = [*self.enter, "timeout", "2", "bash", "-c", f"exec 3<>/dev/tcp/{address}/{port}"]
        return subprocess.run(connect, capture_output=True, check=False).returncode == 0

    def set_links(self, state: str, *names: str) -> None:
        """Set these links of the host `up` or `down`; without names both of its networks."""
        for name in names or ("management", "data"):
            self.run("ip", "link", "set", name, state)

    def stop(self) -> None:
        _end(self._holder)


class Hosts:
    """A login node and compute nodes, and the switches between them.

    Args:
        directory: for the hosts' own files.
        nodes: the compute nodes' names.
        hidden: directories of the login node that the compute nodes do not see.
        private: directories of which each host has its own.
    """

    def __init__(
        self, directory: Path, nodes: Sequence[str], *, hidden: Sequence[Path] = (), private: Sequence[Path] = ()
    ) -> None:
        self.all: dict[str, Host] = {}
        self._directory = directory
        self._switch = _hold("--net")
        try:
            for network in ("management", "data"):
                self._on_switch("link", "add", network, "type", "bridge")
                self._on_switch("link", "set", network, "up")
            for number, name in enumerate((LOGIN, *nodes), start=10):
                self.all[name] = Host(name, number)
            for number, host in enumerate(self.all.values()):
                self._set_up(host, number, [*private, *(hidden if host.name != LOGIN else ())])
        except BaseException:
            self.stop()
            raise

    @property
    def login(self) -> Host:
        return self.all[LOGIN]

    def _set_up(self, host: Host, number: int, own: Sequence[Path]) -> None:
        host.run("hostname", host.name)
        host.run("ip", "link", "set", "lo", "up")
        for network, address in (("management", host.management), ("data", host.data)):
            port = f"{network[0]}{number}"
            self._on_switch("link", "add", port, "type", "veth", "peer", "name", network, "netns", str(host.pid))
            self._on_switch("link", "set", port, "master", network, "up")
            if network == "management" and host.name != LOGIN:
                # The switch carries nothing between two isolated ports.
                self._on_switch("link", "set", port, "type", "bridge_slave", "isolated", "on")
            host.run("ip", "address", "add", f"{address}/24", "dev", network)
            host.run("ip", "link", "set", network, "up")
        host.run("ip", "route", "add", "default", "via", self.login.management, "dev", "management")
        names = [f"127.0.1.1 {host.name}", *(f"{o.management} {o.name}" for o in self.all.values() if o is not host)]
        file = self._directory / f"hosts-{host.name}"
        file.write_text("\n".join(["127.0.0.1 localhost", *names]) + "\n")
        host.run("mount", "--bind", str(file), "/etc/hosts")
        for place in own:
            place.mkdir(exist_ok=True)
            host.run("mount", "-t", "tmpfs", "tmpfs", str(place))

    def _on_switch(self, *command: str) -> None:
        enter = ("nsenter", "--target", str(self._switch.pid), "--net", "ip", *command)
        done = subprocess.run(enter, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)

    def stop(self) -> None:
        """End the holders; the namespaces go with the last process that is in them."""
        for host in self.all.values():
            host.stop()
        _end(self._switch)


def _hold(*namespaces: str) -> subprocess.Popen[bytes]:
    """Start a process in new namespaces, which ends with this one."""
    holder = subprocess.Popen(
        ["unshare", *namespaces, "sleep", "infinity"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509
    )
    # It is in its namespaces when it has become `sleep`.
    give_up_s = time.monotonic() + _READY_S
    while Path(f"/proc/{holder.pid}/comm").read_text().strip() != "sleep":
        assert holder.poll() is None, "unshare failed"
        assert time.monotonic() < give_up_s
        time.sleep(0.005)
    return holder


def _end(holder: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        holder.send_signal(signal.SIGKILL)
    holder.wait()
