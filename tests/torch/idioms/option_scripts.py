"""One training script with every option of a session that changes what a step computes; see `real_members`."""

from __future__ import annotations

import math
from typing import Any

import torch
from idiom_scripts import BATCH, data, loss_of, network, numbers
from real_members import Stage
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import TensorDataset

from offcut.torch import Session


def trains(
    stage: Stage,
    *,
    epochs: int = 5,
    rate: float = 0.05,
    scaled: bool = False,
    averaged: bool = False,
    outlier: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """`averaged` keeps a moving average of the weights; `outlier` makes one sample's loss infinite.

    The result has the learning rates and the gradients' norms as the optimizer's `step` has seen them, and how many
    samples the largest part had.
    """
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    rates, norms, largest = [], [], 0

    def note(*_: Any) -> None:
        rates.append(optimizer.param_groups[0]["lr"])
        norms.append(math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters())))

    optimizer.register_step_pre_hook(note)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3) if scaled else None
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)) if averaged else None
    samples = data()
    if outlier:
        x, y = samples.tensors
        y[3] = math.inf
        samples = TensorDataset(x, y)
    if "batch_per_rank" not in options:
        options = {"global_batch": BATCH, **options}
    with Session(model, optimizer, samples, scaler=scaler, **options) as session:
        if average is not None:
            session.register(average)
        for epoch in session.epochs(epochs):
            for batch in epoch:
                stage.at("step", session)
                largest = max(largest, len(batch.x))
                session.step(loss_of(session, batch))
                if average is not None:
                    # After a step that does not count too: the session undoes it.
                    average.update_parameters(model)
                stage.note(session.steps, session.once())
    found = {"parameters": numbers(model), "steps": session.steps, "rates": rates, "norms": norms, "largest": largest}
    if average is not None:
        found["average"] = [*numbers(average.module), float(average.n_averaged)]
    if scaler is not None:
        found["scale"] = scaler.get_scale()
    return found
