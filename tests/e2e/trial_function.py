"""A script that defines `trial(params)`. It writes down when it is loaded, and what each trial finds."""

import json
import os
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

import offcut.torch
from offcut.torch import Session

DIRECTORY = Path(os.environ["OFFCUT_TEST_DIRECTORY"])
seen = []


def write(file: str, **record) -> None:
    with (DIRECTORY / file).open("a") as lines:
        lines.write(json.dumps(record) + "\n")


write("loads", pid=os.getpid(), parameters=os.environ.get("OFFCUT_PARAMETERS"))


def trial(params):
    seen.append(params["n"])
    job, worker = os.environ["OFFCUT_JOB"], os.environ["OFFCUT_WORKER"]
    write("trials", job=job, worker=worker, parent=os.getppid(), seen=seen)
    if params["n"] == 3:
        os.abort()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    with Session(model, torch.optim.SGD(model.parameters(), lr=0.1), data, global_batch=8) as session:
        for epoch in session.epochs(int(offcut.torch.max_budget())):
            for batch in epoch:
                session.step(torch.nn.functional.mse_loss(session.model(batch.x), batch.y))
            offcut.torch.report_objective(params["n"], budget=epoch.number + 1)


if __name__ == "__main__":
    raise AssertionError("a sweep calls trial(params)")
