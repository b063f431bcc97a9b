"""The training under torchrun: every started process resumes from the last checkpoint."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))
from resize_peers import training

EVERY_STEPS = 50

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
wrapped = torch.nn.parallel.DistributedDataParallel(training.model())
optimizer = training.optimizer(wrapped)
loss_fn, (x, y), step = torch.nn.CrossEntropyLoss(), training.data().tensors, 0
checkpoint = Path(sys.argv[1])
if checkpoint.exists():
    saved = torch.load(checkpoint, weights_only=True)
    wrapped.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
notes = training.Notes()
while True:
    mine = training.share(step, rank, world)
    optimizer.zero_grad()
    loss = loss_fn(wrapped(x[mine]), y[mine])
    training.work()
    loss.backward()
    optimizer.step()
    step += 1
    notes.done(step, world)
    if rank == 0 and step % EVERY_STEPS == 0:
        whole = checkpoint.with_suffix(f".{os.getpid()}")
        torch.save({"model": wrapped.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, whole)
        whole.replace(checkpoint)
