"""A plain script for torchrun, which does not use offcut: `ddp_train.py --steps N --pace S`.

Every rank writes what it did to `$OFFCUT_JOB_DIR/trail`; the checkpoint lies beside it.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
parser.add_argument("--pace", type=float, default=0.0)
parser.add_argument("--pace-file", type=Path, help="how long a step waits, seconds; may change")
parser.add_argument("--every", type=int, default=10, help="steps from checkpoint to checkpoint")
arguments = parser.parse_args()

rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if world > 1:
    assert dist.is_torchelastic_launched()
    dist.init_process_group("gloo")
directory = Path(os.environ["OFFCUT_JOB_DIR"])
checkpoint = directory / "checkpoint.pt"
(directory / "trail").mkdir(exist_ok=True)
trail = (directory / "trail" / f"{time.time_ns()}-{rank}.jsonl").open("a", buffering=1)

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
x = torch.randn(480, 12)
y = x.sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1))
parallel = DistributedDataParallel(model) if world > 1 else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
step = 0
if checkpoint.exists():
    saved = torch.load(checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
trail.write(json.dumps({"launched_at": step, "world": world, "time_s": time.time(), "pid": os.getpid()}) + "\n")
while step < arguments.steps:
    time.sleep(float(arguments.pace_file.read_text()) if arguments.pace_file else arguments.pace)
    batch = torch.arange(step * 48, (step + 1) * 48)[rank::world] % len(x)
    loss = (parallel(x[batch]) - y[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    mean = loss.detach() / world
    if world > 1:
        dist.all_reduce(mean)
    optimizer.step()
    step += 1
    trail.write(json.dumps({"step": step, "loss": mean.item(), "time_s": time.time()}) + "\n")
    if rank == 0 and step % arguments.every == 0:
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, f"{checkpoint}.new"
        )
        os.replace(f"{checkpoint}.new", checkpoint)
if world > 1:
    dist.barrier()
    dist.destroy_process_group()
