"""A model's per-layer profile: a chain of layers between which the model may be cut.

Times are seconds per micro-batch, one number per measured micro-batch size; bytes are per sample, because they scale
exactly. The JSON form is what `offcut profile` writes; `pipedream_graph.parse_graph` makes the same object from a
PipeDream graph file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offcut.errors import InputError

FORMAT = "offcut-layer-profile"
FORMAT_VERSION = 1

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of the chain.

    `forward_s`, `backward_s` (all of it: input and weight gradients) and `weight_grad_s` (the part of the backward
    that only the optimizer waits for; None if it was not measured) hold one number per micro-batch size of the
    profile. `cut_bytes` cross to the next stage, per sample, if the model is cut after this layer: the layer's output
    and every tensor that skips over the cut. `stored_bytes` are kept, per sample, from the forward to the backward.
    """

    name: str
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    weight_grad_s: tuple[float, ...] | None = None
    cut_bytes: float
    stored_bytes: float
    parameter_bytes: float
    #: The names of the tensors that cross a cut after this layer, if there is more than one (skip connections).
    skips: tuple[str, ...] = ()
    #: Interquartile range over median of the forward and backward time; 0 if it was not measured.
    spread: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A profile at one micro-batch size, in seconds and bytes per micro-batch.

    Arrays have the shape (L,), one entry per layer; `cut_bytes` has the shape (L + 1,), one per cut, 0 at both ends.
    """

    micro_batch: int
    forward_s: Floats
    backward_s: Floats
    weight_grad_s: Floats
    cut_bytes: Floats
    stored_bytes: Floats
    parameter_bytes: Floats

    @property
    def layers(self) -> int:
        """The number of layers."""
        return len(self.forward_s)

    @property
    def total_s(self) -> float:
        """Seconds of forward and backward of the whole model for one micro-batch on one device."""
        return float(self.forward_s.sum() + self.backward_s.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerProfile:
    """The layer profile of a whole model.

    Args:
        model: its name.
        micro_batches: the measured micro-batch sizes in samples, increasing.
        layers: the layers in order.
        device: where they were measured.

    Raises:
        InputError: there are no layers, a number is missing, negative or not finite, or all times are 0.
    """

    model: str
    micro_batches: tuple[int, ...]
    layers: tuple[Layer, ...]
    device: str = "unknown"

    def __post_init__(self) -> None:
        _check(self)

    @property
    def weight_grad_measured(self) -> bool:
        """True if the time of the weight gradients was measured for every layer."""
        return all(layer.weight_grad_s is not None for layer in self.layers)

    def chain(self, micro_batch: int) -> Chain:
        """Return the chain of layers at one micro-batch size.

        Between measured sizes, times are interpolated; outside them, they scale in proportion from the nearest measured
        size. A weight gradient that was not measured counts as half of the backward.

        Args:
            micro_batch: samples of one micro-batch.

        Returns:
            Times and bytes per micro-batch.

        Raises:
            InputError: `micro_batch` is below 1.
        """
        if micro_batch < 1:
            raise InputError(f"micro-batch {micro_batch} is below 1.", next_step="Use at least one sample.")

        def timed(rows: list[tuple[float, ...]]) -> Floats:
            table: Floats = np.array(rows, dtype=np.float64)
            sizes = np.array(self.micro_batches, dtype=float)
            if micro_batch <= sizes[0]:
                return np.asarray(table[:, 0] * (micro_batch / sizes[0]), dtype=np.float64)
            if micro_batch >= sizes[-1]:
                return np.asarray(table[:, -1] * (micro_batch / sizes[-1]), dtype=np.float64)
            return np.array([np.interp(micro_batch, sizes, row) for row in table])

        forward = timed([layer.forward_s for layer in self.layers])
        backward = timed([layer.backward_s for layer in self.layers])
        weight = timed([layer.weight_grad_s or tuple(0.5 * b for b in layer.backward_s) for layer in self.layers])
        cuts = np.zeros(len(self.layers) + 1)
        cuts[1:-1] = [layer.cut_bytes * micro_batch for layer in self.layers[:-1]]
        return Chain(
            micro_batch=micro_batch,
            forward_s=forward,
            backward_s=backward,
            weight_grad_s=np.minimum(weight, backward),
            cut_bytes=cuts,
            stored_bytes=np.array([layer.stored_bytes * micro_batch for layer in self.layers]),
            parameter_bytes=np.array([layer.parameter_bytes for layer in self.layers]),
        )


def _check(profile: LayerProfile) -> None:
    """Check a profile's sizes and numbers."""
    if not profile.layers:
        raise InputError(f"profile of {profile.model}: no layers.", next_step="A profile has at least one layer.")
    sizes = profile.micro_batches
    if not sizes or sizes[0] < 1 or any(b <= a for a, b in pairwise(sizes)):
        raise InputError(
            f"profile of {profile.model}: micro-batch sizes {list(sizes)}.",
            next_step="List at least one size, each at least 1, in increasing order.",
        )
    for i, layer in enumerate(profile.layers):
        where = f"profile of {profile.model}, layer {i} ({layer.name})"
        for field in ("forward_s", "backward_s", "weight_grad_s"):
            times = getattr(layer, field)
            if times is None:
                continue
            if len(times) != len(sizes):
                raise InputError(
                    f"{where}: {field} has {len(times)} numbers.", next_step=f"Give {len(sizes)}, one per micro-batch."
                )
            for value in times:
                if not math.isfinite(value) or value < 0:
                    raise InputError(f"{where}: {field} is {value}.", next_step="Times are finite and not negative.")
        for field in ("cut_bytes", "stored_bytes", "parameter_bytes"):
            value = getattr(layer, field)
            if not math.isfinite(value) or value < 0:
                raise InputError(f"{where}: {field} is {value}.", next_step="Bytes are finite and not negative.")
    if sum(sum(layer.forward_s) + sum(layer.backward_s) for layer in profile.layers) <= 0:
        raise InputError(f"profile of {profile.model}: all times are 0.", next_step="Measure the layers again.")


