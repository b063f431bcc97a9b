"""Our own runtime: any program, also those in which a stage lives on several ranks.

Each rank walks its lane of the program. A result is sent as soon as it is computed, without waiting; receives are
posted a few operations ahead, so transfers go on while the rank computes. Every message has a tag of its own (what,
stage, micro-batch, tensor), so the order in which messages arrive does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

from offcut.errors import OffcutError
from offcut.pipeline.program import B, F, Op, Program
from offcut.torch.pipeline.boundary import Bounded
from offcut.torch.pipeline.layers import as_tuple

LossFn = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Meta = list[tuple[torch.Size, torch.dtype]]

#: Receives that are posted ahead of the operation that needs them.
_AHEAD = 4
#: Tensors that one cut can carry, and dimensions of each.
_TENSORS, _DIMENSIONS = 16, 8
_DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool]


class OwnEngine:
    """Runs `program` on the ranks of the default group; `modules` are the stages that this rank holds."""

    def __init__(
        self,
        program: Program,
        modules: dict[int, nn.Module],
        loss_fn: LossFn,
        *,
        rank: int,
        device: torch.device,
        timeout_s: float,
    ) -> None:
        self._program = program
        self._modules = {stage: Bounded(module) for stage, module in modules.items()}
        self._loss_fn = loss_fn
        self._rank = rank
        self._device = device
        self._timeout = timedelta(seconds=timeout_s)
        self._last = program.stages - 1
        self._lane = next(
            program.lane(lane) for lane, holder in enumerate(program.rank_of_lane.tolist()) if holder == rank
        )
        self._owner: dict[tuple[int, int], int] = {}
        for lane, holder in enumerate(program.rank_of_lane.tolist()):
            for _, stage, i in program.lane(lane):
                self._owner[stage, i] = holder
        self.micro_batches = sorted({i for _, _, i in self._lane})
        self._meta: dict[int, Meta] = {}
        #: (cut, peer) whose shapes were sent, and received: each sender says them once to each receiver.
        self._told: set[tuple[int, int]] = set()
        self._heard: set[tuple[int, int]] = set()
        self._posted: dict[tuple[int, int, int], list[tuple[torch.Tensor, dist.Work]]] = {}

    def step(self, inputs: dict[int, torch.Tensor], targets: dict[int, torch.Tensor]) -> float:
        """Every operation of this rank once; returns the sum of its micro-batches' losses.

        Gradients are left in the parameters, as of the mean over all micro-batches of the plan, this rank's share.
        `inputs[i]`, `targets[i]` are needed where this rank holds the first or the last stage of micro-batch i.
        """
        total = 0.0
        sends: list[tuple[torch.Tensor, dist.Work]] = []
        kept: dict[tuple[int, int], tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]] = {}
        here: dict[tuple[int, int, int], tuple[torch.Tensor, ...]] = {}
        for at, (kind, stage, i) in enumerate(self._lane):
            for ahead in self._lane[at : at + _AHEAD]:
                self._post(ahead)
            if kind == F:
                given = (inputs[i].to(self._device),) if stage == 0 else self._take(F, stage, i, here)
                given = tuple(x.detach().requires_grad_(x.is_floating_point() and stage > 0) for x in given)
                made = as_tuple(self._modules[stage](*given))
                if stage == self._last:
                    loss = self._loss_fn(made[0], targets[i].to(self._device)) / self._program.micro_batches
                    total += float(loss.detach()) * self._program.micro_batches
                    made = (loss,)
                else:
                    self._give((F, stage, i), tuple(x.detach() for x in made), here, sends)
                kept[stage, i] = (given, made)
            elif kind == B:
                given, made = kept.pop((stage, i))
                if stage == self._last:
                    made[0].backward()
                else:
                    back = self._take(B, stage, i, here)
                    pairs = [(x, g) for x, g in zip(made, back, strict=True) if x.requires_grad]
                    torch.autograd.backward([x for x, _ in pairs], [g for _, g in pairs])
                if stage > 0:
                    gradients = tuple(torch.zeros_like(x) if x.grad is None else x.grad for x in given)
                    self._give((B, stage, i), gradients, here, sends)
            else:
                raise OffcutError("this runtime does not divide the backward.", next_step="Use the native one.")
        for _, work in sends:
            work.wait(self._timeout)
        return total

    def _peer(self, kind: int, stage: int, i: int) -> int:
        """Who makes what this operation needs."""
        return self._owner[stage - 1 if kind == F else stage + 1, i]

    def _needs(self, op: Op) -> bool:
        kind, stage, i = op
        if (kind == F and stage == 0) or (kind == B and stage == self._last):
            return False
        return self._peer(kind, stage, i) != self._rank

    def _post(self, op: Op) -> None:
        """Post the receives of `op`, if it has any and their shapes are known."""
        kind, stage, i = op
        if op in self._posted or not self._needs(op):
            return
        cut = stage - 1 if kind == F else stage
        peer = self._peer(kind, stage, i)
        if (cut, peer) not in self._heard if kind == F else cut not in self._meta:
            return
        posted = []
        for k, (shape, dtype) in enumerate(self._meta[cut]):
            buffer = torch.empty(shape, dtype=dtype, device=self._device)
            work = dist.irecv(buffer, peer, tag=self._tag(kind, cut, i, k))
            assert work is not None
            posted.append((buffer, work))
        self._posted[op] = posted

    def _take(
        self, kind: int, stage: int, i: int, here: dict[tuple[int, int, int], tuple[torch.Tensor, ...]]
    ) -> tuple[torch.Tensor, ...]:
        if not self._needs((kind, stage, i)):
            return here.pop((kind, stage, i))
        cut, peer = (stage - 1 if kind == F else stage), self._peer(kind, stage, i)
        if kind == F and (cut, peer) not in self._heard:
            header = torch.zeros(1 + _TENSORS * (2 + _DIMENSIONS), dtype=torch.int64)
            work = dist.irecv(header, peer, tag=self._header_tag(cut))
            assert work is not None
            work.wait(self._timeout)
            self._meta[cut] = _read_header(header)
            self._heard.add((cut, peer))
        self._post((kind, stage, i))
        tensors = []
        for buffer, work in self._posted.pop((kind, stage, i)):
            work.wait(self._timeout)
            tensors.append(buffer)
        return tuple(tensors)

    def _give(
        self,
        op: Op,
        tensors: tuple[torch.Tensor, ...],
        here: dict[tuple[int, int, int], tuple[torch.Tensor, ...]],
        sends: list[tuple[torch.Tensor, dist.Work]],
    ) -> None:
        kind, stage, i = op
        to_stage, cut = (stage + 1, stage) if kind == F else (stage - 1, stage - 1)
        to = self._owner[to_stage, i]
        if kind == F:
            self._meta.setdefault(cut, [(x.shape, x.dtype) for x in tensors])
        if to == self._rank:
            here[kind, to_stage, i] = tensors
            return
        if kind == F and (cut, to) not in self._told:
            # Only a cut's first message to a rank needs its shapes: a plan's micro-batches are all alike.
            self._told.add((cut, to))
            header = _header(tensors)
            sends.append((header, self._send(header, to, self._header_tag(cut))))
        for k, x in enumerate(tensors):
            ready = x.contiguous()
            sends.append((ready, self._send(ready, to, self._tag(kind, cut, i, k))))

    @staticmethod
    def _send(tensor: torch.Tensor, to: int, tag: int) -> dist.Work:
        work = dist.isend(tensor, to, tag=tag)
        assert work is not None
        return work

    def _tag(self, kind: int, cut: int, i: int, k: int) -> int:
        return (
            1
            + self._program.stages
            + (((kind * self._program.stages + cut) * self._program.micro_batches + i) * _TENSORS + k)
        )

    @staticmethod
    def _header_tag(cut: int) -> int:
        return 1 + cut


def _header(tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    if len(tensors) > _TENSORS or any(x.dim() > _DIMENSIONS for x in tensors):
        raise OffcutError(f"a cut carries more than {_TENSORS} tensors.", next_step="Cut elsewhere.")
    header = torch.zeros(1 + _TENSORS * (2 + _DIMENSIONS), dtype=torch.int64)
    header[0] = len(tensors)
    for k, x in enumerate(tensors):
        row = [_DTYPES.index(x.dtype), x.dim(), *x.shape]
        start = 1 + k * (2 + _DIMENSIONS)
        header[start : start + len(row)] = torch.tensor(row)
    return header


def _read_header(header: torch.Tensor) -> Meta:
    meta: Meta = []
    for k in range(int(header[0])):
        start = 1 + k * (2 + _DIMENSIONS)
        dtype, dimensions = int(header[start]), int(header[start + 1])
        meta.append((torch.Size(header[start + 2 : start + 2 + dimensions].tolist()), _DTYPES[dtype]))
    return meta
