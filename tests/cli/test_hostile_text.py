"""Strings from jobs, nodes, files and the queue are shown literally; they cannot control a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_api import FakeClient, status
from rich.console import Console

from offcut.cli import doctor, dry_run, output
from offcut.cli.demo.screen import screen
from offcut.cluster.slurm.idle_nodes import Candidate
from offcut.plaintext import visible

#: Markup that is whole, and markup that is not; emoji; escapes of several kinds; a reversal; half of a surrogate pair.
HOSTILE = (
    "[/scratch/me/data.pt] [rank0]: [bold red]x[/] [link=http://x]y[/link] [/] :smile: \\[ "
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \r \x08 \u202eabc \ud800 100% {braces} $x$"
)
NAME = "[bold]n01[/] :smile: \x1b]0;title\x07"


def check(shown: str, text: str = HOSTILE) -> None:
    assert visible(text) in shown
    assert all(char.isprintable() or char == "\n" for char in shown)


@pytest.fixture(autouse=True)
def hostile_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeClient, "text", HOSTILE)
    monkeypatch.setattr("offcut.client.controller.Client", FakeClient)
    monkeypatch.setattr("offcut.wire.client.Client", FakeClient)


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["status", "a"],
        ["why", "a"],
        ["curve", "a"],
        ["loss", "a"],
        ["change", "a", "--weight", "2"],
        ["cancel", "a"],
        ["pause", "a"],
        ["sweeps"],
        ["sweeps", "a"],
        ["best", "a"],
        ["extend", "a", "--trials", "9"],
        ["resume", "a"],
        ["release", HOSTILE],
        ["node", "want", HOSTILE],
        ["node", "offer", HOSTILE],
    ],
    ids=lambda words: " ".join(words[:2])[:12],
)
def test_live_commands(offcut, words) -> None:
    code, out, error = offcut(*words)
    assert (code, error) == (0, "")
    check(out)


def test_wait(offcut) -> None:
    code, out, error = offcut("wait", "a", "--timeout", "0")
    assert (code, error) == (124, "")
    check(out)


def test_submit(offcut, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    code, out, _ = offcut("submit", tmp_path / "train.py", "--name", "a")
    assert code == 0
    check(out)


@pytest.mark.parametrize("screen", [True, False])
def test_on_a_screen_and_in_a_pipe(offcut, monkeypatch, screen: bool) -> None:
    plain = Console(markup=False, emoji=False, highlight=False, force_terminal=screen, color_system=None, width=1000)
    monkeypatch.setattr(output, "console", plain)
    for words in (["status"], ["why", "a"]):
        check(offcut(*words)[1])


def test_a_line_of_data_cannot_imitate_a_line_of_the_command(offcut) -> None:
    out = offcut("why", "a")[1]
    first, second = (line for line in out.splitlines() if line.endswith("two") or "lines of" in line)
    assert first.startswith("  ")
    assert second.startswith("      lines of")


def test_the_live_view_of_the_demo() -> None:
    wide = Console(markup=False, emoji=False, highlight=False, width=1000)
    with wide.capture() as shown:
        wide.print(screen(status(HOSTILE), [HOSTILE, "busy"], 1.0, 5.0))
    check(shown.get())


def test_doctor(offcut, monkeypatch) -> None:
    monkeypatch.setattr(doctor, "_slurm", lambda: [doctor.Finding(HOSTILE, "note", HOSTILE, HOSTILE)])
    code, out, _ = offcut("doctor", "--cluster", "slurm")
    assert code == 0
    check(out)


def test_dry_run_table() -> None:
    with output.console.capture() as shown:
        found = [Candidate(node=HOSTILE, safe=True, why=HOSTILE, limit_s=60.0)]
        dry_run.print_candidates(found, {HOSTILE}, HOSTILE)
    check(shown.get())


def test_errors_of_the_controller(offcut, monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        from offcut.errors import InputError

        raise InputError(f"There is no job called {HOSTILE}.", next_step=HOSTILE)

    monkeypatch.setattr(FakeClient, "get", refuse)
    code, out, error = offcut("why", "a")
    assert (code, out) == (2, "")
    check(error)


def test_a_problem_file(offcut, tmp_path: Path) -> None:
    text = HOSTILE.replace("\ud800", "")
    curve = {"nodes": [1, 2], "rate": [1.0, 1.9]}
    problem = {"nodes": 2, "horizon_s": 120, "jobs": [{"id": text, "curve": curve}]}
    path = tmp_path / NAME.replace("/", "")
    path.write_text(json.dumps(problem))
    code, out, _ = offcut("allocate", path, "--explain")
    assert code == 0
    check(out, text)
    check(out, path.name)


def test_windows_and_jobs_of_a_replay(offcut, tmp_path: Path) -> None:
    windows, jobs = tmp_path / "[x] \x1b]0;w\x07.csv", tmp_path / "jobs.json"
    windows.write_text(f"node,start_s,end_s\n{NAME},0,1000\n")
    one = {"id": NAME, "curve": "c", "submit_s": 0, "min_nodes": 1, "max_nodes": 1, "samples": 100.0}
    jobs.write_text(json.dumps({"curves": {"c": {"nodes": [1], "rate": [10.0]}}, "jobs": [one]}))
    code, out, error = offcut("replay", "--windows", windows, "--jobs", jobs, "--report", tmp_path / "r")
    assert code == 0, error
    assert all(char.isprintable() or char == "\n" for char in out + error)
    page = (tmp_path / "r" / "replay.html").read_text()
    assert "\x1b" not in page
    code, out, error = offcut("windows", windows, "--figure", tmp_path / "w.png")
    assert code == 0, error
    check(out, "Idle windows from a windows file")


def test_names_of_files_with_formulas_in_them(offcut, tmp_path: Path) -> None:
    """Without escaping, matplotlib would set text between dollars as a formula, and fail."""
    windows = tmp_path / r"a$\frac$b.csv"
    windows.write_text("node,start_s,end_s\nn1,0,1000\n")
    assert offcut("windows", windows, "--figure", tmp_path / "w.png")[0] == 0


@pytest.mark.xdist_group("plan")
def test_a_layer_profile(offcut, tmp_path: Path) -> None:
    (tmp_path / "h.toml").write_text(
        '[[device]]\nkind = "[bold]gpu[/]"\ncount = 2\nmemory_gb = 1\n[link]\nbandwidth_gbit_s = 10\n'
    )
    figures = "forward_compute_time=1.0, backward_compute_time=2.0, activation_size=4.0, parameter_size=8.0"
    node = "node{0} -- [/x] Linear[bold] -- " + figures
    lines = [node.format(i) for i in range(3)] + [f"\tnode{i} -- node{i + 1}" for i in range(2)]
    graph = tmp_path / "[red]\x1b]0;t\x07graph.txt"
    graph.write_text("\n".join(lines))
    code, out, error = offcut(
        "plan", graph, "--hardware", tmp_path / "h.toml", "--measured-at", "4", "--devices", "1:2"
    )
    assert code == 0, error
    assert all(char.isprintable() or char == "\n" for char in out)


def test_nothing_but_output_prints() -> None:
    """One module prints data, so that one place decides what becomes of it."""
    package = Path(output.__file__).parent
    for path in package.rglob("*.py"):
        source = path.read_text()
        if path.name != "output.py":
            assert "Console(" not in source.replace("Console(stderr=True)", ""), path
            assert "typer.echo(" not in source, path
            assert "console.print(" not in source, path
