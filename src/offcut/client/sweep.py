"""One sweep of a controller."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from offcut.client.connection import Connection, sweep_path
from offcut.errors import WaitTimeoutError

#: How often the controller is asked.
_ASK_S = 0.5
_LIVE = ("running", "paused")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEvent:
    """What has changed in a sweep.

    Attributes:
        kind: `trial`: a trial has started, changed its state or reported; `best`: there is a better trial; `state`: the
            sweep is paused, runs again, or has ended.
        sweep: the sweep's status.
        trial: of a `trial` its row, as `Sweep.trials` has it; of a `best` what `Sweep.best` returns.
    """

    kind: Literal["trial", "best", "state"]
    sweep: dict[str, Any] = field(repr=False)
    trial: dict[str, Any] | None = None


class Sweep:
    """A sweep by its id or name. Of several sweeps of one name it is the newest that lives, else the newest.

    Attributes:
        name: the id or name by which the controller is asked.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self.name = name
        self._connection = connection

    def __repr__(self) -> str:
        return f"<Sweep {self.name}>"

    def status(self) -> dict[str, Any]:
        """Return the sweep as `offcut sweeps NAME --json` shows it, with each of its trials."""
        shown: dict[str, Any] = self._connection.get(sweep_path(self.name))
        return shown

    @property
    def state(self) -> str:
        """The sweep's state now: `running`, `paused`, `finished`, `failed` or `cancelled`."""
        state: str = self.status()["state"]
        return state

    def best(self) -> dict[str, Any] | None:
        """Return the best trial so far; None before the first report.

        Returns:
            Its `trial` number, `job`, `value`, `budget` and `parameters`.
        """
        best: dict[str, Any] | None = self.status()["best"]
        return best

    def trials(self) -> list[dict[str, Any]]:
        """Return one flat row for each trial, in order: `pandas.DataFrame(sweep.trials())` is a table.

        Returns:
            Rows with `trial`, `job`, `state`, `reason`, `budget`, `value`, and one column `params_NAME` for each
            parameter of any trial; a parameter that a trial does not have is None.
        """
        return _rows(self.status())

    # -- changes ----------------------------------------------------------------------------------------------------

    def pause(self) -> dict[str, Any]:
        """Halt all trials; they keep their state. Return the sweep's status."""
        return self._post("pause")

    def resume(self) -> dict[str, Any]:
        """Resume the sweep if it is paused. Return its status."""
        return self._post("resume")

    def cancel(self) -> dict[str, Any]:
        """End the sweep and its trials now. Return its status."""
        return self._post("cancel")

    def extend(
        self, *, max_trials: int | None = None, total_budget: float | None = None, max_node_hours: float | None = None
    ) -> dict[str, Any]:
        """Let the sweep run longer, also one that has finished. Return its status.

        Args:
            max_trials: at most this many trials in all; None: as before.
            total_budget: at most this much budget in all; None: as before.
            max_node_hours: at most this many node-hours in all; None: as before.
        """
        shown: dict[str, Any] = self._connection.patch(
            sweep_path(self.name),
            {"max_trials": max_trials, "total_budget": total_budget, "max_node_hours": max_node_hours},
        )
        return shown

    # -- waiting ----------------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Wait until the sweep has ended, also while its controller is restarted. Return its status.

        Args:
            timeout_s: give up after this many seconds; None: wait for as long as it takes.

        Raises:
            WaitTimeoutError: the sweep has not ended in time.
        """
        until_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        path = sweep_path(self.status()["id"])
        while (shown := self._connection.get_patiently(path, until_s))["state"] in _LIVE:
            if time.monotonic() >= until_s:
                raise WaitTimeoutError(f"{shown['id']} has not ended within {timeout_s:g} s: it is {shown['state']}.")
            time.sleep(max(0.0, min(_ASK_S, until_s - time.monotonic())))
        told: dict[str, Any] = shown
        return told

    def follow(self) -> Iterator[SweepEvent]:
        """Yield what happens in the sweep until it has ended, beginning with what has happened so far.

        The controller is asked every half second, also while it is restarted. What changed between two answers comes as
        one event for each trial.
        """
        path = sweep_path(self.status()["id"])
        last: dict[str, Any] = {"state": None, "best": None, "each": []}
        while True:
            shown = self._connection.get_patiently(path)
            yield from _events(last, shown)
            if shown["state"] not in _LIVE:
                return
            last = shown
            time.sleep(_ASK_S)

    def _post(self, verb: str) -> dict[str, Any]:
        shown: dict[str, Any] = self._connection.post(sweep_path(self.name, verb))
        return shown


def _rows(shown: dict[str, Any]) -> list[dict[str, Any]]:
    each = shown["each"]
    names = list(dict.fromkeys(name for trial in each for name in trial["parameters"] or {}))
    return [_row(trial, names) for trial in each]


def _row(trial: dict[str, Any], names: list[str]) -> dict[str, Any]:
    columns = ("trial", "job", "state", "reason", "budget", "value")
    parameters = trial["parameters"] or {}
    return {column: trial[column] for column in columns} | {f"params_{name}": parameters.get(name) for name in names}


def _events(before: dict[str, Any], shown: dict[str, Any]) -> Iterator[SweepEvent]:
    """Yield how two answers about a sweep differ."""
    known = {trial["trial"]: trial for trial in before["each"]}
    rows = _rows(shown)
    for trial, row in zip(shown["each"], rows, strict=True):
        # Node-hours grow all the time.
        if {**known.get(trial["trial"], {}), "node_hours": 0} != {**trial, "node_hours": 0}:
            yield SweepEvent(kind="trial", sweep=shown, trial=row)
    if shown["best"] is not None and shown["best"] != before["best"]:
        yield SweepEvent(kind="best", sweep=shown, trial=shown["best"])
    if shown["state"] != before["state"]:
        yield SweepEvent(kind="state", sweep=shown)
