"""A private Slurm for tests, and a controller that harvests it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from live import Running, command_of, kept_if_failed, wait_for
from offcut.cluster.slurm.testbed import SlurmTestbed, missing
from offcut.cluster.slurm.testbed_config import CONTROLLER, SlurmTestbedConfig

#: For modules of tests that need one: one such module at a time.
MARKS = [pytest.mark.slurm, pytest.mark.live, pytest.mark.xdist_group("slurm")]

#: Everything as quick as one machine allows.
QUICK = {
    "partition": "idle",
    "interval_s": 0.5,
    "pending_limit_s": 60.0,
    "bench_s": 2.0,
    "worker_env": {"GLOO_SOCKET_IFNAME": "lo"},
}


@pytest.fixture
def private_slurm(request: pytest.FixtureRequest) -> Iterator[Callable[..., SlurmTestbed]]:
    """`private_slurm(nodes=3, …)` starts a Slurm; nothing of it or of its jobs is left at the end."""
    if lacking := missing():
        said = f"Slurm is not installed here ({lacking} not found): run scripts/install-slurm"
        if os.environ.get("CI") == "true":
            pytest.fail(said)
        pytest.skip(said)
    started: list[SlurmTestbed] = []
    with ExitStack() as directories:

        def start(nodes: int, **config: object) -> SlurmTestbed:
            root = directories.enter_context(kept_if_failed(request, "offcut-slurm-"))
            cluster = SlurmTestbed(root, SlurmTestbedConfig.with_nodes(nodes, **config))
            started.append(cluster)
            cluster.start()
            return cluster

        yield start
        for cluster in started:
            cluster.stop()


def write_site(path: Path, **fields: object) -> Path:
    """A configuration file with a table [slurm]: QUICK's fields and these."""
    table = {**QUICK, **fields}
    lines = [f"{name} = {_toml(value)}" for name, value in table.items() if not isinstance(value, dict)]
    for name, value in table.items():
        if isinstance(value, dict):
            lines += [f"[slurm.{name}]", *(f"{key} = {_toml(item)}" for key, item in value.items())]
    path.write_text("\n".join(["[slurm]", *lines]) + "\n")
    return path


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value) if isinstance(value, int | float) else f'"{value}"'


class Harvesting(Running):
    """`offcut up --cluster slurm` on a private Slurm, on the host of its slurmctld."""

    def __init__(self, root: Path, slurm: SlurmTestbed, *options: str, **site: object) -> None:
        self.slurm = slurm
        template = {"worker_template": str(slurm.worker_template)} if slurm.config.worker_template else {}
        self._site = write_site(root / "site.toml", **{**template, **site})
        super().__init__(root, 0, *options)

    def launch(self, *program: str) -> None:
        command = [*self.slurm.config.host(CONTROLLER).enter, *program, *self._options]
        command += ["--cluster", "slurm", "--config", str(self._site)]
        command += ["--state", str(self.paths.root), "--log-json", "--profiler", "oracle"]
        with (self.paths.root / "controller.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env=self.slurm.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._connect()

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `offcut …` against this controller."""
        enter = self.slurm.config.host(CONTROLLER).enter
        command = [*enter, sys.executable, "-m", "offcut", *arguments, "--state", str(self.paths.root)]
        return subprocess.run(command, env=self.slurm.env, capture_output=True, text=True, check=False)

    def pilots(self) -> dict[str, str]:
        """Return our pilots that Slurm has not ended: job id to state and node."""
        shown = self.slurm.run("squeue", "--noheader", "--partition=idle", "--format=%i %T:%N")
        return dict(line.split(" ", 1) for line in shown.splitlines())

    def log_text(self) -> str:
        return (self.paths.root / "controller.log").read_text()

    def agents_of_pilots(self) -> list[psutil.Process]:
        mark = str(self.paths.root)
        commands = ((process, command_of(process)) for process in psutil.process_iter())
        return [process for process, command in commands if "-m offcut.agent " in command and mark in command]

    def nothing_left(self) -> None:
        """Return whether no pilot and no process of a job is left."""
        wait_for("no pilot left", lambda: not self.pilots())
        wait_for("no stray process", lambda: not self.slurm.strays() and not self._workers_of_template())

    def _workers_of_template(self) -> list[psutil.Process]:
        mark = str(self.slurm.directory)
        found = []
        for process in psutil.process_iter():
            if "offcut.torch.programs.worker_template" in (command := command_of(process)) and mark in command:
                with suppress(psutil.Error):
                    found += process.children(recursive=True)
        return found


@pytest.fixture
def harvest(state_dir: Path) -> Iterator[Callable[..., Harvesting]]:
    """`harvest(slurm, **site)` starts a controller on it; at the end it is stopped, and nothing may be left."""
    started: list[Harvesting] = []

    def start(slurm: SlurmTestbed, **site: object) -> Harvesting:
        started.append(Harvesting(state_dir, slurm, **site))
        return started[-1]

    yield start
    try:
        for running in started:
            running.stop()
            running.nothing_left()
    finally:
        for running in started:
            running.kill_everything()
