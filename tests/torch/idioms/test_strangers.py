"""A peer that is not a member connects to the ports on which members wait for each other, and sends junk."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from itertools import cycle
from multiprocessing.connection import Connection

import idiom_scripts as scripts
import psutil
import pytest
from real_members import Cluster, alone

from strangers import NOBODY, stranger

pytestmark = pytest.mark.xdist_group("members")

EPOCHS = 16
#: Connections that the stranger keeps open, the oldest for the next.
KEPT = 64


def disturb(connection: Connection) -> None:
    """Connect to the ports of the newest list that came, again and again, until told None; then say how often."""
    ports: list[tuple[str, int]] = []
    kept: list[socket.socket] = []
    taken = 0
    junk = cycle(
        [b"", b"\x00", bytes(8), bytes(4096), None, struct.pack("<Q", 1) + bytes(64), b"GET / HTTP/1.0\r\n\r\n"]
    )
    while True:
        if not ports or connection.poll():
            news = connection.recv()
            if news is None:
                break
            ports = news
        for port in ports:
            data = next(junk)
            with suppress(OSError):
                to = socket.create_connection(port, 5)
                kept.append(to)
                to.settimeout(5)
                to.sendall(os.urandom(4096) if data is None else data)
                taken += 1
        while len(kept) > KEPT:
            kept.pop(0).close()
    connection.send((os.getuid(), taken))


def ports_of(cluster: Cluster) -> list[tuple[str, int]]:
    """Where the workers listen for each other."""
    found = []
    for pid in cluster.pids():
        with suppress(psutil.NoSuchProcess):
            listening = [at for at in psutil.Process(pid).net_connections("tcp") if at.status == psutil.CONN_LISTEN]
            found += [(at.laddr.ip, at.laddr.port) for at in listening]
    return found


def test_junk_on_every_members_port_changes_nothing() -> None:
    """While two members train, while a third joins, and while three train."""
    with stranger(disturb) as other, Cluster(scripts.plateau, epochs=EPOCHS) as cluster:
        first = cluster.start(2)
        cluster.form(first)
        with cluster.stopped(first[0], "step", 5):
            ports = ports_of(cluster)
            assert len(ports) >= 2
            other.send(ports)
        with cluster.stopped(first[0], "step", 30):
            second = cluster.start()
            cluster.form([*first, *second])
        with cluster.stopped(first[0], "step", 35):
            ports = ports_of(cluster)
            assert len(ports) >= 3
            other.send(ports)
        results = cluster.results()
        other.send(None)
        user, taken = other.recv()
    assert user == NOBODY
    assert taken > 20, "it did connect"
    undisturbed = alone(scripts.plateau, epochs=EPOCHS)
    assert len(results) == 3
    for result in results:
        assert result == results[0]
        for name, value in undisturbed.items():
            assert result[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name
