"""`offcut replay --sweep` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_replay_and_estimate import fails, run

from offcut.traces.windows import Windows, node_names, write_windows

SWEEP = """
direction = "minimize"
suggest = "{suggest}"
max_trials = 12
[job]
command = ["train.py"]
sizes = "1:2"
[scheduler]
name = "{scheduler}"
max_budget = 3
[space]
lr = {{ type = "float", low = 0.1, high = 1.0 }}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("sweeps")
    names = node_names(4)
    write_windows(place / "w.csv", Windows.from_columns(names, [0, 0, 50, 100], [5000, 300, 900, 5000]))
    rows = [{"parameters": {"lr": i / 10}, "unit_s": 1.0, "values": [1, 1 / i, 2 / i**2]} for i in range(1, 10)]
    table = {"direction": "minimize", "budgets": [1, 2, 3], "configurations": rows}
    (place / "curves.json").write_text(json.dumps(table))
    (place / "train.py").write_text("")
    for scheduler, suggest in (("asha", "random"), ("asha-stopping", "random"), ("none", "optuna")):
        (place / f"{scheduler}.toml").write_text(SWEEP.format(scheduler=scheduler, suggest=suggest))
    return place


def arguments(place: Path, *more: object) -> list[object]:
    return ["replay", "--windows", place / "w.csv", "--curves", place / "curves.json", "--unit", 60, *more]


def test_json_has_the_search_and_the_metrics_of_the_replay(place):
    result = run(*arguments(place, "--sweep", place / "asha.toml", "--json"))
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["phase"] == "finished"
    assert document["best"]["value"] == document["best_over_time"][-1]["value"]
    assert document["node_h"] == pytest.approx(document["replay"]["used_node_h"])
    assert sum(document["trials"].values()) == 12
    assert any("promoted" in line["text"] for line in document["log"])


def test_sweeps_are_compared_at_equal_node_hours(place):
    result = run(*arguments(place, "--sweep", place / "asha.toml", "--sweep", place / "asha-stopping.toml"))
    assert result.exit_code == 0, result.output
    assert "asha-stopping" in result.output
    assert "node-hours" in result.output


def test_a_replayed_sweep_has_the_report_of_a_live_one(place, tmp_path):
    result = run(*arguments(place, "--sweep", place / "asha.toml", "--report", tmp_path / "out"))
    assert result.exit_code == 0, result.output
    page = (tmp_path / "out" / "sweep-1.html").read_text()
    assert "<svg" in page
    assert "asha" in page


def test_optuna_suggests_in_replay_too(place):
    result = run(*arguments(place, "--sweep", place / "none.toml", "--json"))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["trials"] == {"completed": 12}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--sweep", "asha.toml"), "--curves"),
        (("--curves", "curves.json"), "--sweep"),
        (("--unit", "3"), "--sweep"),
        (("--sweep", "asha.toml", "--curves", "curves.json", "--jobs", "jobs.json"), "exclude each other"),
        (("--sweep", "asha.toml", "--curves", "curves.json", "--repeat"), "--repeat"),
        (("--sweep", "asha.toml", "--curves", "curves.json", "--unit", "0"), "--unit"),
        (("--sweep", "asha.toml", "--curves", "none.json"), "none.json"),
        (("--sweep", "none", "--curves", "curves.json"), "none: cannot be read"),
        ((), "nothing to replay"),
    ],
)
def test_bad_input(place, monkeypatch, capsys, given, said):
    files = [str(place / each) if each.endswith((".json", ".toml")) or each == "none" else each for each in given]
    assert said in fails(monkeypatch, capsys, "replay", "--windows", place / "w.csv", *files)
