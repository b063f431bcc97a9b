"""Model buffers (BatchNorm's running statistics and the like) that are the same on every member.

A forward pass changes buffers before its step counts, and each part of a global batch changes them in its own way. So
every part begins with the buffers of the last boundary, and the step's result is their value there plus the mean, by
weight, of the parts' changes. A buffer that no part changes keeps its bits.
"""

from __future__ import annotations

import torch


class Buffers:
    """The model's buffers.

    `kept` are the buffers as of the last boundary; whole numbers (counts of batches) are the last part's.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        named = dict(model.named_buffers())
        #: The modules and names of the buffers; a forward may put another tensor there.
        self._places = [(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in named]
        self._kept = [buffer.detach().clone() for buffer in self._buffers]
        self._real = [i for i, buffer in enumerate(self._buffers) if buffer.is_floating_point()]
        self._sizes = [self._buffers[i].numel() for i in self._real]
        self._changes = torch.zeros(sum(self._sizes), dtype=torch.float64)
        self.kept = dict(zip(named, self._kept, strict=True))

    @property
    def _buffers(self) -> list[torch.Tensor]:
        """Return the model's living buffers."""
        return [module.get_buffer(key) for module, key in self._places]

    def __bool__(self) -> bool:
        return bool(self._places)

    def copy_boundary(self) -> None:
        """Copy the buffers, which are now those of a boundary."""
        if self:
            torch._foreach_copy_(self._kept, [buffer.detach() for buffer in self._buffers])

    def restore(self) -> None:
        """Set the buffers to those of the last boundary."""
        self.put(None)

    def begin(self) -> None:
        """Begin a step: no part has changed a buffer yet."""
        self._changes.zero_()

    def copies(self) -> list[torch.Tensor]:
        """Return copies of the buffers as they are."""
        return [buffer.detach().clone() for buffer in self._buffers]

    def put(self, values: list[torch.Tensor] | None) -> None:
        """Set the buffers to `values`, as `copies` has returned them; None: to those of the last boundary."""
        if self:
            torch._foreach_copy_(
                [buffer.detach() for buffer in self._buffers], self._kept if values is None else values
            )

    def add_part(self, weight: float, values: list[torch.Tensor] | None = None) -> None:
        """Add the changes that a part has made.

        Args:
            weight: its share of the global batch.
            values: the buffers after it, as `copies` has returned them; None: as they are.
        """
        if weight == 0.0 or not self._real:
            return
        buffers = self._buffers if values is None else values
        for i, into in zip(self._real, self._changes.split(self._sizes), strict=True):
            new, old = buffers[i].detach(), self._kept[i]
            # Unchanged values have the difference 0, also infinite ones.
            change = torch.where(new == old, 0.0, new.double() - old.double())
            into.add_(change.reshape(-1).cpu(), alpha=weight)

    @property
    def changes(self) -> torch.Tensor:
        """Return the weighted sum of this member's changes: float64 [n] on the CPU, to be summed over the members."""
        return self._changes

    def apply(self, changes: torch.Tensor) -> None:
        """Set the buffers to the last boundary's values plus `changes`, which are summed over all members."""
        buffers = self._buffers
        for i, flat in zip(self._real, changes.split(self._sizes), strict=True):
            buffer, old = buffers[i], self._kept[i]
            change = flat.view(buffer.shape).to(buffer.device)
            new = torch.where(change == 0.0, old, (old.double() + change).to(buffer.dtype))
            buffer.detach().copy_(new)
