"""The trial of `trial_start.py`: a few steps on the digits; its first line writes down when it began."""

import json
import os
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

import offcut.torch
from offcut.torch import Session

pixels, target = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(pixels[:64], dtype=torch.float32) / 16.0, torch.tensor(target[:64]))


def trial(params):
    began = {"job": os.environ["OFFCUT_JOB"], "worker": os.environ["OFFCUT_WORKER"], "time_s": time.time()}
    with Path(os.environ["TRIAL_STARTS"]).open("a") as file:
        file.write(json.dumps(began) + "\n")
    model = torch.nn.Linear(64, 10)
    with Session(model, torch.optim.SGD(model.parameters(), lr=params["lr"]), data, global_batch=16) as session:
        for epoch in session.epochs(1):
            for batch in epoch:
                loss = session.step(torch.nn.functional.cross_entropy(session.model(batch.x), batch.y))
            offcut.torch.report_objective(float(loss or 0.0), budget=1)


if __name__ == "__main__":
    trial({"lr": 0.1})
