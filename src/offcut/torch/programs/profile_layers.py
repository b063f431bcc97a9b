"""Measures a model layer by layer on this machine's device.

A program of its own: `python -m offcut.torch.programs.profile_layers`.

Per layer and micro-batch size: the forward, the whole backward, and the part of it that only makes weight gradients
(the whole less the input gradient alone). Times are medians after warm-up runs; `spread` is the interquartile range
over the median of forward plus backward. Stored bytes are what autograd saves in the forward, without parameters.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from offcut.errors import InputError, OffcutError
from offcut.pipeline.layer_profile import Layer, LayerProfile, to_json
from offcut.torch.pipeline.layer_chain import LayerChain, as_tuple, layer_chain, load_function, load_model

Tensors = tuple[torch.Tensor, ...]


def profile_model(
    model: nn.Module,
    inputs: Callable[[int], Tensors],
    micro_batches: list[int],
    *,
    name: str,
    device: torch.device,
    repeats: int = 7,
    warm_ups: int = 2,
) -> LayerProfile:
    """Profile `model`; `inputs(n)` makes n samples. Raises InputError if the model cannot run on them."""
    model = model.to(device).train()
    chain = layer_chain(model)
    rows: list[list[dict[str, float]]] = [[] for _ in range(len(chain))]
    for size in micro_batches:
        values = tuple(x.to(device) for x in inputs(size))
        for i in range(len(chain)):
            measured, values = _measure(chain, i, values, device=device, repeats=repeats, warm_ups=warm_ups, size=size)
            rows[i].append(measured)
    layers = []
    for i, sizes in enumerate(rows):
        largest = sizes[-1]
        layers.append(
            Layer(
                name=chain.names[i],
                forward_s=tuple(row["forward_s"] for row in sizes),
                backward_s=tuple(row["backward_s"] for row in sizes),
                weight_grad_s=tuple(row["weight_grad_s"] for row in sizes),
                cut_bytes=largest["cut_bytes"] if i < len(chain) - 1 else 0.0,
                stored_bytes=largest["stored_bytes"],
                parameter_bytes=largest["parameter_bytes"],
                skips=chain.carried[i] if len(chain.carried[i]) > 1 and i < len(chain) - 1 else (),
                spread=max(row["spread"] for row in sizes),
            )
        )
    return LayerProfile(model=name, micro_batches=tuple(micro_batches), layers=tuple(layers), device=_describe(device))


def _measure(
    chain: LayerChain,
    index: int,
    given: Tensors,
    *,
    device: torch.device,
    repeats: int,
    warm_ups: int,
    size: int,
) -> tuple[dict[str, float], Tensors]:
    module = chain.stage(index, index + 1).to(device)
    inputs = tuple(x.detach().requires_grad_(x.is_floating_point() and index > 0) for x in given)
    wanted = [x for x in inputs if x.requires_grad]
    own = {p.data_ptr() for p in module.parameters()}
    stored: dict[int, int] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        if x.data_ptr() not in own:
            storage = x.untyped_storage()
            stored[storage.data_ptr()] = storage.nbytes()
        return x

    try:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            made = as_tuple(module(*inputs))
    except OffcutError:
        raise
    except Exception as error:
        raise InputError(
            f"layer {index} ({chain.names[index]}) fails on {size} samples ({type(error).__name__}: {error}).",
            next_step="Check the example inputs.",
        ) from None
    # The input is stored once, by the layer that made it.
    held = sum(stored.values()) - sum(stored.get(p, 0) for p in {x.untyped_storage().data_ptr() for x in inputs})
    forwards, backwards, input_only = [], [], []
    for run in range(warm_ups + repeats):
        out, forward_s = _timed(lambda: as_tuple(module(*inputs)), device)
        heads = [x for x in out if x.requires_grad]
        ones = [torch.ones_like(x) for x in heads]
        alone_s = 0.0
        if wanted and heads:
            input_grad = partial(torch.autograd.grad, heads, wanted, ones, retain_graph=True, allow_unused=True)
            _, alone_s = _timed(input_grad, device)
        whole_s = 0.0
        if heads:
            _, whole_s = _timed(partial(torch.autograd.backward, heads, ones), device)
        for p in [*module.parameters(), *inputs]:
            p.grad = None
        if run >= warm_ups:
            forwards.append(forward_s)
            backwards.append(whole_s)
            input_only.append(alone_s)
    backward = statistics.median(backwards)
    both = [f + b for f, b in zip(forwards, backwards, strict=True)]
    quarters = statistics.quantiles(both, n=4) if len(both) > 1 else [both[0]] * 3
    return {
        "forward_s": statistics.median(forwards),
        "backward_s": backward,
        "weight_grad_s": max(0.0, backward - min(backward, statistics.median(input_only))),
        "cut_bytes": sum(x.numel() * x.element_size() for x in made) / size,
        "stored_bytes": max(0, held) / size,
        "parameter_bytes": float(sum(p.numel() * p.element_size() for p in module.parameters())),
        "spread": (quarters[2] - quarters[0]) / statistics.median(both) if statistics.median(both) else 0.0,
    }, tuple(x.detach() for x in made)


def _timed(work: Callable[[], Any], device: torch.device) -> tuple[Any, float]:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    result = work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return result, time.perf_counter() - start


def _describe(device: torch.device) -> str:
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{device.type}, {torch.get_num_threads()} threads"


def example_inputs(where: str, given: str | None) -> Callable[[int], Tensors]:
    """Return a function that makes n samples.

    `given` is like `3x224x224` or `128:int64:50000` (dimensions, type, values below). Without it, the function
    `example_inputs(n)` in the model's own file is used.
    """
    if given is None:
        path = Path(where.rpartition(":")[0])
        try:
            function = load_function(path, "example_inputs")
        except InputError:
            raise InputError(
                f"{path} has no function example_inputs(n), so the model's input is not known.",
                next_step="Add one that returns n samples, or give --input, such as 3x224x224.",
            ) from None
        return lambda n: as_tuple(function(n))
    parts = given.split(":")
    try:
        shape = [int(d) for d in parts[0].split("x")] if parts[0] else []
        dtype = getattr(torch, parts[1]) if len(parts) > 1 else torch.float32
        high = int(parts[2]) if len(parts) > 2 else 2
        assert isinstance(dtype, torch.dtype)
    except (ValueError, AttributeError, AssertionError):
        raise InputError(
            f"--input '{given}' cannot be read.", next_step="Write 3x224x224, or 128:int64:50000 for whole numbers."
        ) from None
    if dtype.is_floating_point:
        return lambda n: (torch.randn(n, *shape, dtype=dtype),)
    return lambda n: (torch.randint(0, high, (n, *shape), dtype=dtype),)


def main(arguments: list[str] | None = None) -> int:
    """Print the profile as JSON; on bad input one sentence on standard error and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m offcut.torch.programs.profile_layers")
    parser.add_argument("model")
    parser.add_argument("--micro-batches", default="1")
    parser.add_argument("--input")
    parser.add_argument("--device")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    try:
        sizes = sorted({int(part) for part in options.micro_batches.split(",")})
        if sizes[0] < 1 or options.repeats < 1:
            raise ValueError
    except ValueError:
        sys.stderr.write(
            f"micro-batches '{options.micro_batches}', repeats {options.repeats}: give whole numbers from 1 on.\n"
        )
        return 2
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    try:
        model = load_model(options.model)
        make = example_inputs(options.model, options.input)
        name = Path(options.model.rpartition(":")[0]).stem
        profile = profile_model(model, make, sizes, name=name, device=device, repeats=options.repeats)
    except OffcutError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(to_json(profile)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
