"""`offcut plan` from the outside."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from offcut.pipeline.plan import plan_from_json
from offcut.pipeline.plan_set import read_plans

HARDWARE = '[[device]]\nkind = "gpu"\ncount = 4\nmemory_gb = {}\n[link]\nbandwidth_gbit_s = 10\n'
NODE = (
    "node{0} -- Linear -- forward_compute_time=1.0, backward_compute_time=2.0, "
    "activation_size=4000.0, parameter_size=8000.0"
)


#: In one process of xdist: the first of them compiles what the others find compiled.
pytestmark = pytest.mark.xdist_group("plan")


@pytest.fixture
def offcut(completed: Callable) -> Callable:
    return completed


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "h.toml").write_text(HARDWARE.format(1))
    (tmp_path / "small.toml").write_text(HARDWARE.format(0.00001))
    lines = [NODE.format(i) for i in range(6)] + [f"\tnode{i} -- node{i + 1}" for i in range(5)]
    (tmp_path / "toy.txt").write_text("\n".join(lines))
    return tmp_path


def test_json_plan_file_and_figure(offcut: Callable, place: Path) -> None:
    done = offcut(
        "plan", str(place / "toy.txt"), "--hardware", str(place / "h.toml"), "--measured-at", "4", "--devices", "1:4",
        "--save", str(place / "plan.json"), "--figure", str(place / "plan.png"), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [size["devices"] for size in document["sizes"]] == [1, 2, 3, 4]
    assert document["curve"]["nodes"] == [0, 1, 2, 3, 4]
    best = document["sizes"][-1]["best"]
    assert best["step_s"] >= document["sizes"][-1]["bound_s"] > 0
    plans = read_plans(place / "plan.json")
    assert plans.plan_for(4) == plan_from_json(best)
    assert plans.devices == tuple(sorted({size["best"]["devices"] for size in document["sizes"]}))
    assert (place / "plan.png").read_bytes().startswith(b"\x89PNG")


def test_the_frontier_as_json_table_and_figure(offcut: Callable, place: Path) -> None:
    """Also where no plan fits: strategies that recompute may."""
    arguments = ("plan", str(place / "toy.txt"), "--measured-at", "4", "--devices", "1,2", "--frontier")
    done = offcut(*arguments, "--hardware", str(place / "h.toml"), "--figure", str(place / "frontier.svg"), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [one["devices"] for one in document["frontiers"]] == [1, 2]
    for one, size in zip(document["frontiers"], document["sizes"], strict=True):
        assert one["points"][-1]["step_s"] <= size["best"]["step_s"]
    assert document["frontier_curve"]["nodes"] == [0, 1, 2]
    assert "<svg" in (place / "frontier.svg").read_text()
    # The whole model needs 96 kB of state and 24 kB of activations; recomputed in runs of two layers, 16 kB of these.
    (place / "tight.toml").write_text(HARDWARE.format(0.000115))
    tight = ("--hardware", str(place / "tight.toml"), "--batch", "4")
    assert offcut(*arguments[:-3], "--devices", "1", *tight).returncode == 2
    done = offcut(*arguments[:-3], "--devices", "1", "--frontier", *tight)
    assert done.returncode == 0, done.stderr
    assert "recompute (estimate)" in done.stdout


def test_json_has_no_infinity_where_there_is_no_certificate(offcut: Callable, place: Path) -> None:
    """Only a schedule outside the bound's class is tried: the gap is unknown, and the document is still valid."""
    done = offcut(
        "plan", str(place / "toy.txt"), "--hardware", str(place / "h.toml"), "--measured-at", "4", "--devices", "2",
        "--schedule", "zb-h1", "--stages", "2", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Infinity" not in done.stdout
    size = json.loads(done.stdout)["sizes"][0]
    assert size["gap"] is None
    assert "of any plan at all" in size["certificate"]


def test_the_plan_report_has_stages_certificate_and_rejected_plans(offcut: Callable, place: Path) -> None:
    done = offcut("plan", str(place / "toy.txt"), "--hardware", str(place / "h.toml"), "--measured-at", "4")
    assert done.returncode == 2
    done = offcut(
        "plan", str(place / "toy.txt"), "--hardware", str(place / "h.toml"), "--measured-at", "4", "--devices", "4"
    )
    assert done.returncode == 0, done.stderr
    for words in ("Stages of", "of the best possible plan", "Why the others lost"):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--hardware", "small.toml"), "smallest memory per device that would do"),
        (("--hardware", "h.toml", "--schedule", "x"), "unknown schedule 'x'"),
        (("--hardware", "h.toml", "--stages", "9"), "9 stages asked for, but toy has 6 layers"),
        (("--hardware", "h.toml", "--micro-batch", "x"), "--micro-batch 'x'"),
        (("--hardware", "h.toml", "--batch", "7"), "divides the batch of 7"),
        (("--hardware", "none.toml"), "cannot be read"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    offcut: Callable, place: Path, more: tuple[str, ...], message: str
) -> None:
    arguments = [str(place / word) if word.endswith(".toml") else word for word in more]
    done = offcut("plan", str(place / "toy.txt"), "--measured-at", "4", "--devices", "2", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
