"""A small pipeline job for tests: six layers, exactly repeatable, with a schedule. `--pace` slows every step down."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

from offcut.torch.pipeline import PipelineSession

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--pace", type=float, default=0.0)
parser.add_argument("--samples", type=int, default=500)
parser.add_argument("--slow-at", type=int, default=-1, help="this step takes longer than a node's grace")
parser.add_argument("--plans")
arguments = parser.parse_args()

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
x = torch.randn(arguments.samples, 12)
y = (x.sum(1, keepdim=True) + torch.sin(3 * x[:, :1])).detach()
model = nn.Sequential(
    *(nn.Sequential(nn.Linear(12, 12), nn.Tanh()) for _ in range(4)), nn.BatchNorm1d(12), nn.Linear(12, 1)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 40, 0.8)

with PipelineSession(
    model, optimizer, TensorDataset(x, y), loss_fn=nn.functional.mse_loss, plans=arguments.plans, clip_norm=1.0
) as session:
    session.register(schedule)
    for epoch in session.epochs(arguments.epochs):
        for _ in epoch:
            time.sleep(3.0 if session.steps == arguments.slow_at else arguments.pace)
            session.step()
            schedule.step()

if session.once():
    size = sum(p.numel() for p in session.whole_model().parameters())
    print(f"trained for {session.steps} steps; {size} parameters")
