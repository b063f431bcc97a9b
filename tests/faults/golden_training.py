"""Four small real trainings on scikit-learn's digits: `golden_training.py mlp|cnn|transformer|autocast --epochs N`."""

import argparse
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from offcut.torch import Session

parser = argparse.ArgumentParser()
parser.add_argument("training", choices=("mlp", "cnn", "transformer", "autocast"))
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--pace-file", type=Path, help="how long a turn of the loop takes at least, seconds; may change")
parser.add_argument("--device", default="cpu")
parser.add_argument("--double", action="store_true", help="in float64, which tells rounding from real differences")
arguments = parser.parse_args()


def keep_pace():
    began_s = time.monotonic()
    while arguments.pace_file and (left_s := began_s + float(arguments.pace_file.read_text()) - time.monotonic()) > 0:
        time.sleep(min(left_s, 0.02))


torch.set_default_dtype(torch.float64 if arguments.double else torch.float32)
torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.get_default_dtype(), device=arguments.device) / 16.0
data = TensorDataset(images, torch.tensor(digits.target, device=arguments.device))
steps = arguments.epochs * -(-len(data) // 128)


class Rows(nn.Module):
    """A transformer over the eight rows of an image."""

    def __init__(self):
        super().__init__()
        self.enter, self.place = nn.Linear(8, 32), nn.Parameter(torch.zeros(8, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.encode, self.leave = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 10)

    def forward(self, x):
        return self.leave(self.encode(self.enter(x) + self.place).mean(1))


def dense():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


options, schedule = {}, None
if arguments.training in ("mlp", "autocast"):
    model = dense()
elif arguments.training == "cnn":
    model = nn.Sequential(
        *(nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)),
    )
else:
    model = Rows()
model.to(arguments.device)
if arguments.training in ("cnn", "transformer"):
    options["virtual_shards"] = 4
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
else:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
if arguments.training == "transformer":
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
loss_fn = nn.CrossEntropyLoss()

with Session(model, optimizer, data, global_batch=128, **options) as session:
    if schedule is not None:
        session.register(schedule)
    for epoch in session.epochs(arguments.epochs):
        for batch in epoch:
            keep_pace()
            with torch.autocast(arguments.device, torch.bfloat16, enabled=arguments.training == "autocast"):
                loss = loss_fn(session.model(batch.x), batch.y)
            session.step(loss)
            if schedule is not None:
                schedule.step()
    if session.once():
        print(f"final loss {session.loss:.6f}")
