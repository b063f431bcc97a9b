"""A small training for tests in a loop of its own, which it leaves by `break`; see `train.py`."""

import argparse
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import offcut.torch

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--pace-file", type=Path, help="how long a turn of the loop takes at least, seconds; may change")
arguments = parser.parse_args()


def keep_pace():
    began_s = time.monotonic()
    while arguments.pace_file and (left_s := began_s + float(arguments.pace_file.read_text()) - time.monotonic()) > 0:
        time.sleep(min(left_s, 0.02))


torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
x = torch.randn(500, 12)
dataset = TensorDataset(x, (x.sum(1, keepdim=True) + torch.sin(3 * x[:, :1])).detach())
model = torch.nn.Sequential(torch.nn.Linear(12, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 40, 0.8)
loader = DataLoader(dataset, 48, shuffle=True)
model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader, state=[scheduler])
for epoch in offcut.torch.epochs(10_000):
    for inputs, targets in loader:
        keep_pace()
        loss = (model(inputs) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        offcut.torch.report_loss(loss)
        optimizer.step()
        scheduler.step()
    error = offcut.torch.evaluate(DataLoader(dataset, 100), lambda x, y: (model(x) - y).square())
    if epoch + 1 == arguments.epochs:
        break
if offcut.torch.once():
    print(f"mean squared error {error:.4f}")
