"""The formulae of the literature, and what the simulator says of the same pipelines.

All on p uniform stages with forward F, backward B and transfers of c. `checks` runs every one of them; the tests assert
them, the benchmark counts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from offcut.pipeline.schedules import SCHEDULES, Shape
from offcut.pipeline.simulator import StepTimeline, simulate
from offcut.pipeline.stage_costs import StageCosts, plain_costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One formula at one size. `below`: by how much the simulation may be under the formula (0: must be equal)."""

    schedule: str
    quantity: str
    case: str
    formula: float
    simulated: float
    below: float = 0.0

    @property
    def holds(self) -> bool:
        """True if the simulation agrees with the formula."""
        rounding = 1e-12 * max(1.0, abs(self.formula))
        return self.formula - self.below - rounding <= self.simulated <= self.formula + rounding


def checks() -> Iterator[Check]:
    """Simulate every closed form of the literature at several sizes.

    Yields:
        One check per schedule, quantity and size.
    """
    for p in (2, 3, 4, 8):
        for m in (p, 2 * p, 3 * p, 8 * p):
            for f, b, c in ((1.0, 2.0, 0.25), (1.0, 1.0, 0.125), (3.0, 5.0, 0.5)):
                yield from _linear(p, m, f, b, c)
            yield from _interleaved(p, m)
            if p > 2 and m > p:
                yield from _zero_bubble(p, m)
            if m >= 2 * p:
                yield from _zero_bubble_v(p, m)
                yield from _dual_pipe_v(p, m)
    for p in range(2, 17):
        for m in (2 * p, 5 * p):
            yield from _v_building_blocks(p, m)
    for p in (4, 8, 16):
        for ratio in (1.0, 2.0):
            yield from _chimera(p, p, ratio)
        for m in (2 * p, 4 * p):
            yield from _chimera(p, m, 1.0)
        for pairs in (2, 4):
            if p % (2 * pairs) == 0:
                for m in (p, 2 * p, 3 * p):
                    yield from _chimera(p, m, 1.0, pairs)
    for p in (2, 3, 4, 6, 8, 16):
        for b in (1.0, 2.0, 1.5):
            for c in (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0):
                yield from _link_warmup(p, 12 * p + 40, 1.0, b, c)
    for seed in range(40):
        yield from _uneven(seed)


def _run(name: str, shape: Shape, costs: StageCosts) -> StepTimeline:
    schedule = SCHEDULES[name]
    return simulate(schedule.program(shape), costs, sends=schedule.sends)


def _linear(p: int, m: int, f: float, b: float, c: float) -> Iterator[Check]:
    case = f"p={p} m={m} F={f} B={b} c={c}"
    shape = Shape(ranks=p, micro_batches=m, stage_s=(f + b,) * p, hop_s=(c,) * (p - 1))
    free, linked = plain_costs([f] * p, [b] * p), plain_costs([f] * p, [b] * p, hop_s=c)
    ideal = (m + p - 1) * (f + b)

    def check(name: str, quantity: str, formula: float, simulated: float, below: float = 0.0) -> Check:
        return Check(
            schedule=name, quantity=quantity, case=case, formula=formula, simulated=float(simulated), below=below
        )

    run = _run("gpipe", shape, free)
    yield check("gpipe", "step", ideal, run.step_s)
    yield check("gpipe", "bubble", (p - 1) / (m + p - 1), run.bubble_of_step)
    yield from (check("gpipe", f"in flight at {s}", m, run.peak_in_flight[s]) for s in range(p))

    run = _run("1f1b", shape, free)
    yield check("1f1b", "step", ideal, run.step_s)
    yield check("1f1b", "bubble", (p - 1) / (m + p - 1), run.bubble_of_step)
    yield from (check("1f1b", f"in flight at {s}", min(m, p - s), run.peak_in_flight[s]) for s in range(p))

    # Equal slices of tokens; unequal ones are in the tests of the planner of slices.
    run = _run("terapipe", shape, free)
    yield check("terapipe", "step", ideal, run.step_s)

    # 1F1B-AS streams: with c <= F the link demand a / F is met and c does not show.
    run = _run("1f1b-as", shape, linked)
    yield check("1f1b-as", "step", ideal, run.step_s)
    yield from (check("1f1b-as", f"in flight at {s}", min(m, p - s), run.peak_in_flight[s]) for s in range(p))

    run = _run("fbp-as", shape, linked)
    yield check("fbp-as", "step", ideal, run.step_s)
    yield from (check("fbp-as", f"in flight at {s}", min(m, 2 * (p - s)), run.peak_in_flight[s]) for s in range(p))
    run = _run("fbp-as-static", shape, linked)
    yield check("fbp-as-static", "step", (m + 2 * p - 1) * (f + b), run.step_s)
    yield from (
        check("fbp-as-static", f"in flight at {s}", min(m, 2 * (p - s)), run.peak_in_flight[s]) for s in range(p)
    )

    # BaPipe's SNO formula counts one SR more than the rendezvous takes; with one boundary the two directions meet.
    run = _run("1f1b-sno", shape, linked)
    sno = ideal + 2 * (m + p - 2) * c
    yield check("1f1b-sno", "step", sno, run.step_s, below=c if p > 2 else 2 * m * c)

    run = _run("1f1b-so", shape, linked)
    yield check("1f1b-so", "step", ideal + 2 * (p - 1) * c, run.step_s)
    yield from (check("1f1b-so", f"in flight at {s}", min(m, 2 * (p - s) - 1), run.peak_in_flight[s]) for s in range(p))


