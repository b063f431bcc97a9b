"""A regression with a learning-rate schedule on scikit-learn's diabetes data."""

import argparse

import torch
from sklearn.datasets import load_diabetes
from torch import nn
from torch.utils.data import TensorDataset

from offcut.torch import Session

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=400)
parser.add_argument("--lr", type=float, default=1e-2)
arguments = parser.parse_args()

# In double precision, so that the loss can be compared with an undisturbed run's after thousands of steps: members add
# their gradients in another order than one process does, and training magnifies the last bit.
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
features, target = load_diabetes(return_X_y=True, scaled=False)
x = torch.tensor(features)
y = torch.tensor(target).unsqueeze(1)
data = TensorDataset((x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std())

model = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=arguments.epochs * 7)

with Session(model, optimizer, data, global_batch=64) as session:
    session.register(schedule)
    for epoch in session.epochs(arguments.epochs):
        for batch in epoch:
            session.step(nn.functional.mse_loss(session.model(batch.x), batch.y))
            schedule.step()
        if session.once() and session.steps % 350 < 7:
            print(f"step {session.steps}, {session.world} members: loss {session.loss:.4f}")
