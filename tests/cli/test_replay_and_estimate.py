"""`offcut replay` and `offcut estimate` as a user calls them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from offcut.cli import main
from offcut.cli.commands import register
from offcut.traces.generate import generate
from offcut.traces.window_process import SUMMIT
from offcut.traces.windows import write_windows

CURVES = {"net": {"nodes": [1, 2, 4, 8], "rate": [100, 190, 340, 600]}}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("replay")
    write_windows(place / "w.csv.gz", generate(20, 20_000.0, 5, SUMMIT))
    jobs = [
        {"id": f"j{i}", "curve": "net", "submit_s": 0, "min_nodes": 1, "max_nodes": 8, "samples": 500_000.0}
        for i in range(4)
    ]
    (place / "jobs.json").write_text(json.dumps({"curves": CURVES, "jobs": jobs}))
    return place


def run(*arguments: object):
    fresh = typer.Typer()
    register(fresh)
    return CliRunner().invoke(fresh, [str(argument) for argument in arguments])


def fails(monkeypatch, capsys, *arguments: object) -> str:
    """Return the one sentence of a command that ends with exit code 2."""
    monkeypatch.setattr("sys.argv", ["offcut", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        main()
    said = capsys.readouterr().err
    assert exit_.value.code == 2, said
    assert "Traceback" not in said
    return said


def test_json_has_the_metrics_of_the_run(place):
    result = run("replay", "--windows", place / "w.csv.gz", "--jobs", place / "jobs.json", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert sum(document["shares"].values()) == pytest.approx(1.0)
    assert document["options"]["policy"] == "exact"


def test_options_given_twice_are_combined(place):
    arguments = ("--windows", place / "w.csv.gz", "--jobs", place / "jobs.json", "--json", "--resize-cost", "18:12")
    result = run("replay", *arguments, "--policy", "exact", "--policy", "first-come", "--end", 9000)
    runs = json.loads(result.stdout)["runs"]
    assert [one["options"]["policy"] for one in runs] == ["exact", "first-come"]
    assert all(one["options"]["cost"]["grow_s"] == 18 for one in runs)


def test_a_users_policy_file(place):
    (place / "mine.py").write_text("def none(problem):\n    return {}\n")
    policy = f"{place / 'mine.py'}:none"
    result = run("replay", "--windows", place / "w.csv.gz", "--jobs", place / "jobs.json", "--policy", policy, "--json")
    assert json.loads(result.stdout)["work_node_h"] == 0.0


def test_the_report_is_one_file(place):
    result = run("replay", "--windows", place / "w.csv.gz", "--jobs", place / "jobs.json", "--report", place / "out")
    assert result.exit_code == 0, result.output
    page = (place / "out" / "replay.html").read_text()
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )


def test_estimate_writes_a_page(place):
    result = run("estimate", place / "w.csv.gz", "--nodes", 40, "--price", 2, "-o", place / "e.html", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["nodes"] == 40
    page = (place / "e.html").read_text()
    assert page.count("<svg") == 3
    assert "a year" in page


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--nodes", "50"), "50 nodes were asked for, but the trace has 9"),
        (("--start", "5", "--end", "4"), "s is empty"),
        (("--start", "1e9"), "s is empty"),
        (("--resize-cost", "quick"), "--resize-cost"),
        (("--concurrency", "0"), "--concurrency"),
        (("--horizon", "0"), "--horizon"),
        (("--policy", "nothing"), "unknown policy 'nothing'"),
        (("--policy", "missing.py"), "not found"),
        (("--jobs", "{place}/nocurve.json"), "names the curve 'other'"),
        (("--windows", "{place}/overlap.csv"), "line 3, field start_s"),
        (("--windows", "{place}/cut.csv.gz"), "cut.csv.gz"),
    ],
)
def test_bad_input(place, monkeypatch, capsys, change, said):
    job = {"id": "j", "curve": "other", "submit_s": 0, "min_nodes": 1, "max_nodes": 8, "samples": 1}
    (place / "nocurve.json").write_text(json.dumps({"curves": CURVES, "jobs": [job]}))
    (place / "overlap.csv").write_text("node,start_s,end_s\nn1,0,10\nn1,5,20\n")
    (place / "cut.csv.gz").write_bytes(gzip.compress(b"node,start_s,end_s\nn1,0,10\n" * 100)[:-20])
    base = {"--windows": f"{place}/w.csv.gz", "--jobs": f"{place}/jobs.json"}
    base |= {change[i]: change[i + 1].format(place=place) for i in range(0, len(change), 2)}
    assert said in fails(monkeypatch, capsys, "replay", *(text for pair in base.items() for text in pair))


def test_estimate_of_too_small_a_machine(place, monkeypatch, capsys):
    assert "has windows of 9" in fails(monkeypatch, capsys, "estimate", place / "w.csv.gz", "--nodes", 3)
