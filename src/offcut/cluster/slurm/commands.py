"""Runs Slurm's commands: argument lists only, a time limit on each, and one sentence when one fails."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress

from offcut.cluster.base import CommandFigures
from offcut.errors import ClusterError, InputError
from offcut.process import clocks

#: What offcut calls; all come with Slurm's client package.
PROGRAMS = ("sinfo", "squeue", "sbatch", "scancel", "scontrol")


#: Variables that say which Slurm is meant, and as whom.
_WHICH_SLURM = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT"})
#: How variables begin that are options of Slurm's commands.
_OPTIONS = ("SLURM_", "SRUN_", "SBATCH_", "SQUEUE_", "SINFO_", "SCANCEL_", "SACCTMGR_")


class CommandError(ClusterError):
    """A command of Slurm failed. `said` is the last line that it printed; `refused`: Slurm answered."""

    def __init__(self, what: str, said: str, *, refused: bool) -> None:
        super().__init__(what)
        self.said = said
        self.refused = refused


def check_installed() -> None:
    """Raise InputError if one of Slurm's commands is not on the PATH."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacking:
        raise InputError(
            f"Slurm is not on this machine: {', '.join(lacking)} not found.",
            next_step="Run the controller on a login node, or load the site's Slurm module.",
        )


class Commands:
    """Slurm's commands, as this account runs them. `env` is added to the environment."""

    def __init__(self, limit_s: float, env: Mapping[str, str] | None = None) -> None:
        self._limit_s = limit_s
        #: By program.
        self.figures: dict[str, CommandFigures] = {}
        # Options that a user keeps in SBATCH_… would change what a pilot is; so would the SLURM_… of a job in which the
        # controller runs.
        ours = {k: v for k, v in os.environ.items() if k in _WHICH_SLURM or not k.startswith(_OPTIONS)}
        # Times in seconds, and the task numbers of job arrays in full.
        self._env = {**ours, "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0", **(env or {})}
        self._files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def _lowered(self) -> tuple[str, ...]:
        """Return what to put before a command so that it has the user's own limit of open files.

        The controller raises its limit, and sbatch hands its limits on to the job.
        """
        if resource.getrlimit(resource.RLIMIT_NOFILE)[0] == self._files:
            return ()
        files = "unlimited" if self._files == resource.RLIM_INFINITY else str(self._files)
        return "/bin/sh", "-c", 'ulimit -S -n "$0" && exec "$@"', files

    async def run(self, command: Sequence[str], stdin: str = "") -> str:
        """Run the command and return what it printed.

        CommandError if it fails, takes too long, or cannot be started.
        """
        figures, began_s = self.figures.setdefault(command[0], CommandFigures()), clocks.steady_s()
        try:
            return await self._run(command, stdin)
        except CommandError:
            figures.failures += 1
            raise
        finally:
            figures.seconds.observe(clocks.steady_s() - began_s)

    async def _run(self, command: Sequence[str], stdin: str) -> str:
        name = command[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *self._lowered(),
                *command,
                env=self._env,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise CommandError(f"{name} could not be started: {error.strerror}.", "", refused=False) from None
        try:
            async with asyncio.timeout(self._limit_s):
                out, err = await process.communicate(stdin.encode())
        except TimeoutError:
            raise CommandError(f"{name} did not answer within {self._limit_s:g} s.", "", refused=False) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            said = (err or out).decode(errors="replace").strip().splitlines()
            last = said[-1].removeprefix(f"{name}: ").removeprefix("error: ") if said else "it said nothing"
            silent = any(word in line for line in said for word in ("ontact slurm", "timed out", "onnect"))
            raise CommandError(f"{name} failed: {last}", last, refused=not silent)
        return out.decode(errors="replace")
