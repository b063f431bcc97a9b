"""The API answers any request with a sentence: no input causes an error of the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from controlled import Controlled
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offcut.service import app
from offcut.wire.jobspec import JobSpec

JOB = {"name": "a", "command": ["/bin/true"], "mode": "restart", "sizes": "1"}
Ask = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def ask(root: Path) -> Any:
    """`ask(METHOD, PATH, ...)` of the owner's API with a real controller behind it; what it raises is a 500."""
    patch = pytest.MonkeyPatch()
    runner = asyncio.Runner()

    async def build() -> tuple[Controlled, Any]:
        controlled = Controlled(root, patch)
        cluster: Any = controlled.cluster
        return controlled, app.build(controlled.controller, controlled.journal, cluster, controlled.paths)

    controlled, api = runner.run(build())

    async def once(method: str, path: str, **content: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app=api, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://offcut") as client:
            return await client.request(method, path, headers={"Content-Type": "application/json"}, **content)

    yield lambda *words, **content: runner.run(once(*words, **content))
    controlled.journal.close()
    runner.close()
    patch.undo()


def refused(answer: httpx.Response, sentence: str) -> None:
    assert 400 <= answer.status_code < 500, answer.text
    said = answer.json()
    assert set(said) == {"error", "next_step"}
    assert sentence in said["error"]
    assert len(said["error"]) < 1000


def raw(**changed: Any) -> bytes:
    return json.dumps(JOB | changed).encode()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"command": ["/bin/true", "\ud800"]}, "command.1: it holds half of a surrogate pair"),
        ({"command": ["/bin/true", "a\0b"]}, "command.1: it holds a NUL character"),
        ({"command": ["/bin/true", "a" * 200_000]}, "command.1: it is 200,000 bytes long"),
        ({"command": ["a"] * 10_001}, "command"),
        ({"env": {"A": "\udc80"}}, "surrogate"),
        ({"env": {"A\0": "b"}}, "NUL"),
        ({"env": {"A=B": "b"}}, "'A=B' is not the name of an environment variable"),
        ({"env": {"": "b"}}, "is not the name of an environment variable"),
        ({"workdir": "/tmp\0"}, "workdir: it holds a NUL"),
        ({"setup": "\ud800"}, "setup: it holds half"),
        ({"family": "\ud800"}, "family"),
        ({"name": "\ud800"}, "name"),
        ({"name": "ü" * 101}, "name"),
        ({"name": "漢" * 80}, "name: it is 240 bytes long"),
        ({"name": "a" * 500_000}, "name"),
        ({"name": ".."}, "name"),
        ({"name": "--help"}, "name"),
        ({"priority": 10**30}, "priority"),
        ({"goal_samples": 10**300}, "goal_samples"),
        ({"weight": float("nan")}, "weight"),
        ({"weight": float("inf")}, "weight"),
        ({"weight": 1e308}, "weight"),
        ({"checkpoint_age_s": 1e300}, "checkpoint_age_s"),
        ({"hang_limit_s": float("inf")}, "hang_limit_s"),
        ({"sizes": "1:" + "9" * 5000}, "sizes"),
        ({"sizes": "9" * 5000}, "sizes"),
        ({"sizes": "1,2," * 50_000 + "3"}, "sizes"),
        ({"sizes": "1:1000000:3"}, "sizes"),
        ({"curve": {"nodes": [1], "rate": [float("nan")]}}, "curve.rate.0"),
        ({"curve": {"nodes": list(range(20_000)), "rate": [1.0] * 20_000}}, "curve.nodes"),
        ({"[bold]\x1b[31m": 1}, "unknown key '[bold]\\x1b[31m'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_invalid_job_is_refused(ask: Ask, changed: dict[str, Any], sentence: str) -> None:
    refused(ask("POST", "/v1/jobs", content=raw(**changed)), sentence)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[" * 100_000 + b"]" * 100_000, b'{"name":"\xff\xfe"}', b'{"priority":' + b"9" * 5000 + b"}", b"null"],
    ids=range(6),
)
def test_a_body_that_is_not_json_is_refused(ask: Ask, body: bytes) -> None:
    refused(ask("POST", "/v1/jobs", content=body), "")


