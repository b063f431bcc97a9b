"""The runtime of pipeline programs: any program, on any transport, also with stages that live on several ranks.

Each rank runs its operations of the program in order. A result is sent as soon as it is computed, without waiting;
receives are posted a few operations ahead, so that transfers go on while the rank computes. Every message has a tag of
its own (what, stage, micro-batch, tensor), so the order in which messages arrive does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from offcut.errors import InputError, OffcutError
from offcut.pipeline.program import B, F, I, Op, Program
from offcut.torch.pipeline.layer_chain import as_tuple
from offcut.torch.pipeline.runtime.split_backward import backward_input
from offcut.torch.pipeline.runtime.stage_edges import ContiguousEdges
from offcut.torch.pipeline.runtime.transport import Transport
from offcut.torch.step.usage_checks import check_loss

LossFn = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Meta = list[tuple[torch.Size, torch.dtype]]

#: Receives that are posted ahead of the operation that needs them.
_AHEAD = 4
#: Tensors that one cut can carry, and dimensions of each.
_TENSORS, _DIMENSIONS = 16, 8
_DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool]


class PipelineEngine:
    """Runs `program` on the ranks that `transport` connects; `modules` are the stages that this rank holds."""

    def __init__(
        self,
        program: Program,
        modules: dict[int, nn.Module],
        loss_fn: LossFn,
        *,
        rank: int,
        device: torch.device,
        transport: Transport,
        before: Callable[[int, int], None] = lambda stage, i: None,
    ) -> None:
        """Prepare to run the program. `before(stage, i)` is called ahead of every forward of micro-batch i."""
        self._program = program
        self._modules = {stage: ContiguousEdges(module) for stage, module in modules.items()}
        self._loss_fn = loss_fn
        self._rank = rank
        self._device = device
        self._transport = transport
        self._before = before
        self._last = program.stages - 1
        self._lane = next(
            program.lane(lane) for lane, holder in enumerate(program.rank_of_lane.tolist()) if holder == rank
        )
        self._owner: dict[tuple[int, int], int] = {}
        for lane, holder in enumerate(program.rank_of_lane.tolist()):
            for _, stage, i in program.lane(lane):
                self._owner[stage, i] = holder
        self.micro_batches = sorted({i for _, _, i in self._lane})
        self._rows: Sequence[int] = [0] * program.micro_batches
        #: The shapes of what crosses a cut, by cut and by samples in the micro-batch.
        self._meta: dict[tuple[int, int], Meta] = {}
        #: (cut, samples, peer) whose shapes were sent, and received: each sender sends them once to each receiver.
        self._header_sent: set[tuple[int, int, int]] = set()
        self._header_received: set[tuple[int, int, int]] = set()
        self._posted: dict[Op, list[tuple[torch.Tensor, Any]]] = {}

    def step(
        self,
        inputs: dict[int, torch.Tensor],
        targets: dict[int, torch.Tensor],
        *,
        rows: Sequence[int] | None = None,
        shares: Sequence[float] | None = None,
    ) -> float:
        """Run every operation of this rank once. Return the sum of its micro-batches' losses times m.

        Afterwards the parameters have this rank's part of the gradient of the mean over all samples of the step.
        `inputs[i]`, `targets[i]` are needed where this rank holds the first or the last stage of micro-batch i.
        `rows[i]` is the number of samples in micro-batch i, and `shares[i]` its weight (1/m if all are equal).
        """
        m = self._program.micro_batches
        self._rows = [0] * m if rows is None else rows
        share = [1.0 / m] * m if shares is None else shares
        total = 0.0
        sends: list[tuple[torch.Tensor, Any]] = []
        kept: dict[tuple[int, int], tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]] = {}
        #: The second halves (weight gradients) of backwards whose first halves are done.
        halves: dict[tuple[int, int], Callable[[], None]] = {}
        here: dict[Op, tuple[torch.Tensor, ...]] = {}
        for at, (kind, stage, i) in enumerate(self._lane):
            for ahead in self._lane[at : at + _AHEAD]:
                self._post(ahead)
            if kind == F:
                given = (inputs[i].to(self._device),) if stage == 0 else self._receive(F, stage, i, here)
                given = tuple(x.detach().requires_grad_(x.is_floating_point() and stage > 0) for x in given)
                self._before(stage, i)
                made = as_tuple(self._modules[stage](*given))
                if stage == self._last:
                    loss = self._loss_fn(made[0], targets[i].to(self._device)) if share[i] else made[0].sum()
                    check_loss("loss_fn", loss)
                    total += float(loss.detach()) * share[i] * m
                    loss = loss * share[i]
                    made = (loss,)
                else:
                    self._send((F, stage, i), tuple(x.detach() for x in made), here, sends)
                kept[stage, i] = (given, made)
            elif kind in (B, I):
                given, made = kept.pop((stage, i))
                back = None if stage == self._last else self._receive(B, stage, i, here)
                pairs = [(x, None if back is None else back[k]) for k, x in enumerate(made) if x.requires_grad]
                outs, grads = [x for x, _ in pairs], [g for _, g in pairs if g is not None] or None
                if kind == B:
                    torch.autograd.backward(outs, grads)
                else:
                    halves[stage, i] = backward_input(self._modules[stage], given, outs, grads)
                if stage > 0:
                    gradients = tuple(torch.zeros_like(x) if x.grad is None else x.grad for x in given)
                    self._send((B, stage, i), gradients, here, sends)
            else:
                halves.pop((stage, i))()
        for _, work in sends:
            self._transport.wait(work)
        return total

    def _peer(self, kind: int, stage: int, i: int) -> int:
        """Return the rank that makes what this operation needs."""
        return self._owner[stage - 1 if kind == F else stage + 1, i]

    def _needs(self, op: Op) -> bool:
        kind, stage, i = op
        if kind not in (F, B, I) or (kind == F and stage == 0) or (kind != F and stage == self._last):
            return False
        return self._peer(kind, stage, i) != self._rank

    def _post(self, op: Op) -> None:
        """Post the receives of `op`, if it has any and their shapes are known."""
        kind, stage, i = op
        if not self._needs(op):
            return
        what = F if kind == F else B
        if (what, stage, i) in self._posted:
            return
        cut, rows = stage - 1 if kind == F else stage, self._rows[i]
        peer = self._peer(kind, stage, i)
        if (cut, rows, peer) not in self._header_received if kind == F else (cut, rows) not in self._meta:
            return
        posted = []
        for k, (shape, dtype) in enumerate(self._meta[cut, rows]):
            buffer = torch.empty(shape, dtype=dtype, device="cpu")
            posted.append((buffer, self._transport.receive(buffer, peer, self._tag(what, cut, i, k))))
        self._posted[what, stage, i] = posted

    def _receive(
        self, kind: int, stage: int, i: int, here: dict[Op, tuple[torch.Tensor, ...]]
    ) -> tuple[torch.Tensor, ...]:
        if not self._needs((kind, stage, i)):
            return here.pop((kind, stage, i))
        cut, peer, rows = (stage - 1 if kind == F else stage), self._peer(kind, stage, i), self._rows[i]
        if kind == F and (cut, rows, peer) not in self._header_received:
            header = torch.zeros(1 + _TENSORS * (2 + _DIMENSIONS), dtype=torch.int64, device="cpu")
            self._transport.wait(self._transport.receive(header, peer, self._header_tag(cut, rows)))
            self._meta[cut, rows] = _read_header(header)
            self._header_received.add((cut, rows, peer))
        self._post((kind, stage, i))
        tensors = []
        for buffer, work in self._posted.pop((kind, stage, i)):
            self._transport.wait(work)
            tensors.append(buffer.to(self._device))
        return tuple(tensors)

    def _send(
        self,
        op: Op,
        tensors: tuple[torch.Tensor, ...],
        here: dict[Op, tuple[torch.Tensor, ...]],
        sends: list[tuple[torch.Tensor, Any]],
    ) -> None:
        kind, stage, i = op
        to_stage, cut = (stage + 1, stage) if kind == F else (stage - 1, stage - 1)
        to, rows = self._owner[to_stage, i], self._rows[i]
        if kind == F:
            made = [(x.shape, x.dtype) for x in tensors]
            if self._meta.setdefault((cut, rows), made) != made:
                raise InputError(
                    f"PipelineSession: micro-batches of {rows} samples have other shapes between stages {stage} and "
                    f"{to_stage} than before: {_shapes(made)}, not {_shapes(self._meta[cut, rows])}.",
                    next_step="Let samples of all lengths have one shape, by padding in the dataset or in collate.",
                )
        if to == self._rank:
            here[kind, to_stage, i] = tensors
            return
        if kind == F and (cut, rows, to) not in self._header_sent:
            # Only a cut's first message to a rank needs its shapes, because micro-batches of one size have the same.
            self._header_sent.add((cut, rows, to))
            header = _header(tensors)
            sends.append((header, self._transport.send(header, to, self._header_tag(cut, rows))))
        for k, x in enumerate(tensors):
            ready = x.cpu().contiguous()
            sends.append((ready, self._transport.send(ready, to, self._tag(kind, cut, i, k))))

    def _tag(self, kind: int, cut: int, i: int, k: int) -> int:
        """Return the message's tag, an even number; those of headers are odd."""
        return 2 * (((kind * self._program.stages + cut) * self._program.micro_batches + i) * _TENSORS + k) + 2

    def _header_tag(self, cut: int, rows: int) -> int:
        return 2 * (rows * self._program.stages + cut) + 1


def _shapes(meta: Meta) -> str:
    return ", ".join(str(tuple(shape)) for shape, _ in meta)


def _header(tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    if len(tensors) > _TENSORS or any(x.dim() > _DIMENSIONS for x in tensors):
        raise OffcutError(f"a cut carries more than {_TENSORS} tensors.", next_step="Cut elsewhere.")
    header = torch.zeros(1 + _TENSORS * (2 + _DIMENSIONS), dtype=torch.int64, device="cpu")
    header[0] = len(tensors)
    for k, x in enumerate(tensors):
        row = [_DTYPES.index(x.dtype), x.dim(), *x.shape]
        start = 1 + k * (2 + _DIMENSIONS)
        header[start : start + len(row)] = torch.tensor(row, device="cpu")
    return header


def _read_header(header: torch.Tensor) -> Meta:
    meta: Meta = []
    for k in range(int(header[0])):
        start = 1 + k * (2 + _DIMENSIONS)
        dtype, dimensions = int(header[start]), int(header[start + 1])
        meta.append((torch.Size(header[start + 2 : start + 2 + dimensions].tolist()), _DTYPES[dtype]))
    return meta
