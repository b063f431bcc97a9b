"""An IterableDataset: a finite stream is read into a buffer that can be indexed, and trained on from there.

    python examples/session/stream.py

A session needs a map-style dataset: which samples belong to a step follows from the seed and the step alone, so that a
batch whose step failed comes again and no sample counts twice. A stream has no such thing as "sample 17 again". So
`Buffered` reads it to the end first. Its limits:

- The stream ends, and its samples fit into the memory of every rank; `limit` stops with a sentence if they do not.
- Every reading gives the same samples in the same order, since each member reads for itself. Shuffle in the session
  (it does), not in the stream.
- Reading happens each time a worker starts, before it reports ready: a minute of it is a minute added to each growth
  (the others train on). If that is too long, write the samples to a file once, and map it.
- What changes from epoch to epoch (augmentation) belongs in the loop or in `__getitem__`, where random numbers are
  seeded for each step.
"""

import argparse
import csv
import io
import math
import random
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

from offcut.torch import Session

parser = argparse.ArgumentParser(description="Forecast the next value of a series that comes as a stream of rows.")
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--rows", type=int, default=2000)
parser.add_argument("--limit", type=int, default=100_000, help="samples that the buffer may hold")
arguments = parser.parse_args()


class Readings(IterableDataset):
    """Rows of a CSV as they would come from a socket or a pipe: sixteen values, and the one that follows them."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        values: list[float] = []
        for row in csv.reader(io.StringIO(recorded(arguments.rows))):
            values = [*values[-16:], float(row[1])]
            if len(values) == 17:
                yield torch.tensor(values[:16]), torch.tensor(values[16:])


def recorded(rows: int) -> str:
    """Stands in for a source that can be read again from its beginning: the same rows each time."""
    noise = random.Random(0)
    return "\n".join(f"{t},{math.sin(t / 7) + 0.5 * math.sin(t / 3) + noise.gauss(0, 0.05)}" for t in range(rows))


class Buffered(Dataset):
    """The samples of a finite stream, in its order."""

    def __init__(self, stream: IterableDataset, limit: int) -> None:
        self._samples = []
        for sample in stream:
            if len(self._samples) == limit:
                raise SystemExit(f"The stream has more than {limit} samples; raise --limit, or write it to a file.")
            self._samples.append(sample)

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._samples[i]


data = Buffered(Readings(), arguments.limit)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

with Session(model, optimizer, data, global_batch=64) as session:
    for epoch in session.epochs(arguments.epochs):
        for batch in epoch:
            session.step(nn.functional.mse_loss(session.model(batch.x), batch.y))

if session.once():
    print(f"{len(data)} samples, loss {session.loss:.5f} after {session.steps} steps")
