"""Agents that connect over TLS: a whole training, and which connections are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from golden import SCRIPT
from websockets.exceptions import InvalidMessage, InvalidStatus
from websockets.sync.client import connect

from offcut.wire import certificate, tls

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-2")]


def test_training_over_tls(state_dir: Path, up: Callable) -> None:
    made = certificate.create(state_dir / "tls", ["localhost"])
    running = up(2, "--listen", "localhost")
    told = json.loads(running.paths.address.read_text())
    assert told == {"agents": told["agents"], "certificate": made.public.read_text()}
    assert told["agents"].startswith("wss://localhost:")

    job = running.submit(SCRIPT, "--epochs", "1", sizes="1:2")
    running.until(job, "the end", lambda shown: shown["state"] == "finished")
    assert json.loads(running.paths.rendezvous.read_text())["address"].startswith("localhost:")

    with pytest.raises((InvalidMessage, OSError)):
        connect(told["agents"].replace("wss://", "ws://"))  # in the clear
    with pytest.raises(InvalidStatus) as refused:
        connect(told["agents"], ssl=tls.trusting(told["certificate"]))
    assert refused.value.response.status_code == 401
