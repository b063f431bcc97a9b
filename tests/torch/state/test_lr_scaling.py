"""The learning rate follows the size, moves gently after a resize, and schedulers see only the script's own."""

from __future__ import annotations

import pytest
import torch

from offcut.errors import InputError
from offcut.torch.state.lr_scaling import LrScaling


def run(rule: LrScaling, worlds: list[int], start: int = 0) -> list[float]:
    """The factors of consecutive steps at these sizes."""
    factors = []
    for step, world in enumerate(worlds, start):
        factors.append(rule.factor(step, world))
        rule.applied(step, world)
    return factors


def test_rules() -> None:
    assert run(LrScaling("none", 5), [1, 4, 4]) == [1.0, 1.0, 1.0]
    assert run(LrScaling("linear", 0), [1, 4, 2]) == [1.0, 4.0, 2.0]
    assert run(LrScaling("sqrt", 0), [4, 9, 1]) == [2.0, 3.0, 1.0]


def test_warm_up_begins_at_a_resize_and_from_the_factor_of_that_moment() -> None:
    assert run(LrScaling("linear", 4), [1, 1, 5, 5, 5, 5, 5]) == [1, 1, 2, 3, 4, 5, 5]
    assert run(LrScaling("linear", 4), [1, 5, 5, 1, 1, 1, 1]) == [1, 2, 3, 2.5, 2, 1.5, 1]
    assert run(LrScaling("linear", 4), [3, 3]) == [3, 3], "a training begins with its own schedule"


def test_a_joiner_continues_as_the_others() -> None:
    rule, joiner = LrScaling("sqrt", 7), LrScaling("sqrt", 7)
    run(rule, [1, 2, 2, 6])
    joiner.load_state_dict(rule.state_dict())
    assert run(joiner, [6, 6, 3, 3], 4) == run(rule, [6, 6, 3, 3], 4)


def test_a_step_that_failed_leaves_no_trace() -> None:
    rule, other = LrScaling("linear", 5), LrScaling("linear", 5)
    for each in (rule, other):
        run(each, [1, 2, 2])
    rule.factor(3, 8)  # the generation of 8 members broke before it applied anything
    assert run(rule, [2, 2], 3) == run(other, [2, 2], 3)


def test_the_scripts_own_rate_is_back_after_the_update() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    with LrScaling("linear", 0).during([optimizer], 0, 4):
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.4)
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_rules_that_do_not_exist_are_named() -> None:
    with pytest.raises(InputError, match="lr_rule is 'cubic'"):
        LrScaling("cubic", 0)
    with pytest.raises(InputError, match="warmup_steps is -1"):
        LrScaling("linear", -1)


def test_an_update_that_raises_leaves_the_script_s_own_learning_rate() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)

    def update() -> None:
        with LrScaling("linear", 0).during([optimizer], 0, 4):
            assert optimizer.param_groups[0]["lr"] == pytest.approx(0.4)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        update()
    assert optimizer.param_groups[0]["lr"] == 0.1
