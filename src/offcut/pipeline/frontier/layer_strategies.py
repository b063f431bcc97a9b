"""The ways in which n devices together run a layer, and the frontier of all of them over a whole model.

Every device gets one micro-batch per round; a step has as many rounds as one of n replicas has micro-batches.

* as is: every device computes the whole layer for all n micro-batches, and nothing is sent. The way on one device.
* replicate: every device computes the whole layer for its own micro-batch; gradients are all-reduced once per step.
* tensor split: every device has 1 / n of the weights and works on all n micro-batches. What is sent, in one dimension
  or, where n is a square or a cube, in two or three, is in `offcut.pipeline.tensor_parallel`.
* recompute, with any of these but "as is" on several devices: a run of layers keeps only its input, and its forward is
  done again before its backward. Of the runs one at a time has its activations.

Where two layers want a tensor in different places it is moved: gathered, or exchanged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from offcut.pipeline.frontier.chain import LayerOption, chain_frontier, largest_gap
from offcut.pipeline.frontier.points import Frontier, single, union_of_products
from offcut.pipeline.hardware import Hardware, Link, all_reduce_s
from offcut.pipeline.layer_profile import Chain, Floats
from offcut.pipeline.tensor_parallel import Product, TensorSplit, tensor_splits

#: Where a layer's input and output lie: whole on every device; each device's own samples; blocks in two and in three
#: dimensions.
WHOLE, SAMPLES, BLOCKS_2D, BLOCKS_3D = range(4)
#: Strategies whose runs may be recomputed, on several devices. Runs split in one dimension have whole inputs, which
#: needs more room while they are recomputed, so the frontier without them is computed, too.
_RECOMPUTED = (
    ("replicate", "tensor split 2-D", "tensor split 3-D"),
    ("replicate", "tensor split 1-D", "tensor split 2-D", "tensor split 3-D"),
)
_MOST_LIMITS = 5
_LAYOUT_OF_SPLIT = {"1-D": WHOLE, "2-D": BLOCKS_2D, "3-D": BLOCKS_3D}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """n devices as equal as the slowest of them: the chain at their speed, their slowest link, rounds per step."""

    chain: Chain
    devices: int
    link: Link
    rounds: int
    state_factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersFrontier:
    """The frontier of the strategies of all layers, and how far it may be from exact (`chain.largest_gap`).

    `choices` of a point are pairs (strategy, number of layers), in the order of the layers.
    """

    frontier: Frontier
    gap: float


def layers_frontier(chain: Chain, *, devices: int, micro_batches: int, hardware: Hardware) -> LayersFrontier:
    """Compute the frontier of step time against memory per device, over the strategies of all layers.

    Runs of layers that are recomputed are tried with several limits of the activations of a run; for each limit the
    layers are divided into runs from the first layer on. The latency of the all-reduce is counted once per step.

    Args:
        chain: the layers, at the speed of the slowest device.
        devices: the number of devices, from the first.
        micro_batches: micro-batches of one step.
        hardware: gives the slowest link among them, and the bytes kept per byte of parameters.

    Returns:
        The frontier, which is exact, or within its gap of exact, for these runs.
    """
    group = _Group(
        chain=chain,
        devices=devices,
        link=hardware.slowest_link(0, devices),
        rounds=-(-micro_batches // devices),
        state_factor=hardware.state_factor,
    )
    moves = _relayout_s(group)
    ways = [_ways(group, k) for k in range(chain.layers)]
    options = [[way.option for way in layer] for layer in ways]
    once = all_reduce_s(0.0, devices, group.link)
    plain = chain_frontier(options, moves)
    parts = [(plain, 0.0, once)]
    for limit in _run_limits(chain):
        runs = _runs(chain, limit)
        for strategies in _RECOMPUTED if devices > 1 else (("as is",),):
            again = [[way for way in layer if way.strategy in strategies] for layer in ways]
            room = max(
                sum(way.stored_bytes for way in run) for k in runs for run in zip(*again[k : runs[k]], strict=True)
            )
            recomputed = [
                [*layer, *(_recomputed(again[k : runs[k]]) if k in runs else ())] for k, layer in enumerate(options)
            ]
            parts.append((chain_frontier(recomputed, moves), room, once))
    frontier = union_of_products((part.frontier, single(room, once)) for part, room, once in parts)
    return LayersFrontier(frontier=frontier, gap=largest_gap(frontier, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A way to run one layer: bytes of its state, input and activations, seconds, and seconds of its forward alone."""

    strategy: str
    layout: int
    state_bytes: float
    input_bytes: float
    stored_bytes: float
    time_s: float
    forward_s: float

    @property
    def option(self) -> LayerOption:
        """The way without recomputation."""
        memory_bytes = self.state_bytes + self.stored_bytes
        return LayerOption(name=(self.strategy, 1), layout=self.layout, memory_bytes=memory_bytes, time_s=self.time_s)


