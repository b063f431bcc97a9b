"""Hashes what a script trains: trainings with the same fingerprint scale alike.

The hash covers the modules' types and names, the parameters' shapes and types (and so their number), the batch policy,
the shapes of one sample's tensors, and the kind of device. It does not cover weights, learning rates and the data.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import torch


def fingerprint(model: torch.nn.Module, policy: object, data: Any) -> str:
    """Return the fingerprint of a training.

    Args:
        model: the model.
        policy: the batch policy, or plans; its repr says how the work is divided.
        data: a collated batch, whose first dimension is left out.

    Returns:
        16 hexadecimal digits.
    """
    told = [f"{name}:{type(module).__name__}" for name, module in model.named_modules()]
    told += [f"{name}:{tuple(p.shape)}:{p.dtype}:{p.requires_grad}" for name, p in model.named_parameters()]
    told.append(repr(policy))
    told += [f"input:{shape}" for shape in _shapes(data)]
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    told.append(torch.cuda.get_device_name(device) if device.type == "cuda" else device.type)
    return blake2b("\n".join(told).encode(), digest_size=8).hexdigest()


def _shapes(data: Any) -> list[str]:
    """Return the shapes and types of the tensors in a batch, in a fixed order."""
    if isinstance(data, torch.Tensor):
        return [f"{tuple(data.shape[1:])}:{data.dtype}"]
    if isinstance(data, dict):
        return [shape for key in sorted(data, key=str) for shape in _shapes(data[key])]
    if isinstance(data, (list, tuple)):
        return [shape for item in data for shape in _shapes(item)]
    return [type(data).__name__]
