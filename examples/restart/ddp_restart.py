"""A script for torchrun, without a line about offcut: it saves at intervals and on SIGTERM, and resumes.

Run it alone, under torchrun, or as a job of mode `restart`:

    python ddp_restart.py
    torchrun --nproc-per-node 2 ddp_restart.py
    offcut submit ddp_restart.toml
"""

import argparse
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
parser.add_argument("--checkpoint-every", type=int, default=25, help="steps")
arguments = parser.parse_args()

rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if world > 1:
    dist.init_process_group("gloo")

told_to_go = []
signal.signal(signal.SIGTERM, lambda *_: told_to_go.append(True))

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32) / 16.0
labels = torch.tensor(digits.target)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
parallel = DistributedDataParallel(model) if world > 1 else model

global_batch = 120
steps_per_epoch = len(images) // global_batch
step = 0
if arguments.checkpoint.exists():
    saved = torch.load(arguments.checkpoint, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
    if rank == 0:
        print(f"resumed at step {step} with {world} ranks")


def save():
    """Write the checkpoint, whole or not at all: the file is replaced in one step."""
    if rank == 0:
        unborn = arguments.checkpoint.with_suffix(".new")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, unborn)
        unborn.replace(arguments.checkpoint)


loss = torch.tensor(float("nan"))
while step < arguments.epochs * steps_per_epoch:
    epoch, at = divmod(step, steps_per_epoch)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
    mine = order[at * global_batch : (at + 1) * global_batch][rank::world]
    loss = nn.functional.cross_entropy(parallel(images[mine]), labels[mine])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    # All ranks must stop at the same step: if one has received SIGTERM, all stop.
    going = torch.tensor(len(told_to_go))
    if world > 1:
        dist.all_reduce(going)
    if going or step % arguments.checkpoint_every == 0:
        save()
    if going:
        raise SystemExit(0)

save()
if rank == 0:
    right = (model(images).argmax(1) == labels).float().mean()
    print(f"loss {loss.item():.4f} after {step} steps; {100 * right:.1f}% of the digits right")
if world > 1:
    dist.destroy_process_group()
