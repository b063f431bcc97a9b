"""A trial of population-based training. Before each step it writes down which data and state it has.

Its first pass over the data is short. The second one is slow until the file `go` is there, so that a trial which has
reported the first one can be halted before its end.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

import offcut.torch
from offcut.torch import Session

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
lr = parser.parse_args().lr
directory = Path(os.environ["OFFCUT_JOB_DIR"])
go = directory.parent / "go"

torch.manual_seed(0)
x = torch.randn(240, 6)
y = x @ torch.randn(6, 1)
model = nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.5)

with Session(model, optimizer, TensorDataset(x, y), global_batch=4) as session:
    for epoch in session.epochs(2):
        for batch in epoch:
            while epoch.number == 1 and not go.exists():
                time.sleep(0.3)
                break
            moments = [each["momentum_buffer"].tolist() for each in optimizer.state.values()]
            line = [epoch.number, batch.y.tolist(), [p.tolist() for p in model.parameters()], moments]
            with (directory / "seen.jsonl").open("a") as file:
                file.write(json.dumps({"lr": optimizer.param_groups[0]["lr"], "state": line}) + "\n")
            session.step(nn.functional.mse_loss(session.model(batch.x), batch.y))
        with torch.no_grad():
            offcut.torch.report_objective(float(nn.functional.mse_loss(model(x), y)), budget=epoch.number + 1)
