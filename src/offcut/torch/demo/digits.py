"""A small convolutional network with GroupNorm learns scikit-learn's handwritten digits."""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from offcut.torch import Session

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=300)
parser.add_argument("--lr", type=float, default=3e-4)
arguments = parser.parse_args()

# In double precision, so that the loss can be compared with an undisturbed run's after thousands of steps: members add
# their gradients in another order than one process does, and training magnifies the last bit.
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images).unsqueeze(1) / 16.0
data = TensorDataset(images, torch.tensor(digits.target))

model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1),
    nn.GroupNorm(8, 32),
    nn.ReLU(),
    nn.Conv2d(32, 32, 3, padding=1, stride=2),
    nn.GroupNorm(8, 32),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(32 * 4 * 4, 10),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
loss_fn = nn.CrossEntropyLoss()

with Session(model, optimizer, data, global_batch=256) as session:
    for epoch in session.epochs(arguments.epochs):
        for batch in epoch:
            session.step(loss_fn(session.model(batch.x), batch.y))
        if session.once() and session.steps % 200 < 8:
            print(f"step {session.steps}, {session.world} members: loss {session.loss:.4f}")
    if session.once():
        with torch.no_grad():
            right = (model(images).argmax(1) == data.tensors[1]).float().mean()
        print(f"{100 * right:.1f} % of the digits are read right")
