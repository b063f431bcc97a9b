"""The page's application: who is let in, what the views show, and that nothing is read as markup."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from controlled import Controlled
from httpx import ASGITransport, AsyncClient, Response

from offcut.model import Job, Sizes
from offcut.model import events as ev
from offcut.process import clocks
from offcut.service.page import token_file
from offcut.service.page.server import PageServer, cookie_name
from offcut.wire.sweepspec import SweepSpec

HTML = {"accept": "text/html"}
#: A job's id is made of its name, which may have any of these.
EVIL = "<script>alert(1)</script>"


class Paged(Controlled):
    """A controller with a page."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, *, actions: bool = False) -> None:
        super().__init__(root, monkeypatch)
        self.cluster.statistics = self.statistics  # type: ignore[attr-defined]
        self.hand_backs: list[dict[str, Any]] = []
        self.now_s_token = clocks.wall_s()
        self.token = token_file.current_token(self.paths.page_key, self.paths.page_token, self.now_s_token)
        self.server = PageServer(self.controller, self.journal, self.paths, None, 32, actions=actions)

    async def statistics(self) -> dict[str, Any]:
        return {"hand_backs": self.hand_backs}

    def submit(self, job_id: str, name: str) -> None:
        job = Job(id=job_id, name=name, command=("train.py",), sizes=Sizes.parse("1:2"))
        self.controller.handle(ev.JobSubmitted(time_s=self.controller.clock.now(), job=job))

    @asynccontextmanager
    async def browser(self, **headers: str) -> AsyncIterator[AsyncClient]:
        transport = ASGITransport(app=self.server.app())
        async with AsyncClient(transport=transport, base_url="http://page", headers=headers) as client:
            yield client

    async def post(self, path: str, text: str = "", **headers: str) -> Response:
        async with self.browser(authorization=f"Bearer {self.token}", **headers) as client:
            return await client.post(path, content=text)

    async def get(self, path: str, **headers: str) -> Response:
        async with self.browser(authorization=f"Bearer {self.token}", **headers) as client:
            return await client.get(path)


@pytest.fixture
def paged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda **options: Paged(tmp_path / "state", monkeypatch, **options)


PATHS = [
    "/",
    "/nodes",
    "/jobs/x",
    "/sweeps/x",
    "/updates?view=overview",
    "/data/use.json",
    "/static/page.js",
    "/metrics",
]


@pytest.mark.parametrize("path", [*PATHS, "/metrics", "/docs", "/openapi.json"])
def test_without_the_token_every_address_is_refused(paged: Any, path: str) -> None:
    async def run() -> None:
        it = paged()
        async with it.browser() as client:
            expired = token_file.read_key(it.paths.page_key).token(clocks.wall_s() - 1)
            cookie = {"cookie": f"{cookie_name(it.paths.root)}={it.token}"}
            for answer in (
                await client.get(path),
                await client.get(path, headers={"authorization": f"Bearer {it.token}x"}),
                await client.get(path, headers={"authorization": f"Bearer {expired}"}),
                await client.get(path, headers={"authorization": f"Basic {it.token}"}),
                await client.get("/jobs/x", params={"token": it.token}),
                await client.get(path, headers=cookie),
            ):
                assert answer.status_code == 401, answer.url
                assert "offcut page" in answer.text
                assert answer.headers["connection"] == "close"
                assert "set-cookie" not in answer.headers

    asyncio.run(run())


def test_the_token_is_taken_out_of_the_address_and_a_cookie_stays(paged: Any) -> None:
    async def run() -> None:
        it = paged()
        async with it.browser(**HTML) as client:
            answer = await client.get("/", params={"token": it.token})
            assert (answer.status_code, answer.headers["location"]) == (303, "./")
            cookie = answer.headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=strict" in cookie
            assert it.token.partition("-")[2] not in cookie
            assert (await client.get("/")).status_code == 200
            token_file.rotate(it.paths.page_key)
            assert (await client.get("/")).status_code == 401

    asyncio.run(run())


def test_every_answer_tells_the_browser_what_it_may_do(paged: Any) -> None:
    async def run() -> None:
        it = paged()
        for answer in (await it.get("/"), await it.get("/none"), await it.get("/static/page.css")):
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"

    asyncio.run(run())


