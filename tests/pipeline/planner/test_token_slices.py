"""Slices of tokens (TeraPipe): figures of the authors' planner, brute force, and the simulator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from offcut.errors import InputError
from offcut.pipeline.planner.token_slices import fit_token_latency, pass_s, plan_token_slices
from offcut.pipeline.schedules import SCHEDULES, Shape
from offcut.pipeline.simulator import simulate
from offcut.pipeline.stage_costs import plain_costs


def latency(sequences: int, tokens: int, context: int) -> float:
    """A start of 0.25, at least 32 tokens' worth of work, and attention to the context and to half of the slice."""
    work = sequences * tokens
    return 0.2 + 0.01 * max(work, 32) + 1e-4 * work * (context + tokens / 2) + 0.05


#: Sequences, tokens, stages; parts, seconds of a pass, and seconds where no sequence is sliced. Made by the authors'
#: planner on the latency above.
FIGURES = [
    (1, 128, 4, ((1, (40, 32, 32, 24)),), 5.734, 9.397),
    (1, 256, 8, ((1, (56, 40, 32, 32, 24, 24, 16, 16, 16)),), 16.0096, 48.694),
    (2, 128, 4, ((1, (56, 40, 32)), (1, (56, 40, 32))), 8.5988, 11.746),
    (1, 256, 24, ((1, (56, 40, 32, 24, 24, 16, 16, 16, 16, 16)),), 31.5332, 146.083),
]


@pytest.mark.parametrize(("sequences", "tokens", "stages", "parts", "seconds", "unsliced"), FIGURES)
def test_the_figures_of_the_authors_planner(
    sequences: int, tokens: int, stages: int, parts: object, seconds: float, unsliced: float
) -> None:
    plan = plan_token_slices(latency, sequences=sequences, tokens=tokens, stages=stages)
    assert plan.parts == parts
    assert plan.pass_s == pytest.approx(seconds, abs=1e-9)
    assert pass_s([latency(1, tokens, 0)] * sequences, stages) == pytest.approx(unsliced, abs=5e-4)


@pytest.mark.parametrize(("sequences", "tokens", "stages", "parts", "seconds", "unsliced"), FIGURES)
def test_the_simulator_agrees(
    sequences: int, tokens: int, stages: int, parts: object, seconds: float, unsliced: float
) -> None:
    """Forward and a backward of twice its time: three passes, and all slices in flight at once."""
    plan = plan_token_slices(latency, sequences=sequences, tokens=tokens, stages=stages)
    shape = Shape(ranks=stages, micro_batches=len(plan.slices))
    costs = plain_costs([1.0] * stages, [2.0] * stages)
    run = simulate(SCHEDULES["terapipe"].program(shape), costs, scale=plan.scale())
    assert run.step_s == pytest.approx(3 * seconds)
    assert run.busy_s == pytest.approx([3 * sum(piece.time_s for piece in plan.slices)] * stages)
    assert run.peak_bytes.tolist() == [sequences * tokens] * stages


def compositions(total: int) -> Iterator[tuple[int, ...]]:
    if total == 0:
        yield ()
    for first in range(1, total + 1):
        yield from ((first, *rest) for rest in compositions(total - first))


def test_no_other_slices_are_better() -> None:
    """All ways to divide up to 3 sequences of up to 6 tokens, with random latencies."""
    draw = np.random.default_rng(5)
    for _ in range(60):
        sequences, tokens, stages = (int(draw.integers(1, high)) for high in (4, 7, 6))
        table = draw.uniform(0.1, 1.0, (sequences + 1, tokens + 1, tokens))

        def random_latency(b: int, n: int, c: int, table: np.ndarray = table) -> float:
            return float(table[b, n, c])

        def slices(b: int, tokens: int = tokens, table: np.ndarray = table) -> list[list[float]]:
            return [
                [table[b, n, c] for n, c in zip(lengths, itertools.accumulate(lengths, initial=0), strict=False)]
                for lengths in compositions(tokens)
            ]

        best = min(
            pass_s(list(itertools.chain(*chosen)), stages)
            for parts in compositions(sequences)
            for chosen in itertools.product(*(slices(b) for b in parts))
        )
        plan = plan_token_slices(random_latency, sequences=sequences, tokens=tokens, stages=stages, multiple_of=1)
        assert plan.pass_s == pytest.approx(best)
        assert sum(b for b, _ in plan.parts) == sequences
        assert all(sum(lengths) == tokens for _, lengths in plan.parts)


def test_the_fitted_latency_repeats_its_measurements_and_gives_the_same_slices() -> None:
    def linear(b: int, n: int, c: int) -> float:
        return 0.25 + 0.01 * max(b * n, 32) + 5e-5 * b * n * n + (0.02 + 1e-4 * b * n * c if c else 0.0)

    measured = [(1, n, c, linear(1, n, c)) for n in range(8, 136, 8) for c in (0, 8, 40, 96) if n + c <= 128]
    fitted = fit_token_latency(measured)
    assert [fitted(b, n, c) for b, n, c, _ in measured] == pytest.approx([time_s for *_, time_s in measured])
    ours = plan_token_slices(fitted, sequences=1, tokens=128, stages=8)
    assert ours.parts == plan_token_slices(linear, sequences=1, tokens=128, stages=8).parts
    assert fitted(1, 256, 0) == pytest.approx(2 * fitted(1, 128, 0))
    assert replace(fitted, coefficients=(0.0, 0.0, 0.0, 0.0))(1, 8, 64) == fitted(1, 8, 0)


def test_bad_input_is_a_sentence() -> None:
    with pytest.raises(InputError, match="100 tokens on 4 stages in slices of multiples of 8"):
        plan_token_slices(latency, sequences=1, tokens=100, stages=4)
    with pytest.raises(InputError, match="without context"):
        fit_token_latency([(1, 8, 8, 1.0)])
    with pytest.raises(InputError, match="2 sequences were not measured"):
        fit_token_latency([(1, 8, 0, 1.0)])(2, 8, 0)