def _interleaved(p: int, m: int) -> Iterator[Check]:
    f, b = 1.0, 2.0
    for v in (2, 4):
        if m <= p:
            continue
        shape = Shape(ranks=p, micro_batches=m, chunks=v)
        run = _run("interleaved", shape, plain_costs([f / v] * p * v, [b / v] * p * v, stored_bytes=[1 / v] * p * v))
        case = f"p={p} m={m} v={v}"
        step = m * (f + b) + (p - 1) * (f + b) / v
        yield Check(schedule="interleaved", quantity="step", case=case, formula=step, simulated=run.step_s)
        held = min(m, p * (1 + (p - 1) / (p * v)))
        yield Check(
            schedule="interleaved",
            quantity="in flight at 0",
            case=case,
            formula=held,
            simulated=float(run.peak_bytes[0]),
        )


def _zero_bubble(p: int, m: int) -> Iterator[Check]:
    run = _run("zb-h1", Shape(ranks=p, micro_batches=m), plain_costs([1.0] * p, [2.0] * p))
    case = f"p={p} m={m} F=I=W=1"
    yield Check(schedule="zb-h1", quantity="step", case=case, formula=3 * m + p - 1, simulated=run.step_s)
    yield Check(
        schedule="zb-h1",
        quantity="most in flight",
        case=case,
        formula=p,
        simulated=float(run.peak_in_flight.max()),
    )


def _run_v(name: str, p: int, m: int, f: float = 1.0, i: float = 1.0, w: float = 1.0) -> StepTimeline:
    """Simulate a schedule of 2 p uniform stages."""
    stages = 2 * p
    costs = plain_costs([f] * stages, [i + w] * stages, weight_grad_s=[w] * stages)
    return _run(name, Shape(ranks=p, micro_batches=m, chunks=2), costs)


def _zero_bubble_v(p: int, m: int) -> Iterator[Check]:
    run, case = _run_v("zb-v", p, m), f"p={p} m={m} F=I=W=1"

    def check(quantity: str, formula: float, simulated: float) -> Check:
        return Check(schedule="zb-v", quantity=quantity, case=case, formula=formula, simulated=float(simulated))

    yield check("step", 6 * m + p - 1, run.step_s)
    yield check("bubble of span", 0.0, run.bubble_of_span)
    yield from (check(f"in flight at {s}", 2 * p, run.peak_in_flight[s]) for s in range(p))


