"""The training of slurm_delay.py: no end, a small model, steps that sleep as if an accelerator computed."""

import time

import torch
from torch.utils.data import TensorDataset

from offcut.torch import Session

STEP_S = 0.05

torch.manual_seed(0)
x = torch.randn(4096, 16)
model = torch.nn.Linear(16, 1)
with Session(
    model, torch.optim.SGD(model.parameters(), lr=1e-3), TensorDataset(x, x[:, :1]), global_batch=64
) as session:
    for epoch in session.epochs(1_000_000):
        for batch in epoch:
            time.sleep(STEP_S)
            session.step(((session.model(batch.x) - batch.y) ** 2).mean())
