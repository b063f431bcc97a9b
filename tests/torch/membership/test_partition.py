"""A network that drops everything breaks a generation: no member waits for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("partition.py")


def can_drop_packets() -> bool:
    command = "ip link set lo up && tc qdisc add dev lo root pfifo limit 0"
    try:
        return subprocess.run(["unshare", "-n", "sh", "-c", command], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not can_drop_packets(), reason="needs root, unshare, and ip and tc of iproute2")
def test_members_notice_that_the_network_drops_everything() -> None:
    run = subprocess.run(
        ["unshare", "-n", sys.executable, str(SCRIPT), "2"],
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[2])},  # rendezvous.py
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert sorted(line.partition(":")[0] for line in run.stdout.splitlines()) == [
        "0 a peer has died",
        "1 a peer has died",
    ], run.stderr
    assert run.stdout.count("timed out") == 2
