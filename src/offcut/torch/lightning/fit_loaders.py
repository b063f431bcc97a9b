"""The loaders that a Trainer's loops get in a job, in place of the script's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

#: Lightning would save and restore the place of a loader that has these; the place is part of the training's state.
_STATE = ("state_dict", "load_state_dict")


class FitLoader:
    """Yields this member's share of each global batch. All else is the script's own DataLoader.

    Args:
        own: the script's DataLoader.
        batches: returns the shares of the next data epoch.
    """

    def __init__(self, own: DataLoader[Any], batches: Callable[[], Iterator[Any]]) -> None:
        self.own = own
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return self._batches()

    def __len__(self) -> int:
        return len(self.own)

    def __getattr__(self, name: str) -> Any:
        if name in _STATE:
            raise AttributeError(name)
        return getattr(self.own, name)


class ValidationLoader:
    """Yields all batches of a validation on every member, loaded in the training process.

    A process that is forked during the training would inherit the members' connections.

    Args:
        own: the script's DataLoader.
        begins: called when a pass over it begins; with True if that draws from torch's own generator.
    """

    def __init__(self, own: DataLoader[Any], begins: Callable[[bool], None]) -> None:
        self.own = own
        self._begins = begins
        self._loader = own if own.num_workers == 0 else _without_processes(own)

    def __iter__(self) -> Iterator[Any]:
        self._begins(self.own.generator is None)
        return iter(self._loader)

    def __len__(self) -> int:
        return len(self.own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


def _without_processes(own: DataLoader[Any]) -> DataLoader[Any]:
    options: dict[str, Any] = {"collate_fn": own.collate_fn, "pin_memory": own.pin_memory, "generator": own.generator}
    if isinstance(own.dataset, IterableDataset):
        options |= {"batch_size": own.batch_size, "drop_last": own.drop_last}
    elif own.batch_sampler is not None:
        options["batch_sampler"] = own.batch_sampler
    else:
        options |= {"batch_size": None, "sampler": own.sampler}
    return DataLoader(own.dataset, **options)
