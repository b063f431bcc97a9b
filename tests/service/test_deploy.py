"""The files in deploy/: they name metrics that the controller exports, and alerts fire when they should."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controlled import Controlled

from offcut.service.metrics.prometheus import PrometheusMetrics

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "offcut.rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "offcut.json"


def panels() -> list[dict[str, Any]]:
    board = json.loads(DASHBOARD.read_text())
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


@pytest.fixture
def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what a controller exports, as text."""

    async def text() -> bytes:
        it = Controlled(tmp_path, monkeypatch)
        it.submit("a")
        it.cluster.command_figures = dict  # type: ignore[attr-defined]
        return PrometheusMetrics(it.controller, it.journal).encoded("")[0]

    return asyncio.run(text()).decode()


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool") or shutil.which("promtool", path=str(Path(sys.executable).parent))
    if found is None:
        said = "promtool is not installed here: run scripts/install-promtool"
        if os.environ.get("CI") == "true":
            pytest.fail(said)
        pytest.skip(said)
    return found


def run(*command: str, text: str = "", where: Path = ROOT) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=where, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_rules_and_dashboard_name_only_what_is_exported(exported: str) -> None:
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", exported, re.MULTILINE))

    def names() -> Iterator[str]:
        for name, kind in types.items():
            yield from (name + end for end in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",)))

    known = set(names())
    for text in (*queries(), re.sub(r"#.*|summary:.*|alert:.*", "", RULES.read_text())):
        used = set(re.findall(r"\b(?:offcut|process)_\w+", text))
        assert used <= known
        # What counts up is read by its increase, and a histogram's quantile by its buckets.
        for name in (name for name in used if name.endswith(("_total", "_bucket"))):
            assert re.search(rf"(rate|increase)\({name}\b", text), text


def test_the_dashboard_is_one_that_grafana_can_import() -> None:
    board = json.loads(DASHBOARD.read_text())
    assert {variable["name"] for variable in board["templating"]["list"]} == {"datasource", "instance"}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all('instance=~"$instance"' in target["expr"] for target in panel["targets"]), panel["title"]


def test_every_alert_is_explained() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    assert re.findall(r"alert: (\w+)", RULES.read_text()) == re.findall(r"^\| `(Offcut\w+)`", page, re.MULTILINE)


@pytest.mark.ci
def test_prometheus_accepts_metrics_rules_configuration_and_queries(
    exported: str, promtool: str, tmp_path: Path
) -> None:
    run(promtool, "check", "metrics", text=exported)
    run(promtool, "check", "rules", str(RULES))
    run(promtool, "check", "config", "--syntax-only", "deploy/prometheus/prometheus.yml")
    plain = [re.sub(r"\$__\w+", "5m", query).replace("$instance", ".+") for query in queries()]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(plain)]
    (tmp_path / "queries.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(plain)} rules found" in run(promtool, "check", "rules", str(tmp_path / "queries.yml"))


@pytest.mark.ci
def test_alerts_fire_when_they_should_and_only_then(promtool: str, tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    shutil.copy(Path(__file__).with_name("offcut.rules.test.yml"), tmp_path)
    assert "SUCCESS" in run(promtool, "test", "rules", "offcut.rules.test.yml", where=tmp_path)
