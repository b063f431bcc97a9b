"""The trials of benchmarks/sweep_live.py: a convolutional network learns digits, alike under offcut and under Ray Tune.

A unit of budget is one pass over the data. It is padded with sleep to `unit_s` seconds on one node, and to that divided
by the number of nodes on several: the machine of the benchmark has fewer cores than the cluster has nodes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import offcut.torch
from offcut.torch import Session

EPOCHS = 27
BATCH = 64
torch.set_num_threads(1)
pixels, target = load_digits(return_X_y=True)
x, y = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16.0, torch.tensor(target)
TRAIN, TEST = slice(0, 1400), slice(1400, None)


def build(parameters: dict[str, Any]) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    """Return the model, its optimizer and the learning-rate schedule of a whole trial."""
    torch.manual_seed(0)
    channels = parameters["channels"]
    model = nn.Sequential(nn.Conv2d(1, channels, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36 * channels, 10))
    optimizer: torch.optim.Optimizer
    if parameters["optimizer"] == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=parameters["lr"], momentum=parameters["momentum"])
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=parameters["lr"])
    return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)


def error_of(model: nn.Module) -> float:
    """Return the share of the held-out digits that are read wrongly."""
    with torch.no_grad():
        return (model(x[TEST]).argmax(1) != y[TEST]).float().mean().item()


def note(place: str | Path, trial: int, budget: int, error: float | None) -> None:
    """Append what a trial has reported to the file that the benchmark reads; budget 0: it begins."""
    line = json.dumps({"time_s": time.time(), "trial": trial, "budget": budget, "error": error})
    with Path(place).open("a") as file:
        file.write(line + "\n")


def trial(params: dict[str, Any]) -> None:
    """Train one configuration as a trial of offcut's."""
    place, number = os.environ["SWEEP_LIVE_DIR"], params["configuration"]
    settings = json.loads(Path(place, "settings.json").read_text())
    model, optimizer, schedule = build(settings["configurations"][number])
    with Session(model, optimizer, TensorDataset(x[TRAIN], y[TRAIN]), global_batch=BATCH) as session:
        session.register(schedule)
        for epoch in session.epochs(EPOCHS):
            began_s = time.monotonic()
            if epoch.number == 0 and session.once():
                note(Path(place, "reports"), number, 0, None)
            for batch in epoch:
                session.step(nn.functional.cross_entropy(session.model(batch.x), batch.y))
            schedule.step()
            time.sleep(max(0.0, settings["unit_s"] / session.world - (time.monotonic() - began_s)))
            error = error_of(model)
            if session.once():
                note(Path(place, "reports"), number, epoch.number + 1, error)
            offcut.torch.report_objective(error, budget=epoch.number + 1)


def train_alone(
    parameters: dict[str, Any],
    unit_s: float,
    saved: dict[str, Any] | None,
    report: Callable[[int, float, dict[str, Any]], None],
) -> None:
    """Train one configuration in this process, from a checkpoint if there is one.

    Args:
        parameters: the configuration.
        unit_s: the length of a pass over the data, in seconds.
        saved: the last checkpoint.
        report: called after each pass with the number of passes, the error and a checkpoint.
    """
    model, optimizer, schedule = build(parameters)
    done = 0
    if saved is not None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["schedule"])
        done = saved["epoch"]
    for epoch in range(done, EPOCHS):
        began_s = time.monotonic()
        order = torch.randperm(1400, generator=torch.Generator().manual_seed(epoch))
        for rows in order.split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[TRAIN][rows]), y[TRAIN][rows]).backward()
            optimizer.step()
        schedule.step()
        time.sleep(max(0.0, unit_s - (time.monotonic() - began_s)))
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "epoch": epoch + 1,
        }
        report(epoch + 1, error_of(model), state)