def to_json(profile: LayerProfile) -> dict[str, Any]:
    """Return a profile as a JSON document; `from_json` reads it back to an equal object.

    Args:
        profile: the layer profile.
    """
    rows: list[dict[str, Any]] = []
    for layer in profile.layers:
        row: dict[str, Any] = {
            "name": layer.name,
            "forward_s": list(layer.forward_s),
            "backward_s": list(layer.backward_s),
            "cut_bytes_per_sample": layer.cut_bytes,
            "stored_bytes_per_sample": layer.stored_bytes,
            "parameter_bytes": layer.parameter_bytes,
        }
        if layer.weight_grad_s is not None:
            row["weight_grad_s"] = list(layer.weight_grad_s)
        if layer.skips:
            row["skips"] = list(layer.skips)
        if layer.spread:
            row["spread"] = layer.spread
        rows.append(row)
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "model": profile.model,
        "device": profile.device,
        "micro_batches": list(profile.micro_batches),
        "layers": rows,
    }


def from_json(document: Any, *, source: str = "profile") -> LayerProfile:
    """Read a profile from its JSON document.

    Args:
        document: the parsed JSON.
        source: what messages call the document.

    Returns:
        The layer profile.

    Raises:
        InputError: the document is not a layer profile; it names the field at fault.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{source}: not a layer profile.", next_step=f'Its "format" must be "{FORMAT}".')
    if document.get("version") != FORMAT_VERSION:
        raise InputError(
            f"{source}: format version {document.get('version')}.",
            next_step=f"This program reads version {FORMAT_VERSION}; run `offcut profile` again.",
        )
    rows = document.get("layers")
    if not isinstance(rows, list):
        raise InputError(f'{source}: "layers" is not a list.', next_step="Run `offcut profile` again.")
    layers = []
    for i, row in enumerate(rows):
        where = f"{source}, layer {i}"
        if not isinstance(row, dict):
            raise InputError(f"{where}: not an object.", next_step="Run `offcut profile` again.")
        layers.append(
            Layer(
                name=str(row.get("name", f"layer {i}")),
                forward_s=_numbers(row, "forward_s", where),
                backward_s=_numbers(row, "backward_s", where),
                weight_grad_s=_numbers(row, "weight_grad_s", where) if "weight_grad_s" in row else None,
                cut_bytes=_number(row, "cut_bytes_per_sample", where),
                stored_bytes=_number(row, "stored_bytes_per_sample", where),
                parameter_bytes=_number(row, "parameter_bytes", where),
                skips=tuple(map(str, row.get("skips", ()))),
                spread=float(row.get("spread", 0.0)),
            )
        )
    sizes = _numbers(document, "micro_batches", source)
    if any(size != int(size) for size in sizes):
        raise InputError(f'{source}: "micro_batches" {list(sizes)}.', next_step="Give whole numbers.")
    return LayerProfile(
        model=str(document.get("model", source)),
        device=str(document.get("device", "unknown")),
        micro_batches=tuple(int(size) for size in sizes),
        layers=tuple(layers),
    )


def _number(row: dict[str, Any], field: str, where: str) -> float:
    """Read a number."""
    value = row.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f'{where}: "{field}" is {value!r}.', next_step="It must be a number.")
    return float(value)


def _numbers(row: dict[str, Any], field: str, where: str) -> tuple[float, ...]:
    """Read a list of numbers."""
    values = row.get(field)
    if not isinstance(values, list) or any(isinstance(v, bool) or not isinstance(v, int | float) for v in values):
        raise InputError(f'{where}: "{field}" is {values!r}.', next_step="It must be a list of numbers.")
    return tuple(float(v) for v in values)
