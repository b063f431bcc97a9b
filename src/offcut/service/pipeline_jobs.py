"""Derives from a pipeline job's plans the sizes it may have, and its scaling curve before it has run."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from offcut.errors import InputError
from offcut.model import Job, Sizes
from offcut.wire.jobspec import CurveSpec, JobSpec
from offcut.wire.worker_env import ENV_PLANS

if TYPE_CHECKING:
    from offcut.pipeline.plan_set import PlanSet


def _read(path: str) -> PlanSet:
    # With it comes a compiler, which a controller without pipeline jobs need not load when it starts.
    from offcut.pipeline.plan_set import read_plans

    return read_plans(Path(path))


def check_sizes(job: Job, sizes: Sizes) -> None:
    """Check that a pipeline job has a plan for each of `sizes`; other jobs may have any size.

    Raises:
        InputError: A size has no plan.
    """
    path = dict(job.env).get(ENV_PLANS)
    if path is not None:
        _check(sizes, _read(path).sizes(job.ranks_per_node), path)


def _check(sizes: Sizes, planned: Sizes, path: str) -> None:
    without = list(islice((n for n in sizes.allowed if n not in planned), 5))
    if without:
        raise InputError(
            f"sizes: {path} has no plan for {', '.join(map(str, without))} nodes.",
            next_step=f"Choose among {planned}.",
        )


def with_plans(spec: JobSpec) -> JobSpec:
    """Return the job with the sizes and the curve of its plans, unless it names its own.

    Other jobs are returned as they are.

    Raises:
        InputError: The file cannot be used, or a size has no plan.
    """
    path = spec.plans
    if path is None:
        return spec
    plans = _read(path)
    planned, curve = plans.sizes(spec.ranks_per_node), plans.curve(spec.ranks_per_node)
    if "sizes" not in spec.model_fields_set:
        spec = spec.model_copy(update={"sizes": str(planned)})
    _check(Sizes.parse(spec.sizes), planned, path)
    if spec.curve is None:
        rates = [rate for n, rate in zip(curve.nodes, curve.rate, strict=True) if n]
        spec = spec.model_copy(update={"curve": CurveSpec(nodes=[n for n in curve.nodes if n], rate=rates)})
    return spec
