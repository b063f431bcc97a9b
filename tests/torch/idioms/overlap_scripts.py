"""Other scripts, with gradients in many buckets, which are summed while the backward pass runs."""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch
from idiom_scripts import BATCH, data, network, numbers
from real_members import Stage
from torch import nn
from torch.utils.data import DataLoader

import offcut.torch
from offcut.torch.elastic_parts import current_training
from offcut.torch.step import gradient_buckets
from offcut.torch.testing.fake_accelerator import FakeAcceleratorTransport, FakePlan
from offcut.torch.transport import abort, choice
from rendezvous import LIMIT_S

#: Two or three numbers: each parameter of the small networks has a bucket of its own.
SMALL_BYTES = 24


def member() -> Any:
    return current_training.current("at").training


def in_buckets(
    stage: Stage, inner: str, *, whole: bool = False, fake: dict[str, Any] | None = None, **options: Any
) -> Any:
    """Run `module.function` with small buckets, unless the gradients are to be `whole`.

    With `fake`, gradients go over a transport like an accelerator's, for which these are the arguments of `FakePlan`.
    If they have `who`, the plan is that of the first generation of the member of that name alone.
    """
    if not whole:
        gradient_buckets.BUCKET_BYTES = SMALL_BYTES
    if fake is not None:
        who = fake.pop("who", stage.name)
        plans = [FakePlan(**fake)] if stage.name.startswith(who) else []
        # No other member may end because it stood still for a while.
        abort.LIMIT_S = 0.5 if plans and plans[0].abort_hangs else LIMIT_S
        choice.TRANSPORTS["fake"] = lambda wake: FakeAcceleratorTransport(wake, plans.pop() if plans else FakePlan())
        os.environ[choice.ENV_DATA_TRANSPORT] = "fake"
    module, _, name = inner.partition(".")
    return getattr(importlib.import_module(module), name)(stage, **options)


def leaves_a_batch(stage: Stage) -> dict[str, Any]:
    """Leaves the loop between backward() and step(), where members have started different numbers of buckets."""
    model: Any = network()
    unused = nn.Linear(6, 6)
    model.append(unused)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader: Any = DataLoader(data(), BATCH, shuffle=True)
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader)
    for _ in offcut.torch.epochs(4):
        for i, (x, y) in enumerate(loader):
            stage.at("step", member())
            optimizer.zero_grad()
            predicted = model[:-1](x)
            if (i + member().rank) % 2 == 0:
                # One member's gradient of a layer, in another backward pass.
                (unused(x.new_zeros(1, 6)).sum() * 0.0).backward()
            (predicted - y).square().mean().backward()
            if i == 3:
                optimizer.zero_grad()
                break
            optimizer.step()
    return {"parameters": numbers(model), "steps": member().steps}
