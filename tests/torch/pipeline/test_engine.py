"""The pipeline runtime on one rank, with messages that lead nowhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pipeline_job import plan
from torch import nn

from offcut.errors import InputError
from offcut.torch.pipeline.runtime.engine import PipelineEngine


class Nowhere:
    """A transport whose receives leave zeros."""

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> None: ...

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> None:
        tensor.zero_()

    def wait(self, work: Any) -> None: ...


def test_samples_of_other_lengths_are_refused_where_they_leave_a_stage() -> None:
    """The next stage would wait for a message of another size."""
    program = plan("2").program()
    stages = {0: nn.Linear(3, 3)}
    engine = PipelineEngine(
        program, stages, nn.functional.mse_loss, rank=0, device=torch.device("cpu"), transport=Nowhere()
    )
    lengths = [5] * program.micro_batches
    engine.step({i: torch.ones(4, length, 3) for i, length in enumerate(lengths)}, {}, rows=[4] * len(lengths))
    lengths[1] = 6
    with pytest.raises(InputError, match=r"micro-batches of 4 samples have other shapes.*\(4, 6, 3\), not \(4, 5, 3\)"):
        engine.step({i: torch.ones(4, length, 3) for i, length in enumerate(lengths)}, {}, rows=[4] * len(lengths))
