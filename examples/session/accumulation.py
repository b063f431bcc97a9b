"""Gradient accumulation: updates of 512 samples on an accelerator that holds 64 at once.

    python examples/session/accumulation.py --micro-batch 64

`session.backward` adds a part's gradient, `session.step` reduces and updates once for all of them. A part's loss is
weighted by its part of the member's share, so that the update is the same however the share is cut: with 8 samples at
once or 512, on one member or ten.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from offcut.torch import Session

parser = argparse.ArgumentParser(description="Learn digits with big batches in little memory.")
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--batch", type=int, default=512, help="samples per update, of all members together")
parser.add_argument("--micro-batch", type=int, default=64, help="samples at once on one member")
arguments = parser.parse_args()

torch.manual_seed(0)
pixels, target = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(pixels, dtype=torch.float32) / 16.0, torch.tensor(target))
model = nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loss_fn = nn.CrossEntropyLoss()

with Session(model, optimizer, data, global_batch=arguments.batch, clip_norm=1.0) as session:
    for epoch in session.epochs(arguments.epochs):
        for batch in epoch:
            # How long the share is depends on the number of members: cut it into parts of a fixed size, not into a
            # fixed number.
            for x, y in zip(batch.x.split(arguments.micro_batch), batch.y.split(arguments.micro_batch), strict=True):
                session.backward(loss_fn(session.model(x), y) * len(y) / len(batch.y))
            session.step()

if session.once():
    print(f"loss {session.loss:.6f} after {session.steps} steps")
