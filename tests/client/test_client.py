"""The Python API: what the page shows, errors, waiting, and what is imported."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import offcut.client
from offcut.client import connection, job, sweep
from offcut.errors import InputError, UnreachableError, WaitTimeoutError

GONE = UnreachableError("No controller answers.")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "client.md"


class Api:
    """The API of a controller, in memory: answers by path, one after another; the last one stays."""

    def __init__(self, directory: Path) -> None:
        self.sent: list[tuple[str, str, Any]] = []
        self.answers: dict[str, list[Any]] = {
            "/v1/jobs/digits-1": [shown("running"), shown("running"), GONE, shown("finished")],
            "/v1/jobs/digits-1/loss": [{"id": "digits-1", "mode": "session", "points": {"loss": [2.0, 1.0]}}],
            "/v1/jobs/digits-1/directory": [{"id": "digits-1", "directory": str(directory)}],
            "/v1/sweeps/lr-2": [
                searched("running"),
                searched("running", trial(0, "running", None)),
                GONE,
                searched("running", trial(0, "running", 0.5)),
                searched("finished", trial(0, "completed", 0.5), trial(1, "completed", 0.25, momentum=0.9)),
            ],
        }

    def get(self, path: str, **parameters: Any) -> Any:
        answers = self.answers[path]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        self.sent.append(("POST", path, body))
        return shown("waiting") if path.startswith("/v1/jobs") else searched("running")

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        self.sent.append(("PATCH", path, body))
        return {}


def shown(state: str) -> dict[str, Any]:
    return {"id": "digits-1", "state": state, "steps": 7}


def trial(number: int, state: str, value: float | None, **parameters: Any) -> dict[str, Any]:
    budget = None if value is None else 1.0
    row = {"trial": number, "job": f"lr-2.{number}", "state": state, "reason": "", "budget": budget, "value": value}
    return {**row, "parameters": {"lr": 0.1, **parameters}, "rungs": [], "parent": None}


def searched(state: str, *trials: dict[str, Any]) -> dict[str, Any]:
    known = [each for each in trials if each["value"] is not None]
    return {"id": "lr-2", "state": state, "best": min(known, key=lambda x: x["value"], default=None), "each": [*trials]}


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "n01#1:0.log").write_text("first\nlast\n")
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    served = Api(tmp_path)
    monkeypatch.setattr("offcut.client.controller.Client", lambda socket: served)
    monkeypatch.setattr(connection, "_AGAIN_S", 0.0)
    monkeypatch.setattr(job, "_ASK_S", 0.0)
    monkeypatch.setattr(sweep, "_ASK_S", 0.0)
    return served


async def run_cells(cells: list[str]) -> None:
    names: dict[str, Any] = {}
    for cell in cells:
        exec(cell, names)


def test_the_page_works_as_it_is_shown_also_inside_an_event_loop(api: Api, capsys, tmp_path: Path) -> None:
    asyncio.run(run_cells(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)))
    assert capsys.readouterr().out.splitlines() == [
        "running",
        "finished 7",
        "1.0",
        *("n01#1:0", "first", "last"),
        "0.5 {'lr': 0.1}",
        "0.25 {'lr': 0.1, 'momentum': 0.9}",
        "{'lr': 0.1, 'momentum': 0.9}",
    ]
    submitted, changed, searching, extended = api.sent
    assert submitted[1:] == (
        "/v1/jobs",
        {
            "name": "digits",
            "sizes": "1:4",
            "command": [str(tmp_path / "train.py"), "--epochs", "3"],
            "workdir": str(tmp_path),
        },
    )
    assert changed == ("PATCH", "/v1/jobs/digits-1", {"sizes": None, "weight": 2.0})
    body = searching[2]
    assert body["space"]["lr"] == {"type": "float", "low": 1e-4, "high": 1.0, "log": True}
    assert body["job"] == {"name": "lr", "command": ["train.py"], "sizes": "1:2", "workdir": str(tmp_path)}
    given = {field: value for field, value in extended[2].items() if value is not None}
    assert (*extended[:2], given) == ("PATCH", "/v1/sweeps/lr-2", {"max_trials": 60})


def test_a_sweep_is_followed_and_read_as_a_table(api: Api) -> None:
    search = offcut.client.connect().sweep("lr-2")
    events = [(event.kind, event.trial and event.trial["trial"], event.sweep["state"]) for event in search.follow()]
    assert events == [
        ("trial", 0, "running"),
        ("state", None, "running"),
        ("trial", 0, "running"),
        ("best", 0, "running"),
        ("trial", 0, "finished"),
        ("trial", 1, "finished"),
        ("best", 1, "finished"),
        ("state", None, "finished"),
    ]
    columns = ["trial", "job", "state", "reason", "budget", "value", "params_lr", "params_momentum"]
    assert [list(row) for row in search.trials()] == [columns, columns]
    assert [row["params_momentum"] for row in search.trials()] == [None, 0.9]
    assert search.wait()["state"] == "finished"


def test_waiting_has_a_limit(api: Api) -> None:
    api.answers["/v1/jobs/digits-1"] = [shown("running")]
    api.answers["/v1/sweeps/lr-2"] = [searched("running")]
    controller = offcut.client.connect()
    with pytest.raises(WaitTimeoutError, match=r"digits-1 has not ended within 0\.01 s: it is running"):
        controller.job("digits-1").wait(timeout_s=0.01)
    with pytest.raises(WaitTimeoutError, match="lr-2 has not ended"):
        controller.sweep("lr-2").wait(timeout_s=0.01)


def test_what_is_submitted_is_checked_before_it_is_sent(api: Api, tmp_path: Path) -> None:
    controller = offcut.client.connect()
    with pytest.raises(InputError, match="there is no script"):
        controller.submit("missing.py")
    with pytest.raises(InputError, match="submit: sizes"):
        controller.submit("train.py", sizes="none")
    with pytest.raises(InputError, match="lr: low"):
        controller.submit_sweep(
            name="s",
            job={"command": ["train.py"]},
            space={"lr": {"type": "float", "low": 1.0, "high": 0.1}},
            scheduler={"name": "none", "max_budget": 1},
        )
    assert api.sent == []
    (tmp_path / "job.toml").write_text('name = "file"\ncommand = ["train.py"]\n')
    controller.submit("job.toml", sizes="2")
    spec = offcut.client.JobSpec(name="model", command=["train.py"], sizes="3")
    controller.submit(spec)
    assert [(body["name"], body["sizes"]) for _, _, body in api.sent] == [("file", "2"), ("model", "3")]


def test_a_controller_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match=r"No controller answers at .*control\.sock"):
        offcut.client.connect(tmp_path).status()


def test_the_import_is_light() -> None:
    code = "import sys; before = set(sys.modules); import offcut.client; print(*(set(sys.modules) - before))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout
    loaded = set(out.split())
    heavy = {"pydantic", "asyncio", "typer", "rich", "numpy", "torch", "fastapi", "structlog", "httpx", "polars"}
    assert heavy.isdisjoint(loaded), sorted(heavy & loaded)
    # It takes as long as these: 0.05 s with 110 modules.
    assert len(loaded) < 160, len(loaded)
