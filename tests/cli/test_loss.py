"""`offcut loss`: the curve as a picture, as comma-separated values and as JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from fake_api import FakeClient

from offcut.cli.loss_plot import draw, with_axes
from offcut.wire.metric_records import METRICS_FILE, MetricFile, MetricRecord


@pytest.fixture
def losses(monkeypatch):
    def serve(*losses: float | None, mode: str = "session") -> None:
        steps = [10 * (i + 1) for i in range(len(losses))]
        points = {"time_s": [0.5] * len(steps), "generation": [1] * len(steps), "step": steps, "samples": steps}
        answer: dict[str, Any] = {"id": "digits-1", "mode": mode, "points": points | {"loss": list(losses)}}
        monkeypatch.setattr(FakeClient, "get", lambda self, path: answer)

    monkeypatch.setattr("offcut.client.controller.Client", FakeClient)
    return serve


def test_a_picture_with_the_last_and_the_lowest_loss(offcut, losses) -> None:
    losses(4.0, 2.0, 1.0, 1.5)
    code, out, _ = offcut("loss", "digits")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "digits-1: loss 1.5000 at step 40; lowest 1.0000 at step 30."
    assert lines[1].startswith("  4 │▀")
    assert lines[-1].split() == ["10", "step", "40"]
    assert max(map(len, lines)) <= 80


def test_values_for_other_programs(offcut, losses) -> None:
    losses(4.0, None)
    assert (
        offcut("loss", "digits", "--csv")[1]
        == "time_s,generation,step,samples,loss\n0.5,1,10,10,4.0\n0.5,1,20,20,nan\n"
    )
    assert json.loads(offcut("loss", "digits", "--json")[1])["points"]["loss"] == [4.0, None]
    assert offcut("loss", "digits", "--json", "--csv")[0] == 2


def test_a_loss_that_is_not_a_number(offcut, losses) -> None:
    losses(4.0, None, 2.0, None)
    out = offcut("loss", "digits")[1]
    assert "At 2 of 4 points the loss is not a finite number, first at step 20." in out
    losses(None, None)
    assert offcut("loss", "digits")[1] == "At 2 of 2 points the loss is not a finite number, first at step 10.\n"


def test_a_logarithmic_axis(offcut, losses) -> None:
    losses(100.0, 10.0, 1.0, 0.0)
    out = offcut("loss", "digits", "--log")[1]
    assert "1 points are not greater than 0" in out
    assert " 10 │" in out, "the middle of 1 and 100"


def test_no_curve_yet(offcut, losses) -> None:
    losses()
    assert offcut("loss", "digits")[1] == "No loss of digits-1 was recorded.\n"
    losses(mode="restart")
    assert offcut("loss", "digits")[1] == "No loss of digits-1 was recorded. Scripts of mode restart report none.\n"
    losses(1.0)
    assert offcut("loss", "digits")[1].endswith("look again in a few seconds.\n")


def test_a_falling_line_falls() -> None:
    lines = draw([0, 1, 2, 3], [3, 2, 1, 0], width=4, height=4, blocks=False)
    assert lines == ["*", " *", "  *", "   *"]
    assert draw([0, 3], [0, 3], width=4, height=4, blocks=False) == ["   *", "  *", " *", "*"]


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("width", [40, 60, 160])
@pytest.mark.parametrize(
    "losses", [[1.0, 1.0], [1e308, 1e-308], [1.0] * 999 + [5.0], [math.exp(-i / 50) for i in range(4096)]]
)
@pytest.mark.parametrize("log", [True, False])
def test_any_curve_fits_into_the_width(losses: list[float], width: int, blocks: bool, log: bool) -> None:
    lines = with_axes(list(range(len(losses))), losses, width=width, height=14, log=log, blocks=blocks)
    assert len(lines) == 16
    assert max(map(len, lines)) <= width
    assert blocks or "".join(lines).isascii()


def test_what_a_script_logs_by_its_name(offcut, monkeypatch, tmp_path) -> None:
    file = MetricFile(tmp_path / METRICS_FILE)
    for step, generation in ((1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (4, 2)):
        value = math.nan if step == 3 else (10 * step + generation) / 100
        file.write(MetricRecord(5.5, generation, step, 0, 8 * step, {"accuracy": value, "loss": 1.0}))
    answer = {"id": "digits-1", "mode": "session", "points": {}, "directory": str(tmp_path)}
    monkeypatch.setattr(FakeClient, "get", lambda self, path: dict(answer))
    monkeypatch.setattr("offcut.client.controller.Client", FakeClient)
    code, out, _ = offcut("loss", "digits", "--name", "accuracy")
    assert code == 0
    assert out.splitlines()[0] == "digits-1: accuracy 0.4200 at step 4; lowest 0.1100 at step 1."
    assert "At 1 of 4 points the accuracy is not a finite number, first at step 3." in out
    lines = offcut("loss", "digits", "--name", "accuracy", "--csv")[1].splitlines()
    assert lines[:2] == ["time_s,generation,step,samples,accuracy", "5.5,1,1,8,0.11"]
    told = json.loads(offcut("loss", "digits", "--name", "accuracy", "--json")[1])
    assert told["names"] == ["accuracy", "loss"]
    assert told["points"]["accuracy"] == [0.11, 0.22, None, 0.42]
    code, _, err = offcut("loss", "digits", "--name", "other")
    assert code == 2
    assert "digits-1 has logged no 'other'" in err
    assert "accuracy, loss" in err
