"""The training under offcut, as a user would write it."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from offcut.torch import Session
from resize_peers import training

network = training.model()
loss_fn = torch.nn.CrossEntropyLoss()
notes = training.Notes()
with Session(network, training.optimizer(network), training.data(), global_batch=training.BATCH) as session:
    notes.ready()
    for epoch in session.epochs(10**9):
        for batch in epoch:
            loss = loss_fn(session.model(batch.x), batch.y)
            training.work()
            if session.step(loss):
                notes.done(session.steps, session.world)
