"""A script with accelerate, as its documentation has it; see `real_members` for how it runs."""

from __future__ import annotations

from typing import Any

import torch
from accelerate.utils import DataLoaderConfiguration
from idiom_scripts import BATCH, data, network, numbers
from real_members import Stage
from torch.utils.data import DataLoader

from offcut.torch.accelerate import Accelerator
from offcut.torch.elastic_parts.current_training import current
from offcut.torch.integrations.world_of_one import in_job


class Seen:
    """A counter that the script registers for checkpointing."""

    def __init__(self) -> None:
        self.samples = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"samples": self.samples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.samples = state["samples"]


def trains(stage: Stage, *, accumulate: int = 1, epochs: int = 5, seedable: bool = False) -> dict[str, Any]:
    """Train with accumulation, clipping, a schedule per step and an evaluation per epoch."""
    torch.manual_seed(0)
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=accumulate,
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=seedable),
    )
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
    loader, held_out = DataLoader(data(37), BATCH, shuffle=True), DataLoader(data(11), 3)
    model, optimizer, loader, held_out, scheduler = accelerator.prepare(model, optimizer, loader, held_out, scheduler)
    seen = Seen()
    accelerator.register_for_checkpointing(seen)
    losses = []
    for epoch in accelerator.epochs(epochs):
        model.train()
        for x, y in loader:
            if in_job():
                stage.at("step", current("at").training)
            with accelerator.accumulate(model):
                loss = (model(x) - y).square().mean()
                seen.samples += len(accelerator.gather_for_metrics(y))
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        model.eval()
        errors = []
        for x, y in held_out:
            with torch.no_grad():
                errors.append(accelerator.gather_for_metrics((model(x) - y).square()))
        losses.append(torch.cat(errors).mean().item())
        stage.note(epoch, losses[-1], accelerator.is_main_process)
    return {
        "parameters": numbers(accelerator.unwrap_model(model)),
        "rate": scheduler.get_last_lr()[0],
        "seen": seen.samples,
        "evaluated": losses[-1],
    }


def keeps_range(stage: Stage) -> None:
    """Has not changed its loop over the epochs."""
    accelerator = Accelerator(cpu=True)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data(10), BATCH))
    for _ in range(2):
        for _ in loader:
            pass


def reduces(stage: Stage) -> list[Any]:
    """Asks for sums and means of all members' numbers, one tensor or several."""
    accelerator = Accelerator(cpu=True)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data(8), 4))
    found = []
    for _ in accelerator.epochs(1):
        for x, y in loader:
            loss = (model(x) - y).square().mean()
            accelerator.backward(loss)
            total = accelerator.reduce({"sum": y.sum(), "count": torch.tensor(float(len(y)))})
            found += [total["sum"].item(), total["count"].item()]
            found.append(sorted(accelerator.gather(y).flatten().tolist()))
            optimizer.step()
            optimizer.zero_grad()
    return found
