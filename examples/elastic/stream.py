"""Forecast the next value of eight sensors, whose readings come as streams and cannot be indexed."""

import argparse
import csv
import io
import itertools
import math
import random

import torch
from torch import nn
from torch.utils.data import DataLoader

import offcut.torch

parser = argparse.ArgumentParser(description="Forecast the next value of sensors.")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--rows", type=int, default=200, help="readings of a sensor")
parser.add_argument("--batch", type=int, default=64, help="samples per update")
parser.add_argument("--lr", type=float, default=3e-3)
arguments = parser.parse_args()


def recorded(sensor):
    """Return what a sensor has recorded, as the rows of a CSV file: a time and a value."""
    noise = random.Random(sensor)
    values = (math.sin(t / (5 + sensor)) + 0.5 * math.sin(t / 3) + noise.gauss(0, 0.05) for t in itertools.count())
    return "\n".join(f"{t},{value}" for t, value in zip(range(arguments.rows), values, strict=False))


def windows(sensor):
    """Yield sixteen values of a sensor, and the one that follows them."""
    values = []
    for row in csv.reader(io.StringIO(recorded(sensor))):
        values = [*values[-16:], float(row[1])]
        if len(values) == 17:
            yield torch.tensor(values[:16]), torch.tensor(values[16:])


class Readings(offcut.torch.ShardedStream):
    """The windows of all sensors, which take turns."""

    shards = 8

    def open(self, shard, position):
        return itertools.islice(windows(shard), position, None)


torch.manual_seed(0)
loader = DataLoader(Readings(), arguments.batch)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr)
model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader)

for epoch in offcut.torch.epochs(arguments.epochs):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        offcut.torch.report_loss(loss)
        optimizer.step()
    if offcut.torch.once():
        print(f"epoch {epoch}: loss {offcut.torch.last_loss():.6f}")
