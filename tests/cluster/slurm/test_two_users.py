"""Controllers of two ordinary users on one real Slurm: they share its idle nodes, and obey the site's file."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import pytest

from live import wait_for
from offcut.cluster.slurm.site_rules import ENV_SITE_FILE
from offcut.cluster.slurm.testbed import SlurmTestbed, missing
from slurmed import MARKS, write_site

pytestmark = [*MARKS, pytest.mark.ci, pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be other users")]

USERS = ("nobody", "games")
NODES = 6


#: Where this test's packages are; for an interpreter that others may run, which need not be this one.
PACKAGES = os.pathsep.join(path for path in sys.path if path.endswith(("site-packages", "/src")))


@cache
def python_of_others() -> str:
    """Return a Python that ordinary users may run, with what this one can import. Skips where there is none."""
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        with suppress(OSError):
            tried = subprocess.run(
                [python, "-c", "import offcut.cluster.slurm.adapter"],
                user=65534,
                group=65534,
                extra_groups=[],
                cwd="/",
                env={"PYTHONPATH": PACKAGES},
                capture_output=True,
                check=False,
            )
            if tried.returncode == 0:
                return python
    pytest.skip("no Python that ordinary users may run")


class OfUser:
    """The controller of one user, who is not root."""

    def __init__(self, slurm_env: dict[str, str], user: str, root: Path, site_file: Path | None = None) -> None:
        self._account = pwd.getpwnam(user)
        self._home = root / user
        self._home.mkdir()
        os.chown(self._home, self._account.pw_uid, self._account.pw_gid)
        self._state = self._home / "state"
        self._env = {**slurm_env, "HOME": str(self._home), "PYTHONPATH": PACKAGES}
        if site_file is not None:
            self._env[ENV_SITE_FILE] = str(site_file)
        config = write_site(self._home / "site.toml", pending_limit_s=20.0, interval_s=1.0, python=python_of_others())
        command = (
            "up",
            "--cluster",
            "slurm",
            "--config",
            str(config),
            "--state",
            str(self._state),
            "--profiler",
            "oracle",
        )
        with (self._home / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [python_of_others(), "-m", "offcut", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._as(),
            )

    def _as(self) -> dict[str, object]:
        uid, gid = self._account.pw_uid, self._account.pw_gid
        return {"user": uid, "group": gid, "extra_groups": [], "env": self._env, "cwd": self._home}

    def __call__(self, *command: str) -> subprocess.CompletedProcess[str]:
        argv = [python_of_others(), "-m", "offcut", *command, "--state", str(self._state)]
        return subprocess.run(argv, **self._as(), capture_output=True, text=True, check=False)

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log()
        return self("status", "--json").returncode == 0

    def status(self) -> dict[str, object]:
        return dict(json.loads(self("status", "--json").stdout)["cluster"])

    def log(self) -> str:
        return (self._home / "log").read_text()


@contextmanager
def controllers(slurm: SlurmTestbed, root: Path, site_file: Path) -> Iterator[Callable[[str], OfUser]]:
    started: list[OfUser] = []

    def start(user: str) -> OfUser:
        started.append(OfUser(slurm.env, user, root, site_file))
        wait_for(f"the controller of {user}", started[-1].answers)
        return started[-1]

    try:
        yield start
        for one in started:
            one.process.terminate()
        for one in started:
            assert one.process.wait(60) == 0, one.log()
        wait_for("no pilot left", lambda: not pilots(slurm))
        wait_for("no stray process", lambda: slurm.strays() == [])
    finally:
        for one in started:
            one.process.kill()
            one.process.wait()


def pilots(slurm: SlurmTestbed) -> Counter[str]:
    """Return how many nodes each user holds."""
    return Counter(slurm.run("squeue", "--noheader", "--partition=idle", "--states=R", "--format=%u").split())


@pytest.mark.timeout(400)
def test_two_users_share_what_is_idle_and_obey_the_site(private_slurm: Callable, state_dir: Path) -> None:
    slurm = private_slurm(nodes=NODES)
    for directory in (slurm.directory, state_dir):
        directory.chmod(0o755)
    site_file = state_dir / "rules.toml"
    site_file.write_text("")
    script = state_dir / "sleep.py"
    script.write_text("import time\ntime.sleep(600)\n")
    for path in (site_file, script):
        path.chmod(0o644)
    submit = ("submit", str(script), "--sizes", f"1:{NODES}", "--mode", "restart")
    with controllers(slurm, state_dir, site_file) as start:
        first = start(USERS[0])
        assert first(*submit).returncode == 0
        wait_for("all nodes of one user", lambda: pilots(slurm) == {USERS[0]: NODES})
        alone_s = first.status()["interval_s"]
        second = start(USERS[1])
        assert second(*submit).returncode == 0
        wait_for("equal shares", lambda: pilots(slurm) == dict.fromkeys(USERS, NODES // 2), 120.0)
        wait_for("no request", lambda: slurm.run("squeue", "--noheader", "--states=PD", "--format=%i") == "")
        assert first.status()["controllers"] == second.status()["controllers"] == 2
        assert first.status()["interval_s"] > alone_s, "each asks Slurm less often than one alone"
        site_file.write_text("claim = false\nreason = 'maintenance'\n")
        wait_for("no pilot", lambda: not pilots(slurm))
        for one in (first, second):
            assert "forbid claims (maintenance)" in one("why", "sleep").stdout
            one("release", "--undo")
        assert not pilots(slurm), "no user undoes it"
        site_file.write_text("max_nodes = 2\n")
        wait_for("nodes up to the cap", lambda: sum(pilots(slurm).values()) == 2)


def test_slurm_and_controller_of_one_ordinary_user(state_dir: Path) -> None:
    if lacking := missing():
        pytest.skip(f"Slurm is not installed here ({lacking} not found)")
    state_dir.chmod(0o755)
    user = pwd.getpwnam(USERS[0])
    directory = state_dir / "slurm"
    directory.mkdir()
    os.chown(directory, user.pw_uid, user.pw_gid)
    env = {"PATH": f"{os.environ['PATH']}:/usr/sbin", "PYTHONPATH": PACKAGES, "HOME": str(directory)}
    testbed = subprocess.Popen(
        [python_of_others(), "-m", "offcut.cluster.slurm.testbed", str(directory), "--nodes", "2"],
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
        cwd=state_dir,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert testbed.stdout is not None
        slurm_env = {**env, "SLURM_CONF": json.loads(testbed.stdout.readline())["SLURM_CONF"]}

        def running() -> list[str]:
            command = ("squeue", "--noheader", "--states=R", "--format=%u")
            return subprocess.run(command, env=slurm_env, capture_output=True, text=True, check=True).stdout.split()

        script = state_dir / "sleep.py"
        script.write_text("import time\ntime.sleep(600)\n")
        script.chmod(0o644)
        one = OfUser(slurm_env, USERS[0], state_dir)
        try:
            wait_for("the controller", one.answers)
            assert one("submit", str(script), "--sizes", "1:2", "--mode", "restart").returncode == 0
            wait_for("both pilots", lambda: running() == [USERS[0]] * 2)
            one.process.terminate()
            assert one.process.wait(60) == 0, one.log()
            assert running() == []
        finally:
            one.process.kill()
            one.process.wait()
    finally:
        testbed.terminate()
        testbed.wait(60)
