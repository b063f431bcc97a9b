"""A sweep file is read, and what is wrong with one is said in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offcut.errors import InputError
from offcut.model.search_space import CategoricalParameter, Condition, FloatParameter, IntParameter
from offcut.wire.sweepspec import parse_sweep, read_sweep_file

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sweep" / "digits.toml"
LEAST: dict[str, Any] = {
    "name": "s",
    "job": {"command": ["train.py"]},
    "space": {"lr": {"type": "float", "low": 0.1, "high": 1}},
    "scheduler": {"name": "asha", "max_budget": 9},
}


def test_the_example_is_read() -> None:
    sweep = read_sweep_file(EXAMPLE).to_sweep("digits-search-1")
    assert sweep.job.command == ("digits.py",)
    assert Path(sweep.job.workdir) == EXAMPLE.parent
    assert dict(sweep.scheduler.options) == {"min_budget": 1, "max_budget": 27, "reduction_factor": 3}
    assert sweep.space.parameters == (
        CategoricalParameter(name="optimizer", choices=("sgd", "adam")),
        FloatParameter(name="lr", low=1e-4, high=1.0, log=True),
        FloatParameter(name="momentum", low=0.0, high=0.95, when=Condition("optimizer", ("sgd",))),
        IntParameter(name="channels", low=2, high=32, log=True),
    )


def test_what_is_not_given_has_its_default() -> None:
    sweep = parse_sweep(LEAST, where="x").to_sweep("s-1")
    assert (sweep.direction, sweep.order, sweep.suggester, sweep.max_trials) == ("minimize", "arrival", "random", 100)
    assert sweep.job.name == "s"
    # The API's body is the same again.
    again = parse_sweep(parse_sweep(LEAST, where="x").model_dump(exclude_unset=True, mode="json"), where="body")
    assert again.to_sweep("s-1") == sweep


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"space": {"lr": {"type": "float", "low": 1, "high": 0.1}}}, "x: lr: low 1 > high 0.1."),
        ({"space": {"lr": {"low": 1, "high": 2}}}, "lr: it needs choices, or a type"),
        ({"space": {"lr": {"type": "float", "low": 1}}}, "lr: it needs choices, or a type"),
        ({"space": {"lr": {"type": "int", "low": 1.5, "high": 2}}}, "lr: low and high of an int parameter must be"),
        ({"space": {"lr": {"type": "float", "low": 1, "high": 2, "step": 2}}}, "lr: step is for int parameters."),
        ({"space": {"lr": {"choices": [1], "low": 1}}}, "lr: it has choices and a range."),
        ({"space": {"lr": {"choices": [1], "when": {}}}}, "lr: when: it must name one parameter."),
        ({"space": {"lr": {"choices": [1], "when": {"x": 1}}}}, "lr: when: no parameter before it is called 'x'."),
        ({"space": {"lr": {"choice": [1]}}}, "x: unknown key 'space.lr.choice'."),
        ({"space": {"--lr": {"choices": [1]}}}, "x: space.--lr.[key]: String should match pattern"),
        ({"space": {}}, "x: space: Dictionary should have at least 1 item"),
        ({"scheduler": {"max_budget": 9}}, "x: scheduler: it has no name"),
        ({"job": {"command": []}}, "x: job.command: List should have at least 1 item"),
        ({"job": {"command": ["t.py"], "sizes": "0"}}, "x: job.sizes"),
        ({"max_trials": 0}, "x: max_trials: Input should be greater than or equal to 1 (given: 0)."),
        ({"order": "random"}, "x: order: Input should be 'arrival' or 'logical' (given: 'random')."),
        ({"trials": 9}, "x: unknown key 'trials'."),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_sweep(LEAST | changes, where="x")
    assert told in str(raised.value)
    assert raised.value.exit_code == 2


def test_a_file_without_its_script_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(EXAMPLE.read_text())
    with pytest.raises(InputError, match=r"job: command: there is no script .*digits.py"):
        read_sweep_file(file)
