"""A training that runs slower when it is told to: argument 1 names a file that says who is slow.

Empty: nobody; `*`: every member; the name of a node: that one.
"""

import os
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from offcut.torch import Session

who, node = Path(sys.argv[1]), os.environ["OFFCUT_WORKER"].partition("#")[0]
x = torch.randn(100_000, 4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
with Session(model, optimizer, TensorDataset(x, x.sum(1, keepdim=True)), global_batch=24) as session:
    for epoch in session.epochs(1000):
        for batch in epoch:
            time.sleep(0.06 if who.read_text() in ("*", node) else 0.02)
            session.step(((session.model(batch.x) - batch.y) ** 2).mean())
