"""Read PipeDream's graph files and fold their branches into a chain of cut points.

One line per node, `nodeK -- description -- forward_compute_time=ms, backward_compute_time=ms, activation_size=bytes,
parameter_size=bytes` (an activation size may be a list `[a; b]`), one per edge, `<tab>nodeA -- nodeB`
(github.com/msr-fiddle/pipedream, `graph/graph.py`). The file says neither the batch size nor the hardware.
"""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass

from offcut.errors import InputError
from offcut.pipeline.layer_profile import Layer, LayerProfile

#: Batch sizes of the published profiles, inferred from the bytes of their first convolution; 64 for GNMT.
_KNOWN_BATCHES = {"vgg16": 128, "resnet50": 128, "alexnet": 256, "gnmt": 64, "resnet18": 256, "resnet101": 64}

_NODE = re.compile(
    r"node(\S+) -- (.*) -- forward_compute_time=([^,]+), backward_compute_time=([^,]+), "
    r"activation_size=([^,]+), parameter_size=(\S+)"
)
_EDGE = re.compile(r"\s+node(\S+) -- node(\S+)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    key: str
    description: str
    forward_s: float
    backward_s: float
    activation_bytes: float
    parameter_bytes: float
    line: int

    @property
    def is_input(self) -> bool:
        # Its "forward time" is data loading, its tensor comes from the data set wherever it is needed.
        return self.description.startswith("Input")

    @property
    def is_view(self) -> bool:
        """Picks from, or stands for, a tensor that is stored already."""
        return self.description.startswith("__getitem__")

    @property
    def is_free(self) -> bool:
        return self.forward_s == 0 and self.backward_s == 0 and self.parameter_bytes == 0


def parse_graph(text: str, *, source: str, model: str, micro_batch: int | None = None) -> LayerProfile:
    """Read a profile from the text of a PipeDream graph file.

    Nodes are put in a topological order (smallest id first). The model may be cut between any two of them; the tensors
    that are still needed cross the cut, skip connections included (they are carried through the stages between). Nodes
    that cost nothing join the layer before them. Input nodes are dropped.

    Args:
        text: the file's content.
        source: what messages call the file.
        model: the model's name.
        micro_batch: the batch size (samples) at which it was measured; None: that of the published profile of `model`.

    Returns:
        The layer profile, with one micro-batch size.

    Raises:
        InputError: a line cannot be read, a number is negative, a node is unknown, the graph has a cycle, or the batch
            size is not known.
    """
    nodes, edges = _parse(text, source)
    if micro_batch is None:
        micro_batch = _KNOWN_BATCHES.get(model)
        if micro_batch is None:
            raise InputError(
                f"{source}: the graph file does not say the batch size it was measured at.",
                next_step="Give it with --micro-batch.",
            )
    order = _topological(nodes, edges, source)
    position = {key: i for i, key in enumerate(order)}
    last_use = {key: max((position[t] for t in edges.get(key, ())), default=position[key]) for key in order}

    layers: list[Layer] = []
    group: list[_Node] = []
    work = [nodes[key] for key in order if not nodes[key].is_input]
    for k, node in enumerate(work):
        group.append(node)
        following = work[k + 1] if k + 1 < len(work) else None
        if following is not None and following.is_free:
            continue
        here = position[node.key]
        crossing = [] if following is None else [n for n in work[: k + 1] if last_use[n.key] > here]
        # A view and the tensor it picks from are one tensor: count the views, not the tuple behind them.
        sources = {key for n in crossing if n.is_view for key in order if n.key in edges.get(key, ())}
        crossing = [n for n in crossing if n.key not in sources and n.activation_bytes]
        layers.append(
            Layer(
                name=f"{group[0].key}: {group[0].description[:40]}",
                forward_s=(sum(n.forward_s for n in group),),
                backward_s=(sum(n.backward_s for n in group),),
                cut_bytes=sum(n.activation_bytes for n in crossing) / micro_batch,
                stored_bytes=sum(n.activation_bytes for n in group if not n.is_view) / micro_batch,
                parameter_bytes=sum(n.parameter_bytes for n in group),
                skips=tuple(f"node{n.key}" for n in crossing) if len(crossing) > 1 else (),
            )
        )
        group = []
    return LayerProfile(
        model=model, micro_batches=(micro_batch,), layers=tuple(layers), device="PipeDream's published GPU"
    )


def _parse(text: str, source: str) -> tuple[dict[str, _Node], dict[str, list[str]]]:
    nodes: dict[str, _Node] = {}
    edges: dict[str, list[str]] = {}
    arrows: list[tuple[int, str, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        if match := _EDGE.fullmatch(line):
            arrows.append((number, match[1], match[2]))
            continue
        match = _NODE.fullmatch(line.strip())
        if not match:
            raise InputError(
                f"{source}, line {number}: neither a node nor an edge of a PipeDream graph.",
                next_step="Give a PipeDream graph file or the JSON that `offcut profile` writes.",
            )
        nodes[match[1]] = _node(match, source, number)
    for number, a, b in arrows:
        for key in (a, b):
            if key not in nodes:
                raise InputError(
                    f"{source}, line {number}: edge to node{key}, which is not defined.", next_step="Fix the file."
                )
        edges.setdefault(a, []).append(b)
    if not nodes:
        raise InputError(f"{source}: no nodes.", next_step="Give a PipeDream graph file.")
    return nodes, edges


def _node(match: re.Match[str], source: str, line: int) -> _Node:
    def number(text: str, field: str) -> float:
        try:
            values = [float(part) for part in text.strip("[] ").split(";") if part.strip()]
        except ValueError:
            raise InputError(f"{source}, line {line}: {field} is '{text}'.", next_step="It must be a number.") from None
        if any(not 0 <= value < float("inf") for value in values):
            raise InputError(
                f"{source}, line {line}: {field} is {text}.", next_step="It must be finite and not negative."
            )
        return sum(values)

    is_input = match[2].startswith("Input")
    return _Node(
        key=match[1],
        description=match[2],
        forward_s=0.0 if is_input else number(match[3], "forward_compute_time") / 1e3,
        backward_s=0.0 if is_input else number(match[4], "backward_compute_time") / 1e3,
        activation_bytes=number(match[5], "activation_size"),
        parameter_bytes=number(match[6], "parameter_size"),
        line=line,
    )


def _topological(nodes: dict[str, _Node], edges: dict[str, list[str]], source: str) -> list[str]:
    """Return Kahn's order; among the nodes that are ready the one with the smallest id goes first."""

    def rank(key: str) -> tuple[int, str]:
        return (int(key), key) if key.isdigit() else (10**9, key)

    waiting = dict.fromkeys(nodes, 0)
    for targets in edges.values():
        for target in targets:
            waiting[target] += 1
    ready = [rank(key) for key, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order: list[str] = []
    while ready:
        _, key = heapq.heappop(ready)
        order.append(key)
        for target in edges.get(key, ()):
            waiting[target] -= 1
            if waiting[target] == 0:
                heapq.heappush(ready, rank(target))
    if len(order) < len(nodes):
        stuck = sorted((key for key, count in waiting.items() if count > 0), key=rank)
        lines = ", ".join(f"node{key} (line {nodes[key].line})" for key in stuck[:5])
        raise InputError(f"{source}: the graph has a cycle through or before {lines}.", next_step="Remove an edge.")
    return order
