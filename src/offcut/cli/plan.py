"""`offcut plan`: finds the fastest pipeline plan that fits, for every size."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offcut.cli.output import Sheet, line, print_json, print_table

if TYPE_CHECKING:
    from offcut.model import ScalingCurve
    from offcut.pipeline.frontier.size_frontier import SizeFrontier
    from offcut.pipeline.plan import Plan
    from offcut.pipeline.planner.explore import Findings
    from offcut.pipeline.planner.problem import PlanningProblem


def plan(
    profile: Annotated[Path, typer.Argument(help="The file that `offcut profile` wrote, or a PipeDream graph file.")],
    hardware: Annotated[Path, typer.Option(help="The cluster: devices and links (TOML).")],
    devices: Annotated[str, typer.Option(help="Sizes to plan for: 4, 1:16, 2:8:2 or 1,2,4.")] = "1:8",
    batch: Annotated[
        int | None, typer.Option(help="Samples of one step; default: 32 of the largest micro-batch.")
    ] = None,
    micro_batch: Annotated[
        str | None, typer.Option(help="Micro-batch sizes to try, such as 8,16; default: the measured ones.")
    ] = None,
    measured_at: Annotated[
        int | None, typer.Option(help="Batch size of a PipeDream graph file, if it is not a published one.")
    ] = None,
    schedule: Annotated[list[str] | None, typer.Option(help="Only these schedules (may be repeated).")] = None,
    stages: Annotated[int | None, typer.Option(help="Only plans with this many stages.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the plans of all sizes here (JSON), for a job.")] = None,
    figure: Annotated[
        Path | None,
        typer.Option(help="Write the timeline of the best plan of the largest size here, or the frontiers (PNG, SVG)."),
    ] = None,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="Show how memory trades against time at every size, and draw that.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """Find the fastest plan that fits, for every size: stages, replicas, schedule, and how far it may be from optimal.

    Example: `offcut plan vgg16.json --hardware cluster.toml --devices 1:16 --figure plan.png`
    """
    from offcut.model import Sizes
    from offcut.pipeline.plan_set import plan_set
    from offcut.pipeline.planner.curve import planned_curve
    from offcut.pipeline.planner.explore import Explorer

    sizes = Sizes.parse(devices)
    problem = _problem(
        profile,
        hardware,
        batch=batch,
        micro_batch=micro_batch,
        measured_at=measured_at,
        schedules=tuple(schedule or ()),
        stages=stages,
    )
    explorer = Explorer(problem)
    findings = [explorer.explore(size) for size in sizes.allowed]
    frontiers = _frontiers(problem, findings) if frontier else []
    # Without a plan there is an error, unless the frontiers may have a strategy that fits.
    curve = planned_curve(findings) if not frontier or save or any(found.best for found in findings) else None
    best = curve.plans[max(curve.plans)] if curve else None
    if save is not None and curve is not None:
        save.write_text(json.dumps(plan_set(curve.plans.values()).to_json(), indent=1) + "\n")
    if figure is not None:
        _draw(figure, problem, best, frontiers)
    if as_json:
        document = {
            "model": problem.profile.model,
            "batch": problem.batch,
            "sizes": [_as_json(found) for found in findings],
            "curve": _curve_json(curve.curve) if curve else None,
        }
        if frontier:
            from offcut.pipeline.frontier.size_frontier import frontier_curve

            document["frontiers"] = [one.to_json() for one in frontiers]
            document["frontier_curve"] = _curve_json(frontier_curve(frontiers))
        print_json(document)
        return
    if best is not None:
        _print(problem, findings, best)
    if frontier:
        _print_frontiers(problem, frontiers)


def _frontiers(problem: PlanningProblem, findings: list[Findings]) -> list[SizeFrontier]:
    from offcut.pipeline.frontier.size_frontier import FrontierExplorer

    explorer = FrontierExplorer(problem)
    return [explorer.frontier(found.devices, found.plans) for found in findings]


def _draw(path: Path, problem: PlanningProblem, best: Plan | None, frontiers: list[SizeFrontier]) -> None:
    if frontiers:
        from offcut.report.frontier_figure import frontier_figure

        frontier_figure(problem.profile.model, frontiers, path)
        return
    if best is not None:
        from offcut.report.plan_figure import plan_figure

        plan_figure(best, path)


def _curve_json(curve: ScalingCurve) -> dict[str, Any]:
    return {"nodes": list(curve.nodes), "samples_per_s": list(curve.rate)}


def _problem(
    profile: Path,
    hardware: Path,
    *,
    batch: int | None,
    micro_batch: str | None,
    measured_at: int | None,
    schedules: tuple[str, ...],
    stages: int | None,
) -> PlanningProblem:
    from offcut.errors import InputError
    from offcut.pipeline.hardware import read_hardware
    from offcut.pipeline.planner.problem import PlanningProblem
    from offcut.pipeline.profile_file import read_profile

    model = read_profile(profile, micro_batch=measured_at)
    cluster = read_hardware(hardware)
    kinds = {
        device.kind: read_profile(hardware.parent / device.profile, micro_batch=measured_at)
        for device in cluster.devices
        if device.profile
    }
    sizes = model.micro_batches
    if micro_batch is not None:
        try:
            sizes = tuple(int(part) for part in micro_batch.split(","))
        except ValueError:
            raise InputError(
                f"--micro-batch '{micro_batch}'.", next_step="Write whole numbers, such as 8,16."
            ) from None
        if min(sizes) < 1:
            raise InputError(f"--micro-batch '{micro_batch}'.", next_step="Sizes are at least 1.")
    return PlanningProblem(
        profile=model,
        hardware=cluster,
        batch=batch if batch is not None else 32 * max(sizes),
        micro_batches=sizes,
        schedules=schedules,
        kinds=kinds,
        stages=stages,
    )


def _as_json(found: Findings) -> dict[str, Any]:
    return {
        "devices": found.devices,
        "best": found.best.to_json() if found.best else None,
        "pareto": [plan.to_json() for plan in found.plans],
        "bound_s": _finite(found.bound_s),
        "gap": _finite(found.gap),
        "bound_any_s": _finite(found.bound_any_s),
        "gap_any": _finite(found.gap_any),
        "certificate": found.certificate,
        "smallest_memory_bytes": found.smallest_memory_bytes,
        "lost": [
            {
                "schedule": row.schedule,
                "family": row.family,
                "label": row.label,
                "step_s": row.step_s,
                "memory_bytes": row.memory_bytes,
                "reason": row.reason,
            }
            for row in found.rejected
        ],
    }


def _finite(value: float) -> float | None:
    """Replace an infinite number by null, because JSON has no infinity."""
    return value if math.isfinite(value) else None


def _print(problem: PlanningProblem, findings: list[Findings], best: Plan) -> None:
    rates = ("step s", "samples/s", "GB", "bubble %", "above the bound")
    title = f"{problem.profile.model}, {problem.batch} samples a step"
    table = Sheet("devices", "best plan", *rates, right=("devices", *rates), title=title)
    for found in findings:
        p = found.best
        if p is None:
            need = f"no plan fits; {found.smallest_memory_bytes / 1e9:.3g} GB a device would do"
            table.add_row(str(found.devices), need)
            continue
        table.add_row(
            str(found.devices),
            p.label,
            f"{p.step_s:.4g}",
            f"{p.samples_per_s:.1f}",
            f"{p.memory_bytes / 1e9:.2f}",
            f"{100 * p.bubble_of_step:.1f}",
            f"<= {100 * found.gap:.1f} %" if math.isfinite(found.gap) else "–",
        )
    print_table(table)
    last = next(found for found in reversed(findings) if found.plans)
    figures = ("stage", "layers", "devices", "forward ms", "backward ms", "transfer ms", "sync ms")
    stages = Sheet(*figures, "carried through", right=figures, title=f"Stages of {best.label}")
    for s, stage in enumerate(best.stages):
        stages.add_row(
            str(s),
            f"{stage.first_layer}-{stage.end_layer - 1}",
            str(best.replicas[stage.place]),
            *(f"{1e3 * x:.2f}" for x in (stage.forward_s, stage.backward_s, stage.hop_s, stage.sync_s)),
            ", ".join(stage.skips),
        )
    print_table(stages)
    any_plan = f"; within {100 * last.gap_any:.1f} % of any plan at all" if math.isfinite(last.gap) else ""
    line(f"At {last.devices} devices: {last.certificate}{any_plan}.")
    title = f"Why the others lost at {last.devices} devices"
    rejected = Sheet("plan", "family", "step s", "reason", right=("step s",), title=title)
    for row in last.rejected:
        rejected.add_row(row.label, row.family, f"{row.step_s:.4g}" if row.step_s else "", row.reason)
    print_table(rejected)


def _print_frontiers(problem: PlanningProblem, frontiers: list[SizeFrontier]) -> None:
    """Show the leanest and the fastest point of every size, and the fastest that fits."""
    figures = ("points", "leanest GB", "step s", "fastest GB", "step s ", "fits, samples/s")
    title = f"Time against memory, {problem.profile.model}: layers whole, replicated, split, recomputed, and pipelines"
    table = Sheet("devices", *figures, "the fastest that fits", right=("devices", *figures), title=title)
    for one in frontiers:
        first, last, fits = one.points[0], one.points[-1], one.fastest
        table.add_row(
            str(one.devices),
            str(len(one.points)),
            f"{first.memory_bytes / 1e9:.2f}",
            f"{first.step_s:.4g}",
            f"{last.memory_bytes / 1e9:.2f}",
            f"{last.step_s:.4g}",
            f"{one.batch / fits.step_s:.1f}" if fits else "–",
            f"{fits.label}{'' if fits.runs else ' (estimate)'}" if fits else "none",
        )
    print_table(table)
    gap = max(one.gap for one in frontiers)
    exact = "exact" if gap == 0 else f"within {math.ceil(1000 * gap) / 10:.1f} % of exact"
    line(f"The strategies of layers are {exact}. Jobs run pipeline plans; what is marked an estimate they do not run.")
