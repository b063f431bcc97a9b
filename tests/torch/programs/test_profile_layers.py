"""`offcut profile` from the outside: a real measurement that `offcut plan` reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from offcut.pipeline.layer_profile import from_json
from offcut.pipeline.profile_file import read_profile
from offcut.torch.programs.profile_layers import main

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(64, 256), nn.Linear(256, 64), nn.Linear(64, 8)

    def forward(self, x):
        return self.c(self.b(torch.relu(self.a(x))) + x)

def build():
    return Net()

def example_inputs(n):
    return torch.randn(n, 64)
"""


def offcut(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "offcut", *arguments], capture_output=True, text=True, check=False)


def test_a_measured_profile(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    out = tmp_path / "net.json"
    done = offcut("profile", f"{tmp_path}/net.py:build", "--micro-batch", "4,16", "-o", str(out), "--json")
    assert done.returncode == 0, done.stderr
    profile = read_profile(out)
    assert from_json(json.loads(done.stdout)) == profile
    assert (profile.model, profile.micro_batches) == ("net", (4, 16))
    assert [layer.name for layer in profile.layers] == ["a: Linear", "b: Linear", "c: Linear"]
    assert profile.weight_grad_measured
    a, b, c = profile.layers
    assert [layer.parameter_bytes for layer in (a, b, c)] == [4 * (64 + 1) * 256, 4 * (256 + 1) * 64, 4 * (64 + 1) * 8]
    # After a: relu's 256 values and the 64 of x that skip over b; after b: 64.
    assert (a.cut_bytes, b.cut_bytes, c.cut_bytes) == (4 * (256 + 64), 4 * 64, 0)
    assert len(a.skips) == 2
    assert all(min(layer.forward_s) > 0 and min(layer.backward_s) > 0 for layer in profile.layers)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{}/net.py:none",), "no function 'none'"),
        (("{}/none.py:build",), "no such file"),
        (("{}/net.py:build", "--micro-batches", "0"), "give whole numbers from 1 on"),
        (("{}/net.py:build", "--input", "7"), "layer 0 (a: Linear) fails on 1 samples"),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    assert main([a.format(tmp_path) for a in arguments]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert not said.out


def test_the_command_reports_the_error(tmp_path: Path) -> None:
    done = offcut("profile", f"{tmp_path}/none.py:build")
    assert done.returncode == 2
    assert "no such file" in done.stderr
    assert "Traceback" not in done.stderr
