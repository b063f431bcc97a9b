"""The job by which a controller asks the others for nodes: due later, and withdrawn before."""

from __future__ import annotations

from offcut.cluster.slurm.pilot_commands import PilotCommands
from offcut.cluster.slurm.pilot_script import PilotOptions
from offcut.errors import ClusterError

#: When a request is due. It does nothing if it ever starts: its controller died before it could withdraw it.
_DUE_S = 600.0
_RENEWED_S = _DUE_S - 120.0
#: A request that Slurm refused is made again after this.
_REFUSED_S = 300.0


class ShareRequest:
    """At most one such job. The others see it in the queue, and release nodes above their shares."""

    def __init__(self, commands: PilotCommands) -> None:
        self._commands = commands
        self._nodes = 0
        self._submitted_s = 0.0
        self._refused_until_s = 0.0
        self._busy = False
        #: Slurm's number of the job; None while there is none.
        self.job: str | None = None
        #: Why Slurm refused the last one; empty if it did not.
        self.refused = ""

    @property
    def jobs(self) -> tuple[str | None, ...]:
        """Its job, as Slurm numbers it; None stands for one whose number is not known yet."""
        return (None,) if self._busy else (self.job,) if self.job is not None else ()

    def ask(self, options: PilotOptions, nodes: int, now_s: float) -> None:
        """Ask for `nodes` more nodes; 0 withdraws. Returns at once.

        A request is made again only where the number is another by more than half, or the job would be due soon.
        """
        if self._busy or (nodes and now_s < self._refused_until_s):
            return
        fits = self._nodes / 2 <= nodes <= self._nodes * 2 if nodes and self._nodes else nodes == self._nodes
        if fits and (not nodes or now_s - self._submitted_s < _RENEWED_S):
            return
        self._busy = True
        self._commands.run_in_background(self._replace(options, nodes, now_s))

    async def _replace(self, options: PilotOptions, nodes: int, now_s: float) -> None:
        before, self.job = self.job, None
        try:
            if nodes:
                self.job = await self._commands.submit_request(options, nodes, _DUE_S)
            self._nodes, self._submitted_s, self.refused = nodes, now_s, ""
        except ClusterError as error:
            self._nodes, self._refused_until_s, self.refused = 0, now_s + _REFUSED_S, str(error)
        finally:
            if before is not None:
                self._commands.cancel((), [before])
            self._busy = False
