"""A script that ends with an error does not end the training."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from offcut.torch.elastic_parts import current_training


@pytest.mark.parametrize(("given", "ends"), [((), True), ((0,), True), ((3,), False), (("no data",), False)])
def test_the_training_ends_with_a_script_that_exits_without_an_error(
    monkeypatch: pytest.MonkeyPatch, given: tuple[object, ...], ends: bool
) -> None:
    ended: list[bool] = []
    training = SimpleNamespace(begun=True, finish=lambda: ended.append(True))
    at_exit = []
    monkeypatch.setattr(current_training, "_current", None)
    monkeypatch.setattr(current_training, "_exit_status", None)
    monkeypatch.setattr(current_training, "ElasticTraining", lambda *given, **options: training)
    monkeypatch.setattr(current_training.atexit, "register", at_exit.append)
    monkeypatch.setattr(sys, "exit", sys.exit)
    current_training.begin(None, [], None, [], None, several=False)
    with pytest.raises(SystemExit) as raised:
        sys.exit(*given)
    assert raised.value.code == (given[0] if given else None)
    (at_end,) = at_exit
    at_end()
    assert ended == [True] * ends
