"""The job of a trial: that of its sweep, with the trial's parameters. Pure."""

from __future__ import annotations

import json
from dataclasses import replace

from offcut.control.sweep_state import trial_job_id
from offcut.model import Job
from offcut.model.search_space import ParameterValue, ParameterValues
from offcut.model.sweep import Sweep
from offcut.search.schedulers.load import scheduler_of
from offcut.wire.worker_env import ENV_MAX_BUDGET, ENV_PARAMETERS


def trial_job(sweep: Sweep, number: int, parameters: ParameterValues, leg: int = 0) -> Job:
    """Return the job of a trial: the sweep's, with the trial's parameters.

    Args:
        sweep: the sweep.
        number: the trial's number.
        parameters: the trial's parameters.
        leg: how often the trial was given another trial's state.
    """
    arguments = tuple(f"--{name}={_shown(value)}" for name, value in parameters.items()) if sweep.arguments else ()
    env = {
        **dict(sweep.job.env),
        ENV_PARAMETERS: json.dumps(parameters),
        ENV_MAX_BUDGET: f"{scheduler_of(sweep).max_budget:g}",
    }
    return replace(
        sweep.job,
        id=trial_job_id(sweep.id, number, leg),
        name=trial_job_id(sweep.name, number, leg),
        command=(*sweep.job.command, *arguments),
        env=tuple(sorted(env.items())),
        family=sweep.job.family or sweep.id,
    )


def _shown(value: ParameterValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)
