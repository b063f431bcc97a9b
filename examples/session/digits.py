"""A plain training loop: a network, a learning-rate schedule, an evaluation per epoch, the model saved at the end.

    python examples/session/digits.py                        # alone, on a laptop
    offcut submit examples/session/digits.toml               # on the idle nodes that there are

Start from this one. Only the lines with `session` are about offcut.
"""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from offcut.torch import Session

parser = argparse.ArgumentParser(description="Learn to read handwritten digits.")
parser.add_argument("--epochs", type=int, default=60)
parser.add_argument("--batch", type=int, default=128, help="samples per update, for any number of members")
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--out", type=Path, default=Path("digits.pt"), help="file for the trained model")
arguments = parser.parse_args()

# Every member builds the same model: the seed is part of the script.
torch.manual_seed(0)
digits = load_digits()
images = torch.Tensor(digits.images).unsqueeze(1) / 16.0
labels = torch.tensor(digits.target)
training, held_out = TensorDataset(images[:1500], labels[:1500]), (images[1500:], labels[1500:])

# GroupNorm, not BatchNorm: a batch's statistics would depend on how many members share it.
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.GroupNorm(4, 16),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1, stride=2),
    nn.GroupNorm(4, 32),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(32 * 4 * 4, 10),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=arguments.epochs)
loss_fn = nn.CrossEntropyLoss()


def accuracy() -> float:
    """Return the share of the held-out digits that the model classifies correctly."""
    model.eval()
    with torch.no_grad():
        right = (model(held_out[0]).argmax(1) == held_out[1]).float().mean()
    model.train()
    return float(right)


with Session(model, optimizer, training, global_batch=arguments.batch) as session:
    session.register(scheduler)
    for epoch in session.epochs(arguments.epochs):
        for batch in epoch:
            session.step(loss_fn(session.model(batch.x), batch.y))
        scheduler.step()
        # Count epochs with what is registered: a counter of the script's own starts at 0 in a worker that joins late.
        if session.once() and scheduler.last_epoch % 10 == 0:
            print(f"step {session.steps}, {session.world} members: loss {session.loss:.4f}, read {accuracy():.1%}")

if session.once():
    print(f"loss {session.loss:.4f} after {session.steps} steps; {accuracy():.1%} of the held-out digits read right")
    torch.save(model.state_dict(), arguments.out)
