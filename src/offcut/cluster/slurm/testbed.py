"""A real Slurm of virtual nodes under one directory: for tests, the demo, benchmarks, and experiments.

    python -m offcut.cluster.slurm.testbed DIRECTORY --nodes 8      # until Ctrl-C

It needs slurmctld, slurmd and Slurm's commands (`scripts/install-slurm`), and neither root, munge, systemd nor cgroups:
each node is a slurmd with a port of its own, and everything (configuration, spool, logs) lies in the directory. Two
partitions over all nodes: `main`, the queue's, and `idle`, of a lower tier, whose jobs are cancelled when main wants
their nodes. Nothing here touches another Slurm: the environment variable SLURM_CONF says which one is meant.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from offcut.cluster.slurm.testbed_config import CONTROLLER, FAST_SCHEDULER, SlurmTestbedConfig, write_configuration
from offcut.errors import ClusterError, InputError
from offcut.process.parent_death import die_with_parent

_START_PATIENCE_S = 60.0
_STOP_PATIENCE_S = 5.0


def missing() -> str:
    """Return which of Slurm's programs are not on this machine; empty if all are."""
    programs = ("slurmctld", "slurmd", "sinfo", "squeue", "sbatch", "scancel", "scontrol")
    return ", ".join(name for name in programs if _program(name) is None)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class SlurmTestbed:
    """A running cluster. Its daemons end when the thread that started them does, however it ends."""

    def __init__(self, directory: Path, config: SlurmTestbedConfig) -> None:
        self.directory = directory.resolve()
        self.config = config
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def conf(self) -> Path:
        return self.directory / "slurm.conf"

    @property
    def worker_template(self) -> Path:
        return self.directory / "workers.sock"

    @property
    def env(self) -> dict[str, str]:
        """The environment that leads Slurm's commands to this cluster."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        return {**ours, "SLURM_CONF": str(self.conf)}

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the cluster, with every node idle.

        InputError if Slurm is not installed, ClusterError if it does not start.
        """
        if lacking := missing():
            raise InputError(
                f"Slurm is not installed on this machine: {lacking} not found.",
                next_step="Debian, Ubuntu: scripts/install-slurm",
            )
        for sub in ("state", "spool", "run", "log"):
            (self.directory / sub).mkdir(parents=True, exist_ok=True)
        write_configuration(self.directory, self.config)
        if self.config.worker_template:
            template = [sys.executable, "-m", "offcut.torch.programs.worker_template", str(self.worker_template)]
            self._spawn("workers", [*template, "--preload", ",".join(self.config.preload)])
        try:
            # slurmctld starts first: a slurmd that finds none sleeps a whole second before it tries again.
            self.start_controller()
            for name in self.config.names:
                self.start_node(name)
            self._until("every node idle", lambda: self._idle() == len(self.config.names))
            if self.config.worker_template:
                self._until("the workers' template", self.worker_template.exists)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Cancel every job, end every daemon, and kill what jobs have left."""
        if self._alive(CONTROLLER):
            with suppress(ClusterError, subprocess.TimeoutExpired):
                jobs = self.run("squeue", "--noheader", "--format=%A").split()
                with suppress(ClusterError):  # waiting jobs cannot be sent a signal
                    self.run("scancel", "--full", "--signal=KILL", *jobs)
                self.run("scancel", *jobs)
                self._until("no job left", lambda: not self.run("squeue", "--noheader").strip(), 10.0)
        for process in self._daemons.values():
            process.terminate()
        give_up_s = time.monotonic() + _STOP_PATIENCE_S
        for process in self._daemons.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, give_up_s - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()
        self._daemons.clear()
        for pid in self.strays():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start_controller(self) -> None:
        """Start slurmctld, from the state that the last one saved, if any."""
        # -i: continue if the saved state cannot be read. Only jobs of this test cluster are at stake.
        self._spawn(CONTROLLER, [_program("slurmctld") or "slurmctld", "-D", "-i", "-f", str(self.conf)])
        self._until("slurmctld", self._pings)

    def stop_controller(self, *, crash: bool = False) -> None:
        """Stop slurmctld. Jobs run on, and every command fails. A crash does not save its last changes."""
        if not crash:
            self._daemons[CONTROLLER].terminate()
            with suppress(subprocess.TimeoutExpired):
                self._daemons[CONTROLLER].wait(_STOP_PATIENCE_S)
        self._kill(CONTROLLER)

    def start_node(self, name: str) -> None:
        (self.directory / "spool" / name).mkdir(exist_ok=True)
        self._spawn(name, [_program("slurmd") or "slurmd", "-D", "-N", name, "-f", str(self.conf)])

    def kill_node(self, name: str) -> None:
        """End a node's slurmd by SIGKILL; its job runs on, as it does on a real node."""
        self._kill(name)

    # -- commands and state -------------------------------------------------------------------------------------------

    def run(self, *command: str, stdin: str = "", limit_s: float = 30.0) -> str:
        """Run a command against this cluster and return its output. ClusterError with its message if it fails."""
        done = subprocess.run(
            (*self.config.host(CONTROLLER).enter, *command),
            input=stdin,
            env=self.env,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        if done.returncode:
            raise ClusterError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def submit(self, script: str, *options: str) -> int:
        """Submit a batch job and return its id."""
        command = ("sbatch", "--parsable", "--output=/dev/null", *options)
        return int(self.run(*command, stdin=f"#!/bin/sh\n{script}\n").split(";")[0])

    def state(self, job: int) -> str:
        """Return a job's state, as Slurm calls it; empty if it has forgotten the job."""
        return self.run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").strip()

    def strays(self) -> list[int]:
        """Return live processes of jobs: those whose environment names this cluster and a job, and step managers.

        A step manager writes its title over its environment; it works in the directory of the slurmd that started it.
        """
        wanted = f"SLURM_CONF={self.conf}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if b"slurmstepd" in (entry / "comm").read_bytes():
                    of_job = Path(os.readlink(entry / "cwd")) == self.directory.resolve()
                else:
                    environment = (entry / "environ").read_bytes().split(b"\0")
                    of_job = wanted in environment and any(item.startswith(b"SLURM_JOB_ID=") for item in environment)
                if of_job:
                    found.append(int(entry.name))
            except OSError:
                continue  # gone, or not ours
        return found

    def _idle(self) -> int:
        shown = self.run("sinfo", "--noheader", "--partition=main", "--states=idle", "--format=%D").strip()
        return int(shown or 0)

    def _pings(self) -> bool:
        try:
            return "is UP" in self.run("scontrol", "ping")
        except ClusterError:
            return False

    # -- daemons ----------------------------------------------------------------------------------------------------

    def _spawn(self, name: str, argv: Sequence[str]) -> None:
        with (self.directory / "log" / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                (*self.config.host(name).enter, *argv),
                env={**self.env, "OMP_NUM_THREADS": "1"},
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),  # noqa: PLW1509
            )

    def _kill(self, name: str) -> None:
        process = self._daemons.pop(name)
        process.kill()
        process.wait()

    def _alive(self, name: str) -> bool:
        process = self._daemons.get(name)
        return process is not None and process.poll() is None

    def _until(self, what: str, holds: Callable[[], bool], patience_s: float = _START_PATIENCE_S) -> None:
        give_up_s = time.monotonic() + patience_s
        while not holds():
            dead = [name for name in self._daemons if not self._alive(name)]
            if dead or time.monotonic() > give_up_s:
                said = self._last_words(dead[0] if dead else CONTROLLER)
                raise ClusterError(
                    f"The private Slurm in {self.directory} did not come up (waited for: {what}): {said}",
                    next_step=f"Its logs are in {self.directory / 'log'}.",
                )
            time.sleep(0.02)

    def _last_words(self, name: str) -> str:
        with suppress(OSError):
            return (self.directory / "log" / f"{name}.out").read_text(errors="replace")[-300:].strip()
        return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--grace-s", type=int, default=0, help="GraceTime of the partition idle")
    parser.add_argument("--site-defaults", action="store_true", help="Slurm's own scheduler settings, not fast ones")
    given = parser.parse_args()
    scheduler = "" if given.site_defaults else FAST_SCHEDULER
    config = SlurmTestbedConfig.with_nodes(given.nodes, grace_s=given.grace_s, scheduler=scheduler)
    cluster = SlurmTestbed(given.directory, config)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cluster.start()
        sys.stdout.write(json.dumps({"SLURM_CONF": str(cluster.conf), "nodes": config.names}) + "\n")
        sys.stdout.flush()
        signal.pause()
    except KeyboardInterrupt:
        pass
    except (ClusterError, InputError) as error:
        sys.stderr.write(f"offcut: {error}\n")
        return error.exit_code
    finally:
        cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
