"""A tabular job: rows of a table with a rare class, standardised, early stopping on held-out rows.

    python examples/session/tabular.py

Three things that tables bring and that have to be the same on every member: the split and the scaling come from the
data and a seed, never from unseeded random numbers; a rare class is weighted in a way that is still a mean over
samples; and the decision to stop is made by all members from one number that all of them have.
"""

import argparse

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn
from torch.utils.data import TensorDataset

from offcut.torch import Session

parser = argparse.ArgumentParser(description="Tell malignant from benign by thirty measurements.")
parser.add_argument("--epochs", type=int, default=200, help="at most")
parser.add_argument("--patience", type=int, default=10, help="stop after this many epochs without a better loss")
arguments = parser.parse_args()

table = load_breast_cancer()
x = torch.tensor(table.data, dtype=torch.float32)
y = torch.tensor(1 - table.target, dtype=torch.float32).unsqueeze(1)  # 1: malignant
order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
training, held_out = order[:450], order[450:]
mean, spread = x[training].mean(0), x[training].std(0)
x = (x - mean) / spread

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
# `pos_weight` keeps the loss a mean over samples. `CrossEntropyLoss(weight=...)` divides by the sum of the weights in
# the share, which depends on who shares the batch: use reduction="none" there, multiply, and take the mean.
malignant = y[training].mean()
loss_fn = nn.BCEWithLogitsLoss(pos_weight=(1 - malignant) / malignant)


class Patience:
    """The decision to stop; it is registered, so that joiners and restarts know it too."""

    def __init__(self) -> None:
        self.best = float("inf")
        self.waited = 0

    def state_dict(self) -> dict:
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state: dict) -> None:
        self.best, self.waited = state["best"], state["waited"]

    def over(self, loss: float) -> bool:
        self.waited = 0 if loss < self.best else self.waited + 1
        self.best = min(self.best, loss)
        return self.waited >= arguments.patience


def held_out_loss() -> float:
    """The same on every member, for at the end of an epoch all have the same model.

    Nodes of different types may differ in the last bit: decide by `session.loss` there, which comes out of the reduce.
    """
    with torch.no_grad():
        return float(loss_fn(model(x[held_out]), y[held_out]))


with Session(model, optimizer, TensorDataset(x[training], y[training]), global_batch=64) as session:
    patience = Patience()
    session.register(patience)
    for epoch in session.epochs(arguments.epochs):
        for batch in epoch:
            session.step(loss_fn(session.model(batch.x), batch.y))
        if patience.over(held_out_loss()):
            break

if session.once():
    with torch.no_grad():
        found = (model(x[held_out]) > 0).float()
    caught = float((found * y[held_out]).sum() / y[held_out].sum())
    right = float((found == y[held_out]).float().mean())
    print(f"held-out loss {patience.best:.4f} at best, stopped after {session.steps} steps")
    print(f"{right:.1%} of {len(held_out)} rows right, {caught:.1%} of the malignant ones found")
