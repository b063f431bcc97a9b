"""Every example runs alone, by plain Python, and does what its first lines say."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from offcut.wire.jobspec import read_job_file
from offcut.wire.sweepspec import read_sweep_file

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """`printed(script, *arguments)`: run it as `python script` would, in this process, which has torch imported."""

    def run(script: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
        return capsys.readouterr().out

    return run


def figure(text: str, pattern: str) -> float:
    found = re.search(pattern, text)
    assert found, text
    return float(found[1])


def test_plain_loop_learns_and_saves_its_model(tmp_path: Path) -> None:
    saved = tmp_path / "model.pt"
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "session" / "digits.py"), "--epochs", "4", "--out", str(saved)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "after 48 steps" in done.stdout
    assert figure(done.stdout, r"; ([\d.]+)% of the held-out digits") > 60
    assert torch.load(saved, weights_only=True)["0.weight"].shape == (16, 1, 3, 3)


def test_accumulation_gives_the_same_update_however_the_batch_is_cut(printed: Callable[..., str]) -> None:
    script = "session/accumulation.py"
    uneven, whole = (
        figure(printed(script, "--epochs", "3", "--micro-batch", size), r"loss ([\d.]+) after 12 steps")
        for size in ("200", "512")
    )
    assert uneven == pytest.approx(whole, rel=1e-4)


def test_both_optimizers_train(printed: Callable[..., str]) -> None:
    text = printed("session/two_optimizers.py", "--epochs", "6")
    assert figure(text, r"loss ([\d.]+) after 90 steps") < 1.0
    assert figure(text, r"nearest centres are ([\d.]+) apart") > 0.5


def test_tabular_job_stops_early_and_finds_the_rare_class(printed: Callable[..., str]) -> None:
    text = printed("session/tabular.py", "--patience", "2")
    assert figure(text, r"stopped after (\d+) steps") < 200 * 8
    assert figure(text, r"([\d.]+)% of the malignant") > 85


def test_plain_ddp_script_resumes_where_it_was_told_to_go(printed: Callable[..., str], tmp_path: Path) -> None:
    saved = tmp_path / "checkpoint.pt"
    whole = printed("restart/ddp_restart.py", "--epochs", "4", "--checkpoint", str(tmp_path / "other.pt"))
    assert figure(whole, r"loss ([\d.]+) after 56 steps") < 0.6
    first = printed("restart/ddp_restart.py", "--epochs", "2", "--checkpoint", str(saved))
    assert "after 28 steps" in first
    second = printed("restart/ddp_restart.py", "--epochs", "4", "--checkpoint", str(saved))
    assert "resumed at step 28" in second
    assert second.splitlines()[-1] == whole.splitlines()[-1]


def test_pipeline_job_learns_alone_and_saves_the_whole_model(tmp_path: Path) -> None:
    saved = tmp_path / "gpt.pt"
    done = subprocess.run(
        [
            sys.executable,
            str(EXAMPLES / "pipeline" / "pipeline_gpt.py"),
            "--epochs",
            "1",
            "--lr",
            "0.01",
            "--out",
            str(saved),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert figure(done.stdout, r"loss ([\d.]+) after") < 3.5
    assert torch.load(saved, weights_only=True)["0.letter.weight"].shape == (128, 32)


def test_a_trial_of_a_sweep_runs_alone(printed: Callable[..., str]) -> None:
    script = "sweep/digits.py"
    assert figure(printed(script, "--epochs", "2", "--optimizer=adam", "--lr=0.01"), r"error ([\d.]+)") < 0.4


@pytest.mark.ci
def test_a_trial_of_an_architecture_search_runs_alone(printed: Callable[..., str]) -> None:
    cell = ["--nodes=3", "--op1=conv3", "--op2=separable3", "--in2=1", "--op3=skip", "--in3=0"]
    text = printed("sweep/architecture.py", "--epochs", "2", *cell)
    assert figure(text, r"error ([\d.]+) with") < 0.85
    assert "with 1,906 weights" in text


@pytest.mark.ci
def test_a_perceptron_learns_below_the_transition_and_not_above(
    printed: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFCUT_JOB_DIR", str(tmp_path))
    assert "0 of 50 patterns wrong" in printed("sweep/perceptron.py", "--n", "101", "--alpha=0.5")
    reports = [json.loads(line) for line in (tmp_path / "objectives.jsonl").read_text().splitlines()]
    assert reports[-1]["value"] == 0
    assert [report["budget"] for report in reports] == [100 * (1 + place) for place in range(len(reports))]
    assert figure(printed("sweep/perceptron.py", "--n", "101", "--alpha=1.5"), r"(\d+) of 152 patterns wrong") > 5


@pytest.mark.ci
def test_the_figure_of_the_transition_is_drawn_from_a_sweeps_results(
    printed: Callable[..., str], tmp_path: Path
) -> None:
    trials = [
        {"state": "completed", "value": wrong, "parameters": {"n": 101, "alpha": alpha, "seed": seed}}
        for alpha, values in ((0.5, (0, 0)), (0.7, (0, 3)))
        for seed, wrong in enumerate(values)
    ]
    failed = {"state": "failed", "value": None, "parameters": None}
    results, drawn = tmp_path / "results.json", tmp_path / "transition.png"
    results.write_text(json.dumps({"each": [*trials, failed]}))
    text = printed("sweep/perceptron_figure.py", str(results), "--out", str(drawn))
    assert "n = 101, alpha = 0.7: 50% of 2 solved, 1.5 wrong" in text
    assert drawn.stat().st_size > 1000


def test_every_sweep_file_can_be_read() -> None:
    schedulers = {path.name: read_sweep_file(path).scheduler["name"] for path in EXAMPLES.glob("sweep/*.toml")}
    assert schedulers["architecture.toml"] == "regularized-evolution"
    assert schedulers["architecture-asha.toml"] == schedulers["digits.toml"] == "asha"


@pytest.mark.ci
def test_flood_filling_fills_one_of_two_tubes() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / "plain" / "flood_filling.py")]
    text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert figure(text, r"tube 0: ([\d.]+)% filled") > 85
    assert figure(text, r"tube 1: ([\d.]+)% filled") < 10


@pytest.mark.parametrize(("depth", "parameters"), [(3, 140_193), (9, 472_353), (12, 638_433)])
def test_flood_filling_network_has_the_published_size(depth: int, parameters: int) -> None:
    script = ast.parse((EXAMPLES / "plain" / "flood_filling.py").read_text())
    script.body = [part for part in script.body if isinstance(part, ast.Import | ast.ImportFrom | ast.ClassDef)]
    names: dict[str, Any] = {}
    exec(compile(script, "flood_filling.py", "exec"), names)
    network = names["FloodFillingNetwork"](depth, features=32)
    assert sum(p.numel() for p in network.parameters()) == parameters


@pytest.mark.ci
def test_plain_gpt_trains_under_torchrun(tmp_path: Path) -> None:
    arguments = [str(EXAMPLES / "plain" / "nanogpt.py"), "--max-iters", "21", "--eval-interval", "20"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert figure(done.stdout, r"step 20: train loss ([\d.]+)") < 3.6
    assert torch.load(tmp_path / "nanogpt.pt", weights_only=True)["norm.weight"].shape == (64,)


def test_every_job_file_can_be_read() -> None:
    modes = {
        path.name: read_job_file(path).mode for path in EXAMPLES.rglob("*.toml") if "offcut submit" in path.read_text()
    }
    assert modes["ddp_restart.toml"] == "restart"
    assert modes["digits.toml"] == "session"


def test_every_example_says_what_it_shows_and_has_a_test() -> None:
    tests = Path(__file__).read_text()
    for script in EXAMPLES.glob("*/*.py"):
        assert script.read_text().startswith('"""'), f"{script.name} does not start with a docstring"
        if script.parent.name not in ("plain", "elastic"):
            assert f'{script.name}"' in tests, f"{script.name} is run by no test"


def test_the_list_of_examples_names_every_script() -> None:
    text = (EXAMPLES / "README.md").read_text()
    assert {path.name for path in EXAMPLES.glob("*/*.py")} <= set(re.findall(r"\w+\.py", text))
