from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from offcut.torch.elastic_parts import current_training


@pytest.fixture(autouse=True)
def no_training_of_another_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(current_training, "_current", None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
