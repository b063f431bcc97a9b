"""The audit log has every request that may change something, who made it, and what became of it."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from controlled import Controlled
from httpx import ASGITransport, AsyncClient

from offcut.errors import OffcutError
from offcut.model import events as ev
from offcut.process import unix_socket
from offcut.service import app, audit
from offcut.service.audit import AuditEntry, AuditLog
from offcut.service.owner_connection import OwnerConnection
from offcut.wire.client import Client


def log_of(it: Controlled) -> AuditLog:
    return AuditLog(it.paths.audit, it.paths.older_audit)


def api_of(it: Controlled) -> Any:
    return app.build(it.controller, it.journal, it.cluster, it.paths)  # type: ignore[arg-type]


def test_changes_are_recorded_with_their_events_and_reading_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        it = Controlled(tmp_path, monkeypatch)
        it.submit("a")
        async with AsyncClient(transport=ASGITransport(app=api_of(it)), base_url="http://offcut") as client:
            await client.get("/v1/status")
            await client.post("/v1/jobs/a/pause")
            paused = it.state.event_id
            await client.post("/v1/jobs/unknown/pause")
            await client.post("/v1/release", content=b"{")
            await client.post("/v1/release", json={"nodes": ["n1", "n2"]})
            await client.post("/v1/nodes/want", content=b"x" * (2 << 20))
        found = [(entry["path"], entry["status"], entry["events"]) for entry in log_of(it).entries()]
        assert found == [
            ("/v1/jobs/a/pause", 200, [{"number": paused, "kind": "job_paused", "subject": "a"}]),
            ("/v1/jobs/unknown/pause", 400, []),
            ("/v1/release", 422, []),
            ("/v1/release", 200, [{"number": paused + 1, "kind": "release_asked", "subject": "n1, n2"}]),
            ("/v1/nodes/want", 413, []),
        ]
        (_, event), *_ = it.journal.events(after=paused - 1)
        assert isinstance(event, ev.JobPaused)
        assert stat.S_IMODE(it.paths.audit.stat().st_mode) == 0o600

    asyncio.run(scenario())


def test_two_requests_at_once_do_not_share_their_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        it = Controlled(tmp_path, monkeypatch)
        names = [f"j{i}" for i in range(8)]
        for name in names:
            it.submit(name)
        async with AsyncClient(transport=ASGITransport(app=api_of(it)), base_url="http://offcut") as client:
            await asyncio.gather(*(client.post(f"/v1/jobs/{name}/pause") for name in names))
        for entry in log_of(it).entries():
            (event,) = entry["events"]
            assert entry["path"] == f"/v1/jobs/{event['subject']}/pause"
        it.controller.ask(ev.JobResumed(time_s=it.now_s(), job="j1"))  # no request: nothing to note
        assert len(list(log_of(it).entries())) == 8

    asyncio.run(scenario())


def test_an_event_that_cannot_be_answered_is_recorded_as_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        it = Controlled(tmp_path, monkeypatch)
        it.submit("a")
        monkeypatch.setattr(it.controller, "handle", lambda event: False)
        it.state.skipped = [type("Skipped", (), {"reason": "a defect"})]
        with pytest.raises(OffcutError, match="a defect"):
            it.controller.ask(ev.JobPaused(time_s=0.0, job="a"))
        async with AsyncClient(transport=ASGITransport(app=api_of(it)), base_url="http://offcut") as client:
            await client.post("/v1/jobs/a/pause")
        (entry,) = log_of(it).entries()
        assert (entry["status"], entry["events"][0]["kind"]) == (500, "job_paused")

    asyncio.run(scenario())


def test_the_process_at_the_other_end_of_the_socket_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a real UNIX socket, as the owner's commands come."""

    async def scenario() -> None:
        it = Controlled(tmp_path, monkeypatch)
        it.submit("a")
        config = uvicorn.Config(api_of(it), log_config=None, lifespan="off", http=OwnerConnection, ws="none")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server._serve(sockets=[unix_socket.listen(it.paths.socket)]))
        await asyncio.to_thread(Client(it.paths.socket).post, "/v1/jobs/a/pause")
        server.should_exit = True
        await serving
        (entry,) = log_of(it).entries()
        assert (entry["role"], entry["uid"], entry["pid"]) == ("owner", os.geteuid(), os.getpid())
        assert entry["address"] is None

    asyncio.run(scenario())


def test_the_file_is_bounded_and_a_line_that_was_cut_off_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_FULL_BYTES", 1000)
    log = AuditLog(tmp_path / "audit.jsonl", tmp_path / "audit.older.jsonl")
    for number in range(100):
        log.write(AuditEntry(time_s=float(number), role="owner", method="POST", path="/v1/claim", status=200))
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 2500
    with (tmp_path / "audit.jsonl").open("a") as file:
        file.write('{"time_s": 1')
    log.write(AuditEntry(time_s=100.0, role="owner", method="POST", path="/v1/claim", status=200))
    times = [entry["time_s"] for entry in log.entries()]
    assert times == [float(number) for number in range(101 - len(times), 101)]
    assert len(times) > 3


def test_a_full_disk_refuses_no_command(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "missing" / "audit.jsonl", tmp_path / "missing" / "audit.older.jsonl")
    log.write(AuditEntry(time_s=0.0, role="owner", method="POST", path="/v1/claim", status=200))
    assert not list(log.entries())