def test_an_unknown_path_is_refused(ask: Ask) -> None:
    refused(ask("GET", "/v1/nothing"), "Not Found")
    refused(ask("PUT", "/v1/jobs"), "Method Not Allowed")


def test_invalid_changes_are_refused(ask: Ask) -> None:
    job = ask("POST", "/v1/jobs", content=raw()).json()["id"]
    for body in (b'{"weight": NaN}', b'{"weight": Infinity}', b'{"weight": 1e999}', b'{"weight": -1}'):
        refused(ask("PATCH", f"/v1/jobs/{job}", content=body), "weight")
    for sizes in ("9" * 5000, "1:" + "9" * 5000, "\ud800"):
        refused(ask("PATCH", f"/v1/jobs/{job}", content=json.dumps({"sizes": sizes})), "sizes")


@pytest.mark.parametrize("last", ["0", "-1", "9223372036854775808", "9" * 23, "x"])
def test_a_story_of_absurd_length(ask: Ask, last: str) -> None:
    refused(ask("GET", f"/v1/story/a?last={last}"), "last")


def test_stories_of_strange_subjects(ask: Ask) -> None:
    for subject in ("%00", "%ed%a0%80", "%2e%2e", "%1b[31m", "a" * 5000):
        assert ask("GET", f"/v1/story/{subject}").status_code in (200, 404)


@pytest.mark.parametrize("nodes", [["\ud800"], ["a\0"], [""], ["x" * 256], ["x"] * 10_001, [3], "n01"], ids=range(7))
def test_invalid_names_of_nodes_are_refused(ask: Ask, nodes: Any) -> None:
    refused(ask("POST", "/v1/release", content=json.dumps({"nodes": nodes})), "nodes")


def test_a_name_means_the_live_job(ask: Ask) -> None:
    first = ask("POST", "/v1/jobs", content=raw(name="twice")).json()["id"]
    second = ask("POST", "/v1/jobs", content=raw(name="twice")).json()["id"]
    assert ask("GET", "/v1/jobs/twice").json()["id"] == second
    assert ask("POST", "/v1/jobs/twice/cancel").json()["id"] == second
    assert ask("GET", "/v1/jobs/twice").json()["id"] == first
    assert ask("POST", "/v1/jobs/twice/cancel").json()["id"] == first
    assert ask("GET", "/v1/jobs/twice").json()["id"] == second


def test_jobs_that_have_ended_can_be_left_out(ask: Ask) -> None:
    for _ in range(3):
        ended = ask("POST", f"/v1/jobs/{ask('POST', '/v1/jobs', content=raw(name='over')).json()['id']}/cancel").json()
    alive = ask("POST", "/v1/jobs", content=raw(name="alive")).json()["id"]
    everything = ask("GET", "/v1/status").json()
    assert everything["left_out"] == 0
    shown = ask("GET", "/v1/status?ended=1").json()
    ids = [job["id"] for job in shown["jobs"]]
    assert ended["id"] in ids
    assert alive in ids
    assert sum(job["state"] == "cancelled" for job in shown["jobs"]) == 1
    assert shown["left_out"] == len(everything["jobs"]) - len(ids)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*JobSpec.model_fields, "colour"]), anything, max_size=4))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_invalid_job_is_an_error_of_the_server(ask: Ask, changed: dict[str, Any]) -> None:
    answer = ask("POST", "/v1/jobs", content=raw(**changed))
    assert answer.status_code == 200 or 400 <= answer.status_code < 500, (changed, answer.text)
    if answer.status_code == 200:
        assert json.loads(ask("GET", f"/v1/jobs/{answer.json()['id']}").text)


@given(st.sampled_from(["release", "claim", "nodes/want", "nodes/offer"]), anything)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_request_about_nodes_is_an_error_of_the_server(ask: Ask, path: str, nodes: Any) -> None:
    assert ask("POST", f"/v1/{path}", content=json.dumps({"nodes": nodes})).status_code < 500
