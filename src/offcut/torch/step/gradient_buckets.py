"""The gradients of parameters of one type on one device in one buffer, which is summed over the members as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

#: The most bytes of gradients in a bucket, unless one parameter has more. A gradient in no more than one bucket is
#: summed after the backward pass, in one message with the step's signals.
BUCKET_BYTES = 4 << 20


class FlatGradients:
    """Gradients in one buffer, and how many members have each of them.

    Args:
        parameters: the parameters, each once.
        dtype: their type.
        device: where they are.
        room: for how many numbers there is room behind them.
    """

    def __init__(
        self, parameters: Sequence[torch.nn.Parameter], dtype: torch.dtype, device: torch.device, room: int = 0
    ) -> None:
        self.parameters = list(parameters)
        self._kind = dtype, device, room
        #: A second buffer, of which views may be gradients that are still needed.
        self._other: torch.Tensor | None = None
        # Touched here, not in the first step: a joiner makes it before the others wait for it.
        self._place_in(self._new_buffer().zero_())
        self._versions = [0] * len(self.parameters)

    def _new_buffer(self) -> torch.Tensor:
        dtype, device, room = self._kind
        length = sum(p.numel() for p in self.parameters) + len(self.parameters) + room
        return torch.empty(length, dtype=dtype, device=device)

    def _place_in(self, buffer: torch.Tensor) -> None:
        sizes = [*(p.numel() for p in self.parameters), len(self.parameters), self._kind[2]]
        self.buffer = buffer
        *parts, self.counts, _ = buffer.split(sizes)
        self.gradients = buffer[: sum(sizes[:-2])]
        # `data`: each view counts by itself how often something was written into it.
        self.views = [_like(p, part).data for p, part in zip(self.parameters, parts, strict=True)]

    def remade(self) -> FlatGradients:
        """Return the same with a new buffer, because a sum that no member waits for may still write into this one."""
        dtype, device, room = self._kind
        return FlatGradients(self.parameters, dtype, device, room)

    def zero(self) -> None:
        """Set the gradients to zero; they are in the buffer then."""
        self.buffer.zero_()
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = view
        self._versions = [view._version for view in self.views]

    def gather(self) -> None:
        """Move the gradients to their places in the buffer, and note which there are."""
        there = []
        for parameter, view, version in zip(self.parameters, self.views, self._versions, strict=True):
            grad = parameter.grad
            if grad is None:
                view.zero_()
                there.append(0.0)
            elif grad.data_ptr() != view.data_ptr():
                view.copy_(grad)
                there.append(1.0)
            else:
                there.append(float(grad._version != version))
            parameter.grad = view
        self._note(there)

    def scale(self, factor: float) -> None:
        """Multiply what was gathered by `factor`. With 0 this member has no gradients: 0 times infinity is NaN."""
        if factor == 0.0:
            self.buffer.zero_()
        elif factor != 1.0:
            self.gradients.mul_(factor)

    def copy_scaled(self, factor: float | None) -> None:
        """Write `factor` times the gradients into the buffer, and note which there are; they stay as they are.

        Args:
            factor: see `scale`; None: 1.
        """
        if factor == 0.0:
            self.buffer.zero_()
            return
        grads = [parameter.grad for parameter in self.parameters]
        if any(
            grad is not None and grad.data_ptr() == view.data_ptr()
            for grad, view in zip(grads, self.views, strict=True)
        ):
            before, self._other = self.buffer, self._other if self._other is not None else self._new_buffer()
            self._place_in(self._other)
            self._other = before
        for grad, view in zip(grads, self.views, strict=True):
            if grad is None:
                view.zero_()
            elif factor is None or factor == 1.0 or grad.dtype != view.dtype:
                view.copy_(grad.detach())
                if factor is not None:
                    view.mul_(factor)
            else:
                torch.mul(grad.detach(), factor, out=view)
        self._note([float(grad is not None) for grad in grads])

    def _note(self, there: list[float]) -> None:
        if all(there):
            self.counts.fill_(1.0)
        else:
            self.counts.copy_(torch.tensor(there, dtype=self.counts.dtype, device="cpu"))

    def assign(self) -> None:
        """Let the gradients be what is in the buffer."""
        for parameter, view in zip(self.parameters, self.views, strict=True):
            parameter.grad = view

    def drop_missing(self) -> None:
        """Remove the gradients that no member has, once the sum is there."""
        for parameter, count in zip(self.parameters, self.counts.tolist(), strict=True):
            if count == 0.0:
                parameter.grad = None


def _like(parameter: torch.nn.Parameter, flat: torch.Tensor) -> torch.Tensor:
    """Return a view of `flat` with the parameter's shape and its strides, if these cover the memory without gaps.

    Fused optimizers go through both in the order of the memory; other strides are slow or, there, wrong.
    """
    if torch.empty_like(parameter, device="meta").stride() != parameter.stride():
        return flat.view_as(parameter)
    return flat.as_strided(parameter.size(), parameter.stride())


def flats_by_kind(parameters: Iterable[torch.nn.Parameter], room: int) -> list[FlatGradients]:
    """Return one buffer for each type of parameter on each device, in the order of the first of each.

    Args:
        parameters: the parameters, each once.
        room: for how many numbers there is room in each buffer, behind the gradients.
    """
    by_kind: dict[tuple[torch.dtype, torch.device], list[torch.nn.Parameter]] = {}
    for parameter in parameters:
        by_kind.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    return [FlatGradients(several, dtype, device, room) for (dtype, device), several in by_kind.items()]


def gradient_bytes(parameters: Iterable[torch.nn.Parameter]) -> int:
    """Return the bytes that the gradients of `parameters` take."""
    return sum(p.numel() * p.element_size() for p in parameters)


def bucketed(parameters: Sequence[tuple[int, torch.nn.Parameter]]) -> list[tuple[int, FlatGradients]]:
    """Divide gradients into buckets, in the order in which a backward pass probably completes them.

    Args:
        parameters: each with the number of its optimizer, in the order in which the model has them. The gradients of
            its last layers come first.

    Returns:
        The buckets, each with the number of its optimizer: members sum gradients by optimizer.
    """
    buckets: list[tuple[int, list[torch.nn.Parameter]]] = []
    open_now: dict[tuple[int, torch.dtype, torch.device], list[torch.nn.Parameter]] = {}
    for optimizer, p in reversed(parameters):
        kind = optimizer, p.dtype, p.device
        several = open_now.get(kind)
        if several is None or gradient_bytes([*several, p]) > BUCKET_BYTES:
            several = open_now[kind] = []
            buckets.append((optimizer, several))
        several.append(p)
    return [(number, FlatGradients(several, several[0].dtype, several[0].device)) for number, several in buckets]
