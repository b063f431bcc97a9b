"""The Python API of a running controller, for scripts and notebooks: `controller = offcut.client.connect()`.

The command line uses the same classes. A call returns when the controller has answered, also inside a running event
loop; what goes wrong is an `OffcutError` with one sentence.

- `controller`: connecting; submitting jobs and sweeps; finding them; nodes
- `job`: one job: its state, wait, pause, resume, cancel, its log and its losses
- `sweep`: one sweep: following it, its best trial, its trials, extending it
- `connection`: requests to the API, and waiting for a controller that is restarted
- `specs`: makes the models that are submitted of files, dictionaries and keyword arguments
- `log_follow`: reads logs while they are written; `log_tail`: the last lines of a log
- `logged_values`: what a script has logged under a name
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offcut.client.controller import Controller, connect
from offcut.client.job import Job
from offcut.client.sweep import Sweep, SweepEvent

if TYPE_CHECKING:
    from offcut.wire.jobspec import JobSpec
    from offcut.wire.sweepspec import ParameterSpec, SweepSpec

__all__ = ["Controller", "Job", "JobSpec", "ParameterSpec", "Sweep", "SweepEvent", "SweepSpec", "connect"]

#: Imported when they are used, because pydantic takes longer to import than everything else here.
_MODELS = {"JobSpec": "jobspec", "ParameterSpec": "sweepspec", "SweepSpec": "sweepspec"}


def __getattr__(name: str) -> Any:
    if name not in _MODELS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"offcut.wire.{_MODELS[name]}"), name)
