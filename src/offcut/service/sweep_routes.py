"""The part of the API that is about sweeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from offcut.control.sweep_state import SweepState
from offcut.errors import InputError
from offcut.model import events
from offcut.model.sweep import Sweep
from offcut.process.daemon_thread import in_daemon_thread
from offcut.search.schedulers.load import load
from offcut.search.suggestion import grid_points
from offcut.service import sweep_lookup
from offcut.service.controller import Controller
from offcut.service.paths import StatePaths
from offcut.service.pipeline_jobs import with_plans
from offcut.service.searcher.searcher import check_optuna
from offcut.service.searcher.storage import check_storage
from offcut.service.searcher.user_schedulers import describe, is_user_file
from offcut.store.journal import Journal
from offcut.wire.sweepspec import SweepSpec

_VERBS = {"cancel": events.SweepCancelled, "pause": events.SweepPaused, "resume": events.SweepResumed}


class SweepExtension(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    max_trials: int | None = Field(None, ge=1, le=100_000)
    total_budget: float | None = Field(None, gt=0)
    max_node_hours: float | None = Field(None, gt=0)


def sweep_routes(controller: Controller, journal: Journal, paths: StatePaths) -> APIRouter:
    """Return the routes that submit, show and change sweeps."""
    routes = APIRouter()
    state = controller.state

    def shown(sweep: SweepState) -> dict[str, Any]:
        return sweep_lookup.shown(state, sweep, controller.clock.now())

    @routes.post("/v1/sweeps")
    async def _submit(spec: SweepSpec) -> dict[str, Any]:
        _check(spec)
        choice = spec.to_sweep(spec.name).scheduler
        # Its file may do anything, so that not even its import is done here.
        traits = await describe(choice) if is_user_file(choice.name) else None
        job = with_plans(spec.job)
        number = max(state.submitted, len(state.jobs)) + 1
        sweep_id = await in_daemon_thread(paths.new_job, spec.name, number)
        if spec.suggest == "optuna":
            try:
                await in_daemon_thread(check_storage, paths.studies, sweep_id)
            except InputError:
                await in_daemon_thread(paths.job(sweep_id).rmdir)
                raise
        sweep = replace(spec.to_sweep(sweep_id, job), scheduler_traits=traits)
        controller.ask(events.SweepSubmitted(time_s=controller.clock.now(), sweep=sweep))
        return shown(state.sweeps[sweep_id])

    @routes.get("/v1/sweeps")
    async def _sweeps() -> list[dict[str, Any]]:
        return [shown(sweep) for sweep in state.sweeps.values()]

    @routes.get("/v1/sweeps/{name}")
    async def _sweep(name: str) -> dict[str, Any]:
        sweep = sweep_lookup.find(state, name)
        story = journal.story(sweep.search.sweep.id, last=20)
        return {
            **shown(sweep),
            "each": sweep_lookup.trials(state, sweep, controller.clock.now()),
            "story": [{"time_s": time_s, "text": text} for time_s, text in story],
        }

    @routes.patch("/v1/sweeps/{name}")
    async def _extend(name: str, asked: SweepExtension) -> dict[str, Any]:
        sweep = sweep_lookup.find(state, name)
        if sweep.search.phase in ("cancelled", "failed"):
            raise InputError(f"{sweep.search.sweep.id} has ended ({sweep.search.phase}), and cannot be extended.")
        _check_extension(sweep.search.sweep, asked)
        controller.ask(
            events.SweepExtended(
                time_s=controller.clock.now(),
                sweep=sweep.search.sweep.id,
                max_trials=asked.max_trials,
                total_budget=asked.total_budget,
                max_node_hours=asked.max_node_hours,
            )
        )
        return shown(sweep_lookup.find(state, sweep.search.sweep.id))

    @routes.post("/v1/sweeps/{name}/{verb}")
    async def _verb(name: str, verb: str) -> dict[str, Any]:
        return ask(controller, name, verb)

    return routes


def ask(controller: Controller, name: str, verb: str) -> dict[str, Any]:
    """Let a sweep be paused, resumed or cancelled, and return it.

    Raises:
        InputError: There is no such sweep or verb, or the sweep has ended.
    """
    if verb not in _VERBS:
        raise InputError(f"A sweep cannot be asked to {verb}.", next_step=f"It can: {', '.join(_VERBS)}.")
    sweep = sweep_lookup.find(controller.state, name)
    sweep_id = sweep.search.sweep.id
    if sweep.search.phase in ("cancelled", "failed") or (sweep.search.phase == "finished" and verb != "cancel"):
        raise InputError(f"{sweep_id} has ended already ({sweep.search.phase}).")
    controller.ask(_VERBS[verb](time_s=controller.clock.now(), sweep=sweep_id))
    return sweep_lookup.shown(controller.state, controller.state.sweeps[sweep_id], controller.clock.now())


def _check_extension(sweep: Sweep, asked: SweepExtension) -> None:
    """Raise InputError unless each limit that is given is higher than the sweep's."""
    limits: dict[str, tuple[float | None, float | None]] = {
        "max_trials": (sweep.max_trials, asked.max_trials),
        "total_budget": (sweep.total_budget, asked.total_budget),
        "max_node_hours": (sweep.max_node_hours, asked.max_node_hours),
    }
    for name, (now, new) in limits.items():
        if new is not None and now is None:
            raise InputError(f"{name}: {sweep.id} has no such limit.", next_step="Give a limit that it has.")
        if new is not None and now is not None and new <= now:
            raise InputError(f"{name}: {sweep.id} has {now:g} already.", next_step="Give a larger number.")


def _check(spec: SweepSpec) -> None:
    """Raise InputError if the controller cannot run this sweep."""
    if spec.job.env_file is not None:
        raise InputError(
            "job: env_file: the file is read on the machine that submits the sweep.",
            next_step="Give its contents as env.",
        )
    sweep = spec.to_sweep(spec.name)
    name = sweep.scheduler.name
    if is_user_file(name):
        if not Path(name).is_absolute():
            raise InputError(f"scheduler {name}: the path must be absolute.", next_step="Submit it as a file.")
    else:
        load(sweep.scheduler)
    if sweep.suggester == "grid":
        grid_points(sweep.space)
    if sweep.suggester == "optuna":
        check_optuna()
