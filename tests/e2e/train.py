"""A small training for tests: seconds long, exactly repeatable, with a schedule. `--pace` slows every step down."""

import argparse
import os
import time
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from offcut.torch import Session

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--pace", type=float, default=0.0)
parser.add_argument("--pace-file", type=Path, help="how long a turn of the loop takes at least, seconds; may change")
parser.add_argument("--samples", type=int, default=500)
parser.add_argument("--raise-at", type=int, default=-1)
parser.add_argument("--ballast-mib", type=int, default=0, help="what the state weighs more, in a buffer")
parser.add_argument("--bad-node", help="where it cannot even start")
arguments = parser.parse_args()

if arguments.bad_node and os.environ.get("OFFCUT_WORKER", "").startswith(arguments.bad_node):
    raise OSError(f"there is no such device on {arguments.bad_node}")


def keep_pace():
    if arguments.pace_file is None:
        time.sleep(arguments.pace)
        return
    began_s = time.monotonic()
    while (left_s := began_s + float(arguments.pace_file.read_text()) - time.monotonic()) > 0:
        time.sleep(min(left_s, 0.02))


torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
x = torch.randn(arguments.samples, 12)
y = (x.sum(1, keepdim=True) + torch.sin(3 * x[:, :1])).detach()
model = torch.nn.Sequential(torch.nn.Linear(12, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
model[-1].register_buffer("ballast", torch.zeros(arguments.ballast_mib << 20, dtype=torch.uint8))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 40, 0.8)

with Session(model, optimizer, TensorDataset(x, y), global_batch=48) as session:
    session.register(schedule)
    for epoch in session.epochs(arguments.epochs):
        for batch in epoch:
            keep_pace()
            if session.steps == arguments.raise_at:
                raise ValueError(f"step {session.steps} does not please me")
            session.step(((session.model(batch.x) - batch.y) ** 2).mean())
            schedule.step()
    if session.once():
        print(f"trained for {session.steps} steps")