class Markup(HTMLParser):
    """Collects the elements and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def test_nothing_that_comes_from_a_job_is_read_as_markup(paged: Any) -> None:
    async def run() -> None:
        it = paged()
        it.submit("evil-1", EVIL)
        state = it.controller.state
        state.jobs["evil-1"].reason = f'"{EVIL}\x1b[2J'
        logs = it.paths.job("evil-1") / "logs"
        logs.mkdir(parents=True)
        (logs / "n1#1:0.log").write_bytes(f"{EVIL}\x1b]0;x\x07".encode() + b"\xff\n")
        for path in ("/", "/jobs/evil-1", "/nodes"):
            text = (await it.get(path)).text
            markup = Markup()
            markup.feed(text)
            scripts = [attributes for tag, attributes in markup.elements if tag == "script"]
            assert all(attributes.get("src") for attributes in scripts)
            assert len(scripts) == 5
            assert not [name for _, attributes in markup.elements for name in attributes if name.startswith("on")]
            assert "\x1b" not in text
        assert "&lt;script&gt;alert(1)" in (await it.get("/jobs/evil-1")).text

    asyncio.run(run())


def test_unknown_jobs_and_views_are_told(paged: Any) -> None:
    async def run() -> None:
        it = paged()
        answer = await it.get(f"/jobs/{EVIL.replace('/', '%2F')}")
        assert answer.status_code == 404
        assert "<script>alert" not in answer.text
        missing = await it.get("/jobs/none", **HTML)
        assert missing.status_code == 404
        assert "There is no job called none." in missing.text
        assert (await it.get("/sweeps/none")).status_code == 404
        assert (await it.get("/data/jobs/none/loss.json")).status_code == 400
        assert (await it.get("/static/../server.py")).status_code == 404
        assert (await it.get("/static/vendor/README.md")).status_code == 404
        unknown = await it.get("/updates?view=job:none")
        assert unknown.status_code == 400
        assert "There is no job called none." in unknown.text

    asyncio.run(run())


def test_the_first_view_shows_nodes_jobs_and_reclaims(paged: Any) -> None:
    async def run() -> None:
        it = paged()
        empty = (await it.get("/")).text
        assert "There is no job yet." in empty
        assert "has been wanted back so far" in empty
        it.submit("a-1", "a")
        it.controller.handle(ev.NodesChanged(time_s=it.controller.clock.now(), offered=(ev.Offer("n1"),)))
        it.hand_backs = [{"node": "n7", "wanted_s": 10.0, "took_s": 0.25, "killed": False}]
        text = re.sub(r"<[^>]*>", " ", (await it.get("/")).text)
        assert "a-1" in text
        assert re.search(r"nodes\s+1\s", text)
        assert "0.25 s" in text
        use = (await it.get("/data/use.json")).json()
        assert use["counts"][use["owners"].index("idle")][-1] + use["counts"][use["owners"].index("held")][-1] == 1

    asyncio.run(run())


def test_a_job_s_figures_have_numbers_before_anything_was_measured(paged: Any) -> None:
    async def run() -> None:
        it = paged()
        it.submit("a-1", "a")
        assert (await it.get("/data/jobs/a-1/loss.json")).json() == {"step": [], "loss": []}
        curve = (await it.get("/data/jobs/a/curve.json")).json()
        assert curve["nodes"] == [0, 1, 2]
        for low, rate, high in zip(curve["low"], curve["rate"], curve["high"], strict=True):
            assert low <= rate <= high
        assert "It needs at least 1 nodes; 0 are idle or held." in (await it.get("/jobs/a-1")).text

    asyncio.run(run())


#: What htmx sends with every request.
HTMX = {"hx-request": "true"}
CHANGES = ("/jobs/a-1/pause", "/jobs/a-1/cancel", "/jobs/a-1/change", "/nodes/release", "/sweeps/s-1/cancel")


def test_the_page_only_reads_unless_it_is_allowed_more(paged: Any) -> None:
    async def run() -> None:
        it = paged()
        it.submit("a-1", "a")
        before = it.controller.state.event_id
        for path in CHANGES:
            assert (await it.post(path, **HTMX)).status_code in (404, 405)
        assert "<button" not in (await it.get("/jobs/a-1")).text
        assert it.controller.state.event_id == before

    asyncio.run(run())


def test_a_page_of_another_site_can_change_nothing(paged: Any) -> None:
    async def run() -> None:
        it = paged(actions=True)
        it.submit("a-1", "a")
        before = it.controller.state.event_id
        for path in CHANGES:
            assert (await it.post(path)).status_code == 400
            async with it.browser(**HTMX) as stranger:
                assert (await stranger.post(path)).status_code == 401
        async with it.browser(authorization=f"Bearer {it.token}") as client:
            asked = {"origin": "http://elsewhere", "access-control-request-headers": "hx-request"}
            asked["access-control-request-method"] = "POST"
            assert "access-control-allow-origin" not in (await client.options(CHANGES[0], headers=asked)).headers
        assert it.controller.state.event_id == before

    asyncio.run(run())


def test_actions_are_carried_out_told_and_audited(paged: Any) -> None:
    async def run() -> None:
        it = paged(actions=True)
        it.submit("a-1", "a")
        assert "hx-confirm" in (await it.get("/jobs/a-1")).text
        answer = await it.post("/jobs/a-1/pause", **HTMX)
        assert (answer.status_code, answer.text) == (200, '<p class="done">a-1 is paused now.</p>')
        assert it.controller.state.jobs["a-1"].phase == "paused"
        assert (await it.post("/jobs/a-1/change", "sizes=2:4&weight=3", **HTMX)).status_code == 200
        assert (str(it.controller.state.jobs["a-1"].job.sizes), it.controller.state.jobs["a-1"].job.weight) == (
            "2:4",
            3,
        )
        for wrong in ("sizes=4:2", "weight=-1", "weight=nan", "weight=x", "sizes=%3Cscript%3E"):
            refused = await it.post("/jobs/a-1/change", wrong, **HTMX)
            assert refused.status_code == 400
            assert '<p class="warning">' in refused.text
            assert "<script>" not in refused.text
        assert "There is no job called b." in (await it.post("/jobs/b/cancel", **HTMX)).text
        await it.post("/nodes/release", **HTMX)
        assert not it.controller.state.claiming
        await it.post("/nodes/claim", **HTMX)
        assert it.controller.state.claiming
        entries = [json.loads(line) for line in it.paths.audit.read_text().splitlines()]
        assert [entry["role"] for entry in entries] == ["page"] * len(entries)
        assert [event["kind"] for event in entries[0]["events"]] == ["job_paused"]
        assert entries[2]["status"] == 400

    asyncio.run(run())


def test_a_sweep_shows_its_best_trial(paged: Any) -> None:
    async def run() -> None:
        it = paged()
        spec = SweepSpec.model_validate(
            {
                "name": "s",
                "job": {"name": "s", "command": ["train.py"], "sizes": "1"},
                "space": {"kind": {"choices": [EVIL, EVIL + "2"]}},
                "scheduler": {"name": "none", "max_budget": 9},
                "max_trials": 9,
            }
        )
        sweep = spec.to_sweep("s-1", spec.job)
        it.controller.handle(ev.SweepSubmitted(time_s=it.controller.clock.now(), sweep=sweep))
        assert "There is no sweep yet." not in (await it.get("/")).text
        assert "sweeps/s-1" in (await it.get("/")).text
        page = (await it.get("/sweeps/s-1")).text
        assert re.search(r"trials ended</dt><dd>0 <span class=\"note\">of 9", page)
        assert "<script>alert" not in page
        assert "kind=&lt;script&gt;alert" in page
        assert "event: sweep" in await first_events(it, "sweep:s-1")

    asyncio.run(run())


async def first_events(it: Paged, view: str) -> str:
    """Return what a browser that connects to a view's updates gets at once."""
    stream = it.server._updates.stream(view)
    found = await anext(stream) + await anext(stream)
    await stream.aclose()
    return found.decode()


def test_libraries_of_others_are_unchanged() -> None:
    vendor = resources.files("offcut.service.page") / "static" / "vendor"
    told = dict(re.findall(r"^\| `([^`]+)` \|.*`([0-9a-f]{64})` \|$", (vendor / "README.md").read_text(), re.MULTILINE))
    there = [file.name for file in vendor.iterdir() if file.name.endswith((".js", ".css"))]
    assert sorted(told) == sorted(there)
    for name, digest in told.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest
    assert {f"{library}.LICENSE" for library in ("htmx", "htmx-ext-sse", "uPlot")} <= {f.name for f in vendor.iterdir()}