def _ways(group: _Group, k: int) -> list[_Way]:
    """Return the ways to run one layer, without recomputation."""
    chain, n, rounds = group.chain, group.devices, group.rounds
    forward_s, compute_s = float(chain.forward_s[k]), float(chain.forward_s[k] + chain.backward_s[k])
    stored, given = float(chain.stored_bytes[k]), float(chain.cut_bytes[k])
    parameters = float(chain.parameter_bytes[k])
    state = group.state_factor * parameters

    found = [
        _Way(
            strategy="as is", layout=WHOLE, state_bytes=state, input_bytes=n * given, stored_bytes=n * stored,
            time_s=rounds * n * compute_s, forward_s=rounds * n * forward_s,
        )
    ]  # fmt: skip
    if n == 1:
        return found
    reduce_s = 2 * (n - 1) * parameters / n / group.link.bandwidth_bytes_s
    found.append(
        _Way(
            strategy="replicate", layout=SAMPLES, state_bytes=state, input_bytes=given, stored_bytes=stored,
            time_s=rounds * compute_s + reduce_s, forward_s=rounds * forward_s,
        )
    )  # fmt: skip
    product = Product(x=n * given, w=parameters, y=n * float(chain.cut_bytes[k + 1]))
    for split in tensor_splits([product], n):
        sent_s, forward_sent_s = _sent_s(split, group.link)
        others = 0.0 if split.divides_activations else (n - 1) * given
        found.append(
            _Way(
                strategy=f"tensor split {split.name}", layout=_LAYOUT_OF_SPLIT[split.name], state_bytes=state / n,
                input_bytes=given + others, stored_bytes=stored + others,
                time_s=rounds * (compute_s + sent_s), forward_s=rounds * (forward_s + forward_sent_s),
            )
        )  # fmt: skip
    return found


def _run_limits(chain: Chain) -> list[float]:
    """Return limits of the activations of a run of layers, from those of the largest layer to those of all."""
    largest, all_layers = float(chain.stored_bytes.max()), float(chain.stored_bytes.sum())
    count = 1 + min(_MOST_LIMITS - 1, math.ceil(math.log2(max(1.0, all_layers / max(largest, 1e-300)))))
    return np.geomspace(largest, all_layers, count).tolist() if largest else []


def _runs(chain: Chain, limit_bytes: float) -> dict[int, int]:
    """Divide the layers into runs whose activations are within a limit; return the end of each run by its start."""
    runs: dict[int, int] = {}
    start = 0
    while start < chain.layers:
        sums = np.cumsum(chain.stored_bytes[start:])
        runs[start] = start + max(1, int(np.searchsorted(sums, limit_bytes, side="right")))
        start = runs[start]
    return runs


def _recomputed(ways: Sequence[Sequence[_Way]]) -> list[LayerOption]:
    """Return the options in which all layers of a run have one strategy and are recomputed.

    Args:
        ways: of each layer of the run, in the same order of strategies.
    """
    return [
        LayerOption(
            name=("recompute" if run[0].strategy == "as is" else f"{run[0].strategy}, recompute", len(run)),
            layout=run[0].layout,
            memory_bytes=run[0].input_bytes + sum(way.state_bytes for way in run),
            time_s=sum(way.time_s + way.forward_s for way in run),
            layers=len(run),
        )
        for run in zip(*ways, strict=True)
    ]


def _sent_s(split: TensorSplit, link: Link) -> tuple[float, float]:
    """Return the seconds of what a split sends, in both directions and in the forward; elements are bytes here."""
    latency_s = split.received.messages * link.latency_s
    forward_s = split.received.forward / link.bandwidth_bytes_s + latency_s
    return forward_s + split.received.backward / link.bandwidth_bytes_s + latency_s, forward_s


def _relayout_s(group: _Group) -> Floats:
    """Return the seconds between layouts behind each layer but the last, shape (L - 1, 4, 4)."""
    n, link = group.devices, group.link
    crossing = group.chain.cut_bytes[1:-1]
    moves = np.zeros((len(crossing), 4, 4))
    if n == 1:
        return moves
    some = crossing > 0
    # Whole on one side: gathered in the forward or, for the gradient, in the backward; the other way is free.
    gather = (n - 1) * (crossing / link.bandwidth_bytes_s + link.latency_s * some)
    # Divided on both sides, but differently: everyone sends to everyone, in the forward and in the backward.
    exchange = 2 * (n - 1) * (crossing / n / link.bandwidth_bytes_s + link.latency_s * some)
    for a in range(4):
        for b in range(4):
            if a != b:
                moves[:, a, b] = group.rounds * (gather if WHOLE in (a, b) else exchange)
    return moves


def strategy_counts(choices: Iterable[Hashable]) -> str:
    """Return how many layers have each strategy, such as `3 x replicate; 2 x recompute`.

    Args:
        choices: pairs (strategy, number of layers).
    """
    counts: Counter[str] = Counter()
    for strategy, layers in cast(Iterable[tuple[str, int]], choices):
        counts[strategy] += layers
    return "; ".join(f"{count} x {name}" for name, count in counts.most_common())
