"""State of each row of the global batch, such as the hidden state that truncated backpropagation through time carries.

Every member has the state of all rows, because any member may die, and the rows that a member works on change with the
number of members. A step's new values are exchanged before its gradients are, and count if the step counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from offcut.errors import InputError
from offcut.torch.elastic_parts.loader_step import LoaderStep
from offcut.torch.membership.process_group import Group
from offcut.torch.state.training_state import map_tensors


class RowState:
    """A state with a value for each row of the global batch: row i of a batch continues row i of the one before.

    Give it to `elastic(..., state=[...])`. It follows its rows when the number of members changes, goes back with a
    step that failed, and is part of checkpoints.

        hidden = offcut.torch.RowState(model.init_hidden(batch_size), dim=1)
        ...
        output, hidden.rows = model(x, hidden.rows)

    Args:
        initial: the value before the first batch, for all rows of a global batch: a tensor, or tuples, lists and dicts
            of tensors.
        dim: the dimension of these tensors that counts rows. torch's recurrent layers have it at 1.
    """

    def __init__(self, initial: Any, *, dim: int = 0) -> None:
        self._dim = dim
        self._initial = map_tensors(initial, lambda tensor: tensor.detach().clone())
        #: The value after the last step.
        self._value = self._initial
        #: The value in this step, once the script has set rows of it; which rows it has set.
        self._new: Any = None
        self._set: set[int] = set()
        #: The place and the number of rows of the batch that set them; how many rows earlier batches of the step had.
        self._last: tuple[int, int] | None = None
        self._passed = 0
        self._step: LoaderStep | None = None

    def attach(self, step: LoaderStep) -> None:
        """Make this part of a training.

        Args:
            step: the training's step.
        """
        self._step = step
        step.before_reduce.append(self._exchange)

    @property
    def rows(self) -> Any:
        """The rows that belong to this member's samples of the last batch, detached from what has computed them.

        Set it once for each batch, before `optimizer.step()`, to what the model makes of them.

        Raises:
            InputError: it is read or set outside of a step, or a batch has more rows than the state.
        """
        step = self._in_step()
        index = self._index(step)
        if self._last is not None and self._last[0] != step.offset:
            self._passed = max(self._passed, self._last[1])
        if not step.failed and any(row < self._passed and row not in self._set for row in step.rows):
            raise InputError(
                "offcut.torch.RowState: the batches of a step have different numbers of rows.",
                next_step="Call optimizer.step() for each batch, or use batches of one size.",
            )
        value = self._value if self._new is None else self._new
        return map_tensors(value, lambda tensor: tensor.index_select(self._dim, index.to(tensor.device)))

    @rows.setter
    def rows(self, rows: Any) -> None:
        step = self._in_step()
        if step.reduced:
            raise InputError(
                "offcut.torch.RowState: rows are set after the step's gradients were summed.",
                next_step="Set them before reduce_gradients() and optimizer.step().",
            )
        self._last = step.offset, step.batch_rows
        if step.failed or step.weight <= 0.0:
            return
        index = self._index(step)
        if self._new is None:
            self._new = map_tensors(self._value, torch.Tensor.clone)
        given = _tensors(rows)

        def put(tensor: torch.Tensor) -> torch.Tensor:
            new = next(given, None)
            shape = (*tensor.shape[: self._dim], len(index), *tensor.shape[self._dim :][1:])
            if new is None or tuple(new.shape) != shape:
                raise InputError(
                    f"offcut.torch.RowState: rows are set to a value of the shape "
                    f"{None if new is None else tuple(new.shape)}, where {shape} is expected.",
                    next_step="Set the same tensors that `rows` returns, for the same rows.",
                )
            return tensor.index_copy_(self._dim, index.to(tensor.device), new.detach().to(tensor))

        map_tensors(self._new, put)
        self._set.update(step.rows)

    def reset(self) -> None:
        """Set all rows to the initial value, as at the beginning of a data epoch.

        All members call it at the same place, outside of a step.

        Raises:
            InputError: it was called in a step.
        """
        if self._step is not None and self._step.open and not self._step.stepped:
            raise InputError(
                "offcut.torch.RowState: reset() in the middle of a step.",
                next_step="Call it before the loop over the loader or after optimizer.step(). To reset some rows, "
                "multiply what `rows` returns by a mask.",
            )
        self._value = self._initial
        self._drop()

    def state_dict(self) -> dict[str, Any]:
        return {"value": self._value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        devices = (tensor.device for tensor in _tensors(self._initial))
        self._value = map_tensors(state["value"], lambda tensor: tensor.to(next(devices)))
        self._drop()

    def _drop(self) -> None:
        self._new, self._set, self._last, self._passed = None, set(), None, 0

    def _in_step(self) -> LoaderStep:
        step = self._step
        if step is None or not step.open or step.stepped:
            raise InputError(
                "offcut.torch.RowState: its rows are used outside of a step.",
                next_step="Give it to offcut.torch.elastic(..., state=[...]), and use its rows inside the loop over "
                "the loader, before optimizer.step().",
            )
        return step

    def _index(self, step: LoaderStep) -> torch.Tensor:
        known = min((tensor.shape[self._dim] for tensor in _tensors(self._value)), default=0)
        if step.batch_rows > known:
            raise InputError(
                f"offcut.torch.RowState: a batch of {step.batch_rows} rows, and a state of {known} "
                f"(in dimension {self._dim}).",
                next_step="Give the initial value for all rows of a global batch, and the dimension that counts them, "
                "as in RowState(model.init_hidden(batch_size), dim=1).",
            )
        return torch.tensor(step.rows, dtype=torch.int64, device="cpu")

    def _exchange(self, group: Group) -> None:
        """Bring together what the members have set in this step. Raises Abandoned."""
        if group.world == 1:
            self._value = self._value if self._new is None else self._new
            self._drop()
            return
        value = self._value if self._new is None else self._new
        tensors = list(_tensors(value))
        merged: dict[int, torch.Tensor] = {}
        # One message for each type and device.
        for kind in dict.fromkeys((tensor.dtype, tensor.device) for tensor in tensors):
            mine = [tensor for tensor in tensors if (tensor.dtype, tensor.device) == kind]
            merged.update(zip(map(id, mine), self._sum_of_set(group, mine), strict=True))
        self._value = map_tensors(value, lambda tensor: merged[id(tensor)])
        self._drop()

    def _sum_of_set(self, group: Group, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return tensors of one type, with the rows that any member has set."""
        first = tensors[0]
        by_row = [tensor.movedim(self._dim, 0) for tensor in tensors]
        count = max(len(table) for table in by_row)
        was_set = torch.zeros(count, dtype=first.dtype, device=first.device)
        was_set[sorted(self._set)] = 1
        sent = [torch.zeros_like(table) for table in by_row]
        for table, own in zip(sent, by_row, strict=True):
            for row in self._set:
                table[row] = own[row]
        flat = torch.cat([was_set, *(table.reshape(-1) for table in sent)])
        group.wait(group.start_all_reduce(flat))
        was_set, *found = flat.split([count, *(table.numel() for table in by_row)])
        return [
            torch.where(
                was_set[: len(table)].bool().view(-1, *[1] * (table.dim() - 1)), values.view(table.shape), table
            )
            .movedim(0, self._dim)
            .contiguous()
            for table, values in zip(by_row, found, strict=True)
        ]


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a tree, in the order of `map_tensors`."""
    found: list[torch.Tensor] = []
    map_tensors(tree, lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
    yield from found
