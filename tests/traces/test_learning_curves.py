"""Tables of learning curves: the file, and which configuration stands for a trial's parameters."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from offcut.errors import InputError
from offcut.model.search_space import CategoricalParameter, Condition, FloatParameter, IntParameter, SearchSpace
from offcut.traces.learning_curves import LearningCurve, LearningCurves, read_learning_curves, write_learning_curves
from offcut.wire.sweepspec import read_sweep_file

SWEEPS = Path(__file__).resolve().parents[2] / "examples" / "sweep"
ROWS = [
    {"parameters": {"lr": 0.1}, "unit_s": 2.0, "values": [0.5, 0.25]},
    {"parameters": {"lr": 0.2}, "unit_s": 4.0, "values": [0.75, None]},
]
TABLE = {"direction": "minimize", "budgets": [1, 3], "configurations": ROWS}


@pytest.mark.parametrize("name", ["table.json", "table.json.gz"])
def test_what_is_written_is_read(tmp_path, name):
    path = tmp_path / name
    write_learning_curves(path, direction="minimize", budgets=[1, 3], rows=ROWS, made_with={"seed": 3})
    table = read_learning_curves(path)
    assert (table.direction, table.budgets, table.best_value, table.unit_s) == ("minimize", (1, 3), 0.25, 3.0)
    assert table.curves[0] == LearningCurve(parameters={"lr": 0.1}, unit_s=2.0, values=(0.5, 0.25))
    assert math.isnan(table.curves[1].values[1])


@pytest.mark.parametrize(("name", "configurations"), [("digits", 200), ("architecture", 100)])
def test_a_table_that_is_shipped_fits_its_sweep(name, configurations):
    table = read_learning_curves(SWEEPS / f"{name}_curves.json.gz")
    table.check(read_sweep_file(SWEEPS / f"{name}.toml").to_sweep("s").space)
    assert len(table.curves) == configurations


def test_times_are_scaled_to_a_mean():
    curves = tuple(LearningCurve(parameters={}, unit_s=unit_s, values=(1.0,)) for unit_s in (1.0, 3.0))
    table = LearningCurves(direction="minimize", budgets=(1.0,), curves=curves)
    assert [curve.unit_s for curve in table.scaled(60.0).curves] == [30.0, 90.0]


def test_the_nearest_configuration_stands_for_the_parameters():
    space = SearchSpace(
        (
            CategoricalParameter(name="kind", choices=("a", "b")),
            FloatParameter(name="lr", low=1e-4, high=1.0, log=True),
            IntParameter(name="depth", low=1, high=11, when=Condition("kind", ("b",))),
        )
    )
    rows = [{"kind": "a", "lr": 0.01}, {"kind": "b", "lr": 0.01, "depth": 2}, {"kind": "b", "lr": 0.3, "depth": 9}]
    curves = tuple(LearningCurve(parameters=row, unit_s=1.0, values=(1.0,)) for row in rows)
    table = LearningCurves(direction="minimize", budgets=(1.0,), curves=curves)
    for parameters, nearest in (
        ({"kind": "a", "lr": 1.0}, 0),
        ({"kind": "b", "lr": 0.01, "depth": 4}, 1),
        ({"kind": "b", "lr": 0.01, "depth": 9}, 2),  # 0.7 of depth's range counts more than 0.37 of that of log lr
        ({"kind": "b", "lr": 0.2, "depth": 8}, 2),
    ):
        assert table.nearest(space, parameters).parameters == rows[nearest]
    table.check(space)
    with pytest.raises(InputError, match="depth"):
        table.check(SearchSpace(space.parameters[:2]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"direction": "up"}, "direction"),
        ({"budgets": [3, 1]}, "budgets"),
        ({"budgets": [1, 2, 3]}, "configurations.0.values"),
        ({"configurations": []}, "configurations"),
        ({"configurations": [ROWS[0] | {"unit_s": 0}]}, "unit_s"),
        ({"configurations": [ROWS[0] | {"more": 0}]}, "more"),
    ],
)
def test_a_table_that_is_wrong_is_refused_with_the_field(tmp_path, change, said):
    path = tmp_path / "table.json"
    path.write_text(json.dumps(TABLE | change))
    with pytest.raises(InputError, match=said):
        read_learning_curves(path)


def test_a_table_that_is_not_json_is_refused_with_the_line(tmp_path):
    path = tmp_path / "table.json"
    path.write_text("{\n!")
    with pytest.raises(InputError, match="line 2"):
        read_learning_curves(path)
