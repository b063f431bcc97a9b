"""Learn to read handwritten digits: a plain loop, a schedule per step, an evaluation per epoch."""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description="Learn to read handwritten digits.")
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--batch", type=int, default=100, help="samples per update")
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--out", type=Path, default=Path("digits.pt"), help="file for the trained model")
arguments = parser.parse_args()

torch.manual_seed(0)
digits = load_digits()
images = torch.Tensor(digits.images).unsqueeze(1) / 16.0
labels = torch.tensor(digits.target)
training, held_out = TensorDataset(images[:1500], labels[:1500]), TensorDataset(images[1500:], labels[1500:])
order = torch.Generator().manual_seed(1)
loader = DataLoader(training, arguments.batch, shuffle=True, generator=order)
test_loader = DataLoader(held_out, 50)

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
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=arguments.epochs * len(loader))
loss_fn = nn.CrossEntropyLoss()


def correct(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return which of the digits the model reads right."""
    return model(x).argmax(1) == y


def evaluate() -> float:
    """Return the share of the held-out digits that the model reads right."""
    model.eval()
    with torch.no_grad():
        accuracy = torch.cat([correct(x, y) for x, y in test_loader]).double().mean().item()
    model.train()
    return accuracy


accuracy = 0.0
for _epoch in range(arguments.epochs):
    for x, y in loader:
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    accuracy = evaluate()

print(f"{accuracy:.1%} of the held-out digits read right")
torch.save(model.state_dict(), arguments.out)
