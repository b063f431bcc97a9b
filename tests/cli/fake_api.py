"""A controller's answers, with one string everywhere that a job, a node, a file or the queue can fill."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class FakeClient:
    """Answers as the API does; `text` is in each of its strings."""

    text = "plain"
    directory = Path("/nowhere")

    def __init__(self, socket: Path, timeout_s: float = 30.0) -> None:
        pass

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get(self, path: str, **parameters: Any) -> Any:
        if path == "/v1/status":
            return status(self.text)
        if path == "/v1/sweeps":
            return [sweep(self.text)]
        if path.startswith("/v1/sweeps/"):
            return sweep(self.text)
        if path == "/v1/metrics":
            return [{"name": self.text, "samples": []}]
        last = path.rpartition("/")[2]
        known = {"why": why, "curve": curve, "loss": loss}
        if last == "directory":
            return {"id": self.text, "directory": str(self.directory)}
        return known.get(last, job)(self.text)

    def get_text(self, path: str) -> str:
        return self.text

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        if path == "/v1/sweeps":
            return sweep(self.text)
        return status(self.text) if path in ("/v1/release", "/v1/claim") else job(self.text)

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        return sweep(self.text) if path.startswith("/v1/sweeps/") else job(self.text)


def sweep(text: str) -> dict[str, Any]:
    best = {"trial": 1, "job": text, "value": 0.5, "budget": 3.0, "parameters": {text: text}}
    trial = {"trial": 1, "job": text, "state": "failed", "reason": text, "parameters": {text: text}, "budget": 3.0}
    return {
        "id": text,
        "name": text,
        "state": text,
        "reason": text,
        "max_trials": 9,
        "node_hours": 1.5,
        "max_node_hours": 2.0,
        "trials": {text: 2},
        "started": 2,
        "ended": 1,
        "best": best,
        "each": [{**trial, "value": 0.5}, {**trial, "parameters": None, "budget": None, "value": None}],
    }


def job(text: str) -> dict[str, Any]:
    return {
        "id": text,
        "name": text,
        "state": text,
        "reason": text,
        "sizes": text,
        "size": 2,
        "steps": 7,
        "total_steps": 70,
        "time_left_s": 63.0,
        "loss": 0.5,
        "rate": 10.0,
        "steps_redone": 1,
        "mode": "session",
        "exit_code": 0,
        "weight": 1.0,
    }


def status(text: str) -> dict[str, Any]:
    told = ("trouble", "paused", "against", "site_file", "site_trouble", "request_refused", "name")
    shares = {"controllers": 2, "share": 1, "shared": 4, "asks_for": 1, "interval_s": 30.0}
    slurm = {"kind": "slurm", "partition": text, "mode": text, "held": 1, "pending": 0, "offered": 2}
    return {
        "jobs": [job(text)],
        "left_out": 3,
        "nodes": [{"name": text, "phase": text, "job": text, "worker": text}],
        "cluster": {**slurm, **dict.fromkeys(told, text), **shares, "warnings": [text], "quiet": True},
        "aside": [{"name": text, "reason": text, "until_s": 0.0}],
        "claiming": False,
        "skipped": [{"event_id": 3, "kind": text, "reason": text}],
        "journal": [text],
        "tasks": [{"name": text, "failures": 2, "last_error": text, "state": "running", "well": False}],
        "resizes": {
            "count": 1,
            "p50_ms": 1.0,
            "p95_ms": 2.0,
            "recent": [{"job": text, "what": text, "size": 2, "took_ms": 1.0}],
        },
    }


def why(text: str) -> dict[str, Any]:
    story = [{"time_s": 0.0, "text": text}, {"time_s": 1.0, "text": f"two\nlines of {text}"}]
    return {"job": job(text), "since_s": 3.0, "words": [text], "decision": None, "story": story}


def curve(text: str) -> dict[str, Any]:
    return {
        "id": text,
        "own": [{"size": 1, "rate": 10.0}],
        "family_points": [],
        "curve": {"nodes": [0, 1, 2], "rate": [0.0, 10.0, 19.0]},
        "deviation": {"1": 0.1},
        "words": [text],
        "grow_cost_s": 0.3,
        "shrink_cost_s": 0.2,
        "probes": 1,
        "probe_node_s": 4.0,
    }


def loss(text: str) -> dict[str, Any]:
    step = [10, 20, 30, 40]
    points = {"time_s": [1.0, 2.0, 3.0, 4.0], "generation": [1, 1, 1, 2], "step": step, "samples": step}
    return {"id": text, "mode": "session", "points": points | {"loss": [2.0, 1.0, None, 0.5]}}
