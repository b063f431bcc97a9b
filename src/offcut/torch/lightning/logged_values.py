"""What a module logs in `training_step`, over the whole global batch: the same on every member."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from offcut.errors import InputError
from offcut.torch.elastic_parts.elastic_training import ElasticTraining
from offcut.torch.elastic_parts.member_exchange import exchanged
from offcut.torch.membership.differences import exchange
from offcut.torch.membership.process_group import Group

#: Numbers per logged value in the members' table: whether it was logged, its sum, its samples, its value of this step.
_PER_VALUE = 4


@dataclass(frozen=True, slots=True)
class _Before:
    """What was logged by one name in earlier steps."""

    value: torch.Tensor
    samples: torch.Tensor | None
    step: torch.Tensor | None
    unused: bool


class LoggedValues:
    """Makes the values that `training_step` logs those of the global batch, by one sum over the members.

    Args:
        results: Lightning's collection of logged values.
    """

    def __init__(self, results: dict[str, Any]) -> None:
        self._results = results
        #: The names that all members know, in an order that all members have.
        self.names: list[str] = []
        self._before: dict[str, _Before] = {}

    def begin(self) -> None:
        """Put aside what earlier steps have logged."""
        self._before = {}
        for name, item in self._logged().items():
            samples = getattr(item, "cumulated_batch_size", None)
            self._before[name] = _Before(item.value, samples, item._forward_cache, item.has_reset)
            item.value, item.has_reset = _default(item), True
            if samples is not None:
                item.cumulated_batch_size = torch.zeros_like(samples)

    def end(self, training: ElasticTraining) -> None:
        """Add what this member and the others have logged since `begin`.

        Where the generation breaks, this member's own values are added; in a step, that step will be done again.

        Args:
            training: the elastic training.

        Raises:
            InputError: a metric object was logged.
        """
        check_no_metrics(self._results)
        logged = self._logged()
        # Always, because one member may log what others do not.
        rows = exchanged(training, lambda group: self._exchange(training, group, logged), None)
        for name, item in logged.items():
            self._add(name, item, rows)
        self._before = {}

    def _logged(self) -> dict[str, Any]:
        return {
            name: item for name, item in self._results.items() if item.meta.fx == "training_step" and item.is_tensor
        }

    def _row(self, logged: dict[str, Any]) -> list[float]:
        nothing = torch.zeros(())
        row: list[torch.Tensor] = []
        for name in self.names:
            item = logged.get(name)
            if item is None or item.has_reset:
                row += [nothing] * _PER_VALUE
                continue
            step = item._forward_cache if item.meta.on_step else None
            row += [
                torch.ones(()),
                item.value,
                getattr(item, "cumulated_batch_size", nothing),
                step if step is not None else nothing,
            ]
        if not row:
            return []
        device = next((tensor.device for tensor in row if tensor.device.type != "cpu"), nothing.device)
        # One copy from the device for all of them.
        numbers: list[float] = torch.stack([tensor.to(device, torch.float64) for tensor in row]).tolist()
        return numbers

    def _exchange(self, training: ElasticTraining, group: Group, logged: dict[str, Any]) -> list[list[float]]:
        """Return every member's weight and row, by rank. Raises Abandoned."""
        reporter, weight = training.training.reporter, training.step.weight
        new = [name for name, item in logged.items() if name not in self.names and not item.has_reset]
        reporter.script_runs(False)
        try:
            rows = self._table(group, [float(bool(new)), weight, *self._row(logged)])
            if any(row[0] for row in rows):
                known = exchange(group, dict.fromkeys(new, ""))
                self.names += sorted({name for names in known for name in names} - set(self.names))
                rows = self._table(group, [0.0, weight, *self._row(logged)])
        finally:
            reporter.script_runs(True)
        return [row[1:] for row in rows]

    def _table(self, group: Group, row: list[float]) -> list[list[float]]:
        table = torch.zeros(group.world, len(row), dtype=torch.float64)
        table[group.rank] = torch.tensor(row, dtype=torch.float64)
        group.wait(group.start_all_reduce(table))
        found: list[list[float]] = table.tolist()
        return found

    def _add(self, name: str, item: Any, rows: Sequence[Sequence[float]] | None) -> None:
        before = self._before.get(name)
        if rows is not None and name in self.names:
            at = 1 + _PER_VALUE * self.names.index(name)
            values = [(row[0], *row[at + 1 : at + _PER_VALUE]) for row in rows if row[at] and row[0] > 0.0]
            if values:
                self._set(item, values)
        if item.has_reset:  # not logged in this step
            if before is not None:
                item.value, item._forward_cache, item.has_reset = before.value, before.step, before.unused
                if before.samples is not None:
                    item.cumulated_batch_size = before.samples
        elif before is not None and not before.unused and item.meta.on_epoch:
            value = before.value.to(item.value.device)
            if item.meta.is_max_reduction or item.meta.is_min_reduction:
                item.value = item.meta.reduce_fx(value, item.value)
            else:
                item.value = value + item.value
            if before.samples is not None:
                item.cumulated_batch_size = before.samples.to(value.device) + item.cumulated_batch_size
        item._computed = None

    def _set(self, item: Any, values: list[tuple[float, ...]]) -> None:
        """Give `item` what it would have if one member had logged all `values`: weight, sum, samples, step's value."""
        meta, like = item.meta, item.value
        sums, steps = [value[1] for value in values], [value[3] for value in values]
        if meta.is_mean_reduction:
            total, step = sum(sums), sum(v[0] * v[3] for v in values) / sum(v[0] for v in values)
        elif meta.is_sum_reduction:
            total, step = sum(sums), sum(steps)
        else:
            best = max if meta.is_max_reduction else min
            total, step = best(sums), best(steps)
        item.has_reset = False
        if meta.on_step:
            item._forward_cache = torch.tensor(step, dtype=like.dtype, device=like.device)
        item.value = torch.tensor(total, dtype=like.dtype, device=like.device) if meta.on_epoch else item._forward_cache
        if meta.is_mean_reduction:
            item.cumulated_batch_size = torch.tensor(int(sum(v[2] for v in values)), device=like.device)


def _default(item: Any) -> torch.Tensor:
    number = 0.0
    if item.meta.is_max_reduction or item.meta.is_min_reduction:
        number = float("-inf") if item.meta.is_max_reduction else float("inf")
    return torch.full_like(item.value, number)


def check_no_metrics(results: dict[str, Any]) -> None:
    """Raise InputError if `training_step` has logged a metric object, which counts this member's samples alone."""
    for item in results.values():
        if item.meta.fx == "training_step" and not item.is_tensor:
            raise InputError(
                f"offcut.torch.lightning: training_step logs a metric object ({item.meta.name!r}), which counts the "
                "samples of one member alone.",
                next_step="Log its value for the batch, as in self.log('accuracy', self.accuracy(predictions, y)). In "
                "a validation, metric objects can be logged.",
            )
