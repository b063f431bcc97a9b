"""Integrals over the time of a replay that concern all jobs together."""

from __future__ import annotations

from collections.abc import Mapping

from offcut.simulate.fluid import FluidOptimum, hull
from offcut.simulate.training import Training


class TimeIntegrals:
    """Idle and used node-seconds, and the work that the running jobs could have done on the idle nodes with free
    resizes.

    The running jobs are those that the controller put into its last allocation problem.
    """

    __slots__ = ("_fluid", "_idle", "_ids", "_since_s", "_used", "_values", "fluid", "idle_s", "usable_s", "used_s")

    def __init__(self, start_s: float) -> None:
        self._since_s = start_s
        self._idle = 0
        self._used = 0
        self._ids: list[str] = []
        self._fluid = FluidOptimum(())
        #: F_J and the number of nodes that it uses, at the present number of idle nodes.
        self._values: tuple[float, float] | None = None
        self.idle_s = 0.0
        self.used_s = 0.0
        #: The integral of F_J(N(t)), in node-seconds of one-node rate, and of the nodes that it takes.
        self.fluid = 0.0
        self.usable_s = 0.0

    def advance(self, now_s: float) -> None:
        """Integrate up to a time; nothing changed since the last call.

        Args:
            now_s: the time, in seconds.
        """
        span_s = now_s - self._since_s
        if span_s <= 0.0:
            return
        self._since_s = now_s
        if self._values is None:
            self._values = self._fluid.rate_on(self._idle), min(self._idle, self._fluid.capacity)
        rate, usable = self._values
        self.idle_s += self._idle * span_s
        self.used_s += self._used * span_s
        self.fluid += rate * span_s
        self.usable_s += usable * span_s

    def set_idle(self, nodes: int) -> None:
        """Set the number of idle nodes.

        Args:
            nodes: the number.
        """
        if nodes != self._idle:
            self._idle = nodes
            self._values = None

    def set_used(self, nodes: int) -> None:
        """Set the number of nodes that jobs hold.

        Args:
            nodes: the number.
        """
        self._used = nodes

    def set_jobs(self, ids: list[str], trainings: Mapping[str, Training]) -> None:
        """Set the running jobs.

        Args:
            ids: the ids of the running jobs.
            trainings: all jobs, by id.
        """
        if ids == self._ids:
            return
        self._ids = ids
        self._fluid = FluidOptimum(hull(trainings[i].speed, trainings[i].job.min_nodes) for i in ids if i in trainings)
        self._values = None