def _v_building_blocks(p: int, m: int) -> Iterator[Check]:
    """Check V-Half and V-Min against 1F1B's bubble of 6 (p - 1) and its 2 p activations."""
    case = f"p={p} m={m} F=I=W=1"
    half, third = _run_v("v-half", p, m), _run_v("v-min", p, m)
    for name, run, bubble, held, below in (
        ("v-half", half, 3 * (p - 1) - (p % 2 == 0), p + 3, 0.0),
        ("v-min", third, 4 * (p - 1) - 1, 2 * p / 3 + 3, 3.0),
    ):
        yield Check(schedule=name, quantity="step", case=case, formula=6 * m + bubble, simulated=run.step_s)
        most = float(run.peak_in_flight.max())
        yield Check(schedule=name, quantity="most in flight", case=case, formula=held, simulated=most, below=below)


def _dual_pipe_v(p: int, m: int) -> Iterator[Check]:
    for f, i, w in ((1.0, 1.0, 1.0), (2.0, 2.0, 1.0)):
        run, case = _run_v("dualpipe-v", p, m, f, i, w), f"p={p} m={m} F=I={f} W={w}"
        # The authors' bubble, (p - 1)(F&B + B - 3 W), less (p - 1) F: see the schedule's file.
        step = 2 * m * (f + i + w) + (p - 1) * (2 * i - w)
        yield Check(schedule="dualpipe-v", quantity="step", case=case, formula=step, simulated=run.step_s)
        most = float(run.peak_in_flight.max())
        yield Check(schedule="dualpipe-v", quantity="most in flight", case=case, formula=2 * p + 1, simulated=most)


def _chimera(p: int, m: int, ratio: float, pairs: int = 1) -> Iterator[Check]:
    """Check Chimera with f pairs and B = ratio F."""
    name = "chimera" if pairs == 1 else f"chimera-{pairs}"
    run = _run(name, Shape(ranks=p, micro_batches=m), plain_costs([1.0] * p, [ratio] * p))
    case = f"p={p} m={m} f={pairs} B={ratio}F"
    idle = p / pairs - 2 if ratio == 1 else (p - 2) * 2
    work = m * (1 + ratio)

    def check(quantity: str, formula: float, simulated: float) -> Check:
        return Check(schedule=name, quantity=quantity, case=case, formula=formula, simulated=float(simulated))

    yield check("step", work + idle, run.step_s)
    yield check("bubble", idle / (work + idle), run.bubble_of_step)
    if m == p and ratio == 1:
        yield check("least in flight", p - p / (2 * pairs) + 1, run.peak_in_flight.min())
        yield check("most in flight", p, run.peak_in_flight.max())


def _link_warmup(p: int, m: int, f: float, b: float, c: float) -> Iterator[Check]:
    shape = Shape(ranks=p, micro_batches=m, stage_s=(f + b,) * p, hop_s=(c,) * (p - 1))
    run = _run("1f1b-link", shape, plain_costs([f] * p, [b] * p, hop_s=c))
    yield Check(
        schedule="1f1b-link",
        quantity="step",
        case=f"p={p} m={m} F={f} B={b} c={c}",
        formula=(m + p - 1) * (f + b) + 2 * (p - 1) * c,
        simulated=run.step_s,
    )


def _uneven(seed: int) -> Iterator[Check]:
    """Check uneven stages: GPipe is exact on them; PipeDream's steady period is its slowest stage."""
    draw = np.random.default_rng(seed)
    p, m = int(draw.integers(2, 8)), int(draw.integers(2, 24))
    f, b = draw.uniform(0.5, 2.0, p), draw.uniform(1.0, 3.0, p)
    costs = plain_costs(f.tolist(), b.tolist())
    run = _run("gpipe", Shape(ranks=p, micro_batches=m), costs)
    step = f.sum() + (m - 1) * f.max() + b.sum() + (m - 1) * b.max()
    yield Check(
        schedule="gpipe", quantity="step, uneven", case=f"seed={seed}", formula=float(step), simulated=run.step_s
    )
    short, long = (_run("pipedream", Shape(ranks=p, micro_batches=n), costs).step_s for n in (400, 800))
    yield Check(
        schedule="pipedream",
        quantity="period, uneven",
        case=f"seed={seed}",
        formula=float((f + b).max()),
        simulated=float(round((long - short) / 400, 12)),
    )
