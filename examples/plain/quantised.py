"""A network with weights and activations of one bit reads handwritten digits.

Forward, weights and activations are -1 or 1. Backward, the gradient passes straight through where the value is between
-1 and 1, and is 0 elsewhere. The optimizer updates weights with all their bits, which stay between -1 and 1.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description="Learn to read handwritten digits with one bit per weight.")
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--batch", type=int, default=100, help="samples per update")
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--width", type=int, default=256)
arguments = parser.parse_args()


class Sign(torch.autograd.Function):
    """-1 or 1, with the gradient of the identity between -1 and 1 (the straight-through estimator)."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= 1)


class BinaryLinear(nn.Linear):
    """A linear layer that multiplies by the signs of its weights."""

    def forward(self, x):
        return functional.linear(x, Sign.apply(self.weight), self.bias)


class Binary(nn.Module):
    """Replaces activations by their signs."""

    def forward(self, x):
        return Sign.apply(x)


torch.manual_seed(0)
digits = load_digits()
images, labels = torch.Tensor(digits.data) / 8 - 1, torch.tensor(digits.target)
order = torch.Generator().manual_seed(1)
loader = DataLoader(TensorDataset(images[:1500], labels[:1500]), arguments.batch, shuffle=True, generator=order)
test_loader = DataLoader(TensorDataset(images[1500:], labels[1500:]), 50)

model = nn.Sequential(
    BinaryLinear(64, arguments.width, bias=False),
    nn.BatchNorm1d(arguments.width),
    Binary(),
    BinaryLinear(arguments.width, arguments.width, bias=False),
    nn.BatchNorm1d(arguments.width),
    Binary(),
    BinaryLinear(arguments.width, 10, bias=False),
    nn.BatchNorm1d(10),
)
binary = [layer.weight for layer in model if isinstance(layer, BinaryLinear)]
for weight in binary:
    nn.init.uniform_(weight, -0.1, 0.1)
for layer in model:
    if isinstance(layer, nn.BatchNorm1d):
        nn.init.uniform_(layer.bias, -0.1, 0.1)  # sums of -1 and 1 are often the mean; the sign of 0 means nothing
bits = sum(weight.numel() for weight in binary)
print(f"{bits // 8:,} bytes of weights, {4 * bits:,} in float32")
optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.3)
loss_fn = nn.CrossEntropyLoss()


def correct(x, y):
    """Return which of the digits the model reads right."""
    return model(x).argmax(1) == y


def evaluate():
    """Return the share of the held-out digits that the model reads right."""
    model.eval()
    with torch.no_grad():
        accuracy = torch.cat([correct(x, y) for x, y in test_loader]).double().mean().item()
    model.train()
    return accuracy


for epoch in range(arguments.epochs):
    for x, y in loader:
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for weight in binary:
                weight.clamp_(-1, 1)
    scheduler.step()
    accuracy = evaluate()
    print(f"epoch {epoch}: loss {loss.item():.6f}, {accuracy:.1%} of the held-out digits read right")
