"""A training with everything unusual at once: `two_optimizers.py --epochs N [--pace S]`.

Two optimizers with an `update` each step, one of them with a state other than tensors; samples fetched by processes.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

from offcut.torch import Session


class Fading(torch.optim.Optimizer):
    """Steps get smaller with a count, and every other one is halved: plain numbers, kept per parameter."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                state["count"] = state.get("count", 0) + 1
                state["half"] = not state.get("half", True)
                rate = group["lr"] / (1 + state["count"] / 20) * (0.5 if state["half"] else 1.0)
                parameter.sub_(rate * parameter.grad)


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--pace", type=float, default=0.0)
arguments = parser.parse_args()

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
x = torch.randn(500, 8)
data = TensorDataset(x, x[:, :1].sin())
model = nn.ModuleDict({"first": nn.Linear(8, 16), "second": nn.Sequential(nn.Tanh(), nn.Linear(16, 1))})
fading = Fading(model["first"].parameters(), lr=0.2)
momentum = torch.optim.SGD(model["second"].parameters(), lr=0.05, momentum=0.9)
loss_fn = nn.MSELoss()

with Session(model, [fading, momentum], data, global_batch=48, loader_workers=2) as session:
    for epoch in session.epochs(arguments.epochs):
        for batch in epoch:
            time.sleep(arguments.pace)
            hidden = session.model["first"](batch.x)
            session.update(hidden.square().mean() * 0.01 + loss_fn(model["second"](hidden), batch.y), fading)
            session.step(loss_fn(model["second"](model["first"](batch.x)), batch.y))
