"""One trial of a search over the hyper-parameters of a small convolutional network: see digits.toml.

    python examples/sweep/digits.py --lr=0.01                # alone, on a laptop
    offcut sweep examples/sweep/digits.toml --follow         # thirty trials on the idle nodes that there are

The objective is the error on digits that are not trained on, after each pass over the data.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import offcut.torch
from offcut.torch import Session

pixels, target = load_digits(return_X_y=True)
x, y = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16.0, torch.tensor(target)
train, test = slice(0, 1400), slice(1400, None)


def trial(params):
    """Train with these parameters. A sweep calls it, in a fork of this script for each trial."""
    torch.manual_seed(0)
    channels = params["channels"]
    model = nn.Sequential(nn.Conv2d(1, channels, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36 * channels, 10))
    if params["optimizer"] == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=params["lr"], momentum=params["momentum"])
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=params["lr"])
    # The schedule is laid out for a whole trial: a trial that halts at a rung goes on with it later.
    epochs = int(offcut.torch.max_budget() or params["epochs"])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)

    with Session(model, optimizer, TensorDataset(x[train], y[train]), global_batch=64) as session:
        session.register(schedule)
        for epoch in session.epochs(epochs):
            for batch in epoch:
                session.step(nn.functional.cross_entropy(session.model(batch.x), batch.y))
            schedule.step()
            with torch.no_grad():
                error = (model(x[test]).argmax(1) != y[test]).float().mean().item()
            offcut.torch.report_objective(error, budget=epoch.number + 1)
    if session.once():
        print(f"error {error:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Learn digits.")
    parser.add_argument("--epochs", type=int, default=27)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
    parser.add_argument("--channels", type=int, default=8)
    trial(vars(parser.parse_args()))
