"""Search spaces: what is refused, and what is suggested."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.errors import InputError
from offcut.model.search_space import (
    CategoricalParameter,
    Condition,
    FloatParameter,
    IntParameter,
    SearchSpace,
)
from offcut.search.suggestion import grid_points, mutate, perturb, suggest_random

LAYERS = IntParameter(name="layers", low=1, high=4)
OPTIMIZER = CategoricalParameter(name="optimizer", choices=("sgd", "adam"))
SPACE = SearchSpace(
    (
        FloatParameter(name="lr", low=1e-5, high=1.0, log=True),
        LAYERS,
        IntParameter(name="width", low=8, high=64, step=8),
        IntParameter(name="batch", low=1, high=512, log=True),
        OPTIMIZER,
        FloatParameter(name="momentum", low=0.0, high=0.99, when=Condition("optimizer", ("sgd",))),
        CategoricalParameter(name="skip", choices=(True, False), when=Condition("layers", (3, 4))),
        IntParameter(name="skip_from", low=0, high=1, when=Condition("skip", (True,))),
    )
)


@given(seed=st.integers(0, 2**40), number=st.integers(0, 10_000))
def test_random_suggestions_lie_in_the_space(seed: int, number: int) -> None:
    values = suggest_random(SPACE, seed, number)
    SPACE.check(values)
    assert values == suggest_random(SPACE, seed, number)
    assert ("momentum" in values) == (values["optimizer"] == "sgd")
    assert ("skip_from" in values) == (values["layers"] >= 3 and values["skip"] is True)


@settings(max_examples=50)
@given(seed=st.integers(0, 2**40))
def test_mutations_and_perturbations_lie_in_the_space(seed: int) -> None:
    random = Random(seed)
    values = suggest_random(SPACE, seed, 0)
    for _ in range(10):
        mutated = mutate(values, SPACE, random)
        SPACE.check(mutated)
        assert sum(values.get(name) != mutated[name] for name in mutated if name in values) == 1
        values = perturb(mutated, SPACE, random, factors=(0.8, 1.2), resample=0.2)
        SPACE.check(values)
        # What decides the architecture stays, because the weights that were copied have it.
        assert {name: values[name] for name in ("optimizer", "layers")} == {
            name: mutated[name] for name in ("optimizer", "layers")
        }


def test_a_log_parameter_is_uniform_in_its_logarithm() -> None:
    drawn = [suggest_random(SPACE, 0, number)["lr"] for number in range(2000)]
    assert 0.17 < sum(value < 1e-4 for value in drawn) / 2000 < 0.23
    assert 0.37 < sum(value > 1e-2 for value in drawn) / 2000 < 0.43


def test_a_grid_has_every_combination_once() -> None:
    space = SearchSpace(
        (
            OPTIMIZER,
            LAYERS,
            CategoricalParameter(name="nesterov", choices=(True, False), when=Condition("optimizer", ("sgd",))),
        )
    )
    points = grid_points(space)
    assert len(points) == 2 * 4 + 4
    assert len({tuple(sorted(point.items())) for point in points}) == 12
    for point in points:
        space.check(point)
    assert points[0] == {"optimizer": "sgd", "layers": 1, "nesterov": True}


def test_a_grid_of_a_float_is_refused() -> None:
    with pytest.raises(InputError, match="lr: a grid needs choices or integers"):
        grid_points(SPACE)


def test_a_grid_that_is_too_large_is_refused() -> None:
    space = SearchSpace(tuple(IntParameter(name=f"p{i}", low=0, high=99) for i in range(3)))
    with pytest.raises(InputError, match="more than 100,000 points"):
        grid_points(space)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: FloatParameter(name="lr", low=1.0, high=0.1), "lr: low 1 > high 0.1."),
        (lambda: FloatParameter(name="lr", low=0.0, high=0.1, log=True), "lr: low must be greater than 0 with log"),
        (lambda: FloatParameter(name="lr", low=0.0, high=float("inf")), "lr: inf is not a limit."),
        (lambda: FloatParameter(name="lr", low=-1.7e308, high=1.7e308), "lr: the range is wider"),
        (lambda: IntParameter(name="n", low=1, high=8, step=0), "n: step must be at least 1, not 0."),
        (lambda: IntParameter(name="n", low=1, high=8, step=2, log=True), "n: step and log exclude each other."),
        (lambda: IntParameter(name="n", low=1, high=2**60), "n: integers must lie within 2^53."),
        (lambda: CategoricalParameter(name="c", choices=()), "c: it must have at least one choice."),
        (lambda: CategoricalParameter(name="c", choices=(1, 1.0)), "c: the choice 1.0 is given twice."),
        (lambda: CategoricalParameter(name="c", choices=(float("nan"),)), "c: nan is not a choice."),
        (lambda: SearchSpace((LAYERS, LAYERS)), "layers: the search space has two parameters of this name."),
        (
            lambda: SearchSpace((IntParameter(name="a", low=0, high=1, when=Condition("b", (1,))),)),
            "a: when: no parameter before it is called 'b'.",
        ),
        (
            lambda: SearchSpace(
                (OPTIMIZER, IntParameter(name="a", low=0, high=1, when=Condition("optimizer", ("x",))))
            ),
            "a: when: 'optimizer' is never 'x'.",
        ),
        (
            lambda: SearchSpace(
                (
                    FloatParameter(name="f", low=0, high=1),
                    IntParameter(name="a", low=0, high=1, when=Condition("f", (1,))),
                )
            ),
            "a: when: 'f' is a float parameter.",
        ),
    ],
)
def test_an_impossible_space_is_refused_in_one_sentence(make, told: str) -> None:
    with pytest.raises(InputError) as raised:
        make()
    assert told in raised.value.what


def test_true_and_1_are_different_choices() -> None:
    parameter = CategoricalParameter(name="c", choices=(1, True, "1"))
    space = SearchSpace((parameter, IntParameter(name="a", low=0, high=1, when=Condition("c", (True,)))))
    space.check({"c": 1})
    space.check({"c": True, "a": 0})
    with pytest.raises(InputError, match="a: the trial has no value for it"):
        space.check({"c": True})


@pytest.mark.parametrize("wrong", [{"lr": 2.0}, {"layers": 2.5}, {"width": 9}, {"optimizer": "x"}, {"other": 1}])
def test_parameters_outside_the_space_are_found(wrong: dict) -> None:
    values = suggest_random(SPACE, 1, 1)
    with pytest.raises(InputError, match=next(iter(wrong))):
        SPACE.check({**values, **wrong})
