"""Model buffers (BatchNorm's running statistics and the like) that are the same on every member.

A forward pass changes buffers before its step counts, and each part of a global batch changes them in its own way. So
every part begins with the buffers of the last boundary, and the step's result is their value there plus the mean, by
weight, of the parts' changes. A buffer that no part changes keeps its bits.

The changes of small buffers go to the other members in every step. A large one may be a table that never changes, so
its changes are sent from the first step of a generation on in which it changes on some member. Whether it has changed
is found out by its values: `.data` and numpy write without a trace.
"""

from __future__ import annotations

import torch

#: Numbers in the largest buffer whose changes are always sent.
_SMALL = 1 << 14


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
        #: Those whose changes are sent with each step, in the order in which they are sent, and their sum.
        self._sent: list[int] = []
        self._sizes: list[int] = []
        self._changes = torch.zeros(0, dtype=torch.float64, device="cpu")
        #: What has changed of others in this step.
        self._unsent: dict[int, torch.Tensor] = {}
        self._generation = -1
        self._send([i for i in self._real if self._kept[i].numel() <= _SMALL])
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

    def _send(self, which: list[int]) -> None:
        self._sent = which
        self._sizes = [self._kept[i].numel() for i in which]
        self._changes = torch.zeros(sum(self._sizes), dtype=torch.float64, device="cpu")

    def begin_generation(self, generation: int) -> None:
        """Send the changes of small buffers only, if this is another generation: the others may know of none.

        Args:
            generation: the number of the current one.
        """
        if generation != self._generation:
            self._generation = generation
            self._send([i for i in self._real if self._kept[i].numel() <= _SMALL])

    def begin(self) -> None:
        """Begin a step: no part has changed a buffer yet."""
        self._changes.zero_()
        self._unsent.clear()

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
        places = dict(zip(self._sent, self._changes.split(self._sizes), strict=True))
        for i in self._real:
            new, old = buffers[i].detach(), self._kept[i]
            if i not in places:
                if torch.equal(new, old):
                    continue
                places[i] = self._unsent.setdefault(i, torch.zeros(old.numel(), dtype=torch.float64, device="cpu"))
            # Unchanged values have the difference 0, also infinite ones.
            change = torch.where(new == old, 0.0, new.double() - old.double())
            places[i].add_(change.reshape(-1).cpu(), alpha=weight)

    @property
    def changes(self) -> torch.Tensor:
        """Return the weighted sum of this member's changes: float64 [n] on the CPU, to be summed over the members."""
        return self._changes

    @property
    def changed_unsent(self) -> list[int]:
        """Return for each buffer whether it has changed here and is not in `changes`: 0 or 1."""
        return [int(i in self._unsent) for i in range(len(self._places))]

    def send_too(self, which: list[int]) -> torch.Tensor:
        """Send the changes of further buffers, from this step on.

        Args:
            which: their numbers, the same on all members.

        Returns:
            This member's changes of these: float64 [n].
        """
        new = [
            self._unsent.pop(i, torch.zeros(self._kept[i].numel(), dtype=torch.float64, device="cpu")) for i in which
        ]
        self._send([*self._sent, *which])
        return torch.cat(new)

    def apply(self, changes: torch.Tensor) -> None:
        """Set the buffers to the last boundary's values plus `changes`, which are summed over all members."""
        buffers = self._buffers
        for i, flat in zip(self._sent, changes.split(self._sizes), strict=True):
            buffer, old = buffers[i], self._kept[i]
            change = flat.view(buffer.shape).to(buffer.device)
            new = torch.where(change == 0.0, old, (old.double() + change).to(buffer.dtype))
            buffer.detach().copy_(new)
