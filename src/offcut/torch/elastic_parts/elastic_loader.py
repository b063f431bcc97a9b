"""The loader in the place of a script's DataLoader, and the function in the place of one that draws batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from offcut.torch.elastic_parts.batch_source import BatchSource
from offcut.torch.elastic_parts.script_loops import ScriptLoops


class ElasticLoader:
    """Yields this member's share of each global batch. All else is the script's own DataLoader.

    Args:
        loops: the loops of the script.
        source: the loader's batches.
        loader: the script's DataLoader.
    """

    def __init__(self, loops: ScriptLoops, source: BatchSource, loader: DataLoader[Any]) -> None:
        self._loops = loops
        self._source = source
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return self._loops.batches(self._source)

    def __len__(self) -> int:
        """Return how many batches a data epoch has; inside the loop, how many turns this member's loop has.

        These are fewer where a worker has joined in the middle of the data epoch, and more where a step came again.
        """
        return self._loops.turns(self._source)

    def completes(self, count: int) -> bool:
        """Return whether the last batch completes `count` batches of the data epoch, or the data epoch.

        To add up the gradients of several batches: `if loader.completes(4): optimizer.step()`. It is the same on all
        members; a script's own count of its turns is not, once a worker has joined or a step came again.

        Args:
            count: how many batches a step has.
        """
        return self._loops.completes(count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class ElasticDraw:
    """In the place of a script's function that draws batches: returns this member's rows of the next global batch.

    Args:
        loops: the loops of the script.
        source: the function's batches.
    """

    def __init__(self, loops: ScriptLoops, source: BatchSource) -> None:
        self._loops = loops
        self._source = source
        self._batches: Iterator[Any] | None = None

    def __call__(self) -> Any:
        """Return this member's rows of the next global batch; after a step that failed, of the same one again."""
        if self._batches is None or not self._loops.in_loop:
            self._batches = self._loops.batches(self._source)
        return next(self._batches)

    def completes(self, count: int) -> bool:
        """Return whether the last batch completes `count` batches; see `ElasticLoader.completes`.

        Args:
            count: how many batches a step has.
        """
        return self._loops.completes(count)
