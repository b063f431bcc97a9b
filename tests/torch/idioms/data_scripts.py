"""Training scripts with the elastic parts whose data has an order or a state of its own."""

from __future__ import annotations

from typing import Any

import torch
from idiom_scripts import BATCH, numbers
from real_members import Stage
from torch import nn
from torch.utils.data import DataLoader, Dataset

import offcut.torch
from offcut.torch.elastic_parts import current_training


def member() -> Any:
    """What `Stage.at` asks for the steps and the connection."""
    return current_training.current("at").training


class Chunks(Dataset):
    """A long series in columns: a batch has the next chunk of each, and continues the batch before."""

    def __init__(self, chunks: int, length: int = 3, columns: int = BATCH) -> None:
        series = torch.randn(columns, chunks * length, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        self._series, self._length, self._columns = series.cumsum(1), length, columns

    def __len__(self) -> int:
        return self._columns * (self._series.shape[1] // self._length)

    def __getitem__(self, i: int) -> torch.Tensor:
        chunk, column = divmod(i, self._columns)
        return self._series[column, chunk * self._length : (chunk + 1) * self._length, None]


class Recurrent(nn.Module):
    """Says the next number of a series."""

    def __init__(self) -> None:
        super().__init__()
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(3)
        self.lstm = nn.LSTM(1, 5, num_layers=2, batch_first=True)
        self.head = nn.Linear(5, 1)

    def forward(self, x: torch.Tensor, hidden: Any) -> tuple[torch.Tensor, Any]:
        out, hidden = self.lstm(x, hidden)
        return self.head(out), hidden


def carries_hidden_state(
    stage: Stage, *, epochs: int = 3, chunks: int = 7, accumulate: int = 1, elastic: bool = True
) -> dict[str, Any]:
    """Truncated backpropagation through time: the hidden state of each column goes on from batch to batch."""
    model = Recurrent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader: Any = DataLoader(Chunks(chunks), BATCH)
    initial = (torch.zeros(2, BATCH, 5), torch.zeros(2, BATCH, 5))
    hidden: Any = offcut.torch.RowState(initial, dim=1)
    if elastic:
        model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader, state=[hidden])
    state: Any = initial
    for _ in offcut.torch.epochs(epochs) if elastic else range(epochs):
        state = initial
        if elastic:
            hidden.reset()
        for i, x in enumerate(loader):
            if elastic:
                stage.at("step", member())
                output, hidden.rows = model(x, hidden.rows)
            else:
                output, state = model(x, tuple(part.detach() for part in state))
            loss = (output[:, :-1] - x[:, 1:]).square().mean() / accumulate
            loss.backward()
            if loader.completes(accumulate) if elastic else (i + 1) % accumulate == 0 or i + 1 == chunks:
                optimizer.step()
                optimizer.zero_grad()
    carried = hidden.state_dict()["value"] if elastic else [part.detach() for part in state]
    return {
        "parameters": numbers(model),
        "carried": torch.cat([part.flatten() for part in carried]).tolist(),
        "steps": member().steps if elastic else epochs * -(-chunks // accumulate),
    }
