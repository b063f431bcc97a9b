"""Controllers of several real users on one real Slurm: their shares of its idle nodes, and what they ask of slurmctld.

    sudo python benchmarks/slurm_shares.py [--users nobody,games,daemon,bin,mail] [--interval 30] [--quick] [--json]

It needs root, to be those users, and a Python that they may run (the system's, if this one is in root's home).

Definitions
-----------
Step
    Controllers of 1, 2 and all users, on ten nodes of an otherwise idle Slurm. Each has one job that can use all nodes.
    The controllers of a step are added one after the other to those of the step before.
Equal after
    Seconds from the moment in which the last controller of the step has its job, until every user's number of held
    nodes is within 10 % of an equal share and stays so for a minute (--quick: 20 s); none if it is not within three
    minutes.
Moves
    How often a node that one user had was next held by another, from that moment on.
Ping-pong
    Nodes that went from one user to another and back to the first within 60 s.
Queries per minute
    Remote procedure calls per controller and minute that slurmctld counted for its user (`sdiag`), in the minute after
    that (--quick: 20 s).
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import setting

from offcut.cluster.slurm.testbed import SlurmTestbed
from offcut.cluster.slurm.testbed_config import SlurmTestbedConfig

NODES = 10
TOLERANCE = 0.1
PING_PONG_S = 60.0
START_LIMIT_S = 180.0
WATCH_LIMIT_S = 180.0
PACKAGES = os.pathsep.join(path for path in sys.path if path.endswith(("site-packages", "/src")))
SITE = """\
[slurm]
partition = "idle"
interval_s = {interval_s}
python = "{python}"
"""


@dataclass(frozen=True)
class Step:
    """One row of the table."""

    controllers: int
    equal_after_s: float | None
    held: dict[str, int]
    moves: int
    ping_pong: int
    queries_per_minute: float
    interval_s: float


def python_of_others() -> str:
    """Return a Python that ordinary users may run and that finds offcut."""
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        tried = [python, "-c", "import offcut.cluster.slurm.adapter"]
        with suppress(OSError):
            if not subprocess.run(tried, capture_output=True, check=False, **as_user("nobody", Path("/"))).returncode:
                return python
    sys.exit("slurm_shares: no Python that ordinary users may run finds offcut.")


def as_user(user: str, home: Path, **env: str) -> dict[str, Any]:
    account = pwd.getpwnam(user)
    given = {**os.environ, "HOME": str(home), "PYTHONPATH": PACKAGES, **env}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "cwd": home, "env": given}


class Controller:
    """`offcut up --cluster slurm` of one user, with one job that can use all nodes."""

    def __init__(self, slurm: SlurmTestbed, user: str, root: Path, python: str, interval_s: float) -> None:
        self.user = user
        home = root / user
        home.mkdir()
        account = pwd.getpwnam(user)
        os.chown(home, account.pw_uid, account.pw_gid)
        site = home / "site.toml"
        site.write_text(SITE.format(interval_s=interval_s, python=python))
        self._as = as_user(user, home, SLURM_CONF=slurm.env["SLURM_CONF"])
        self._offcut = (python, "-m", "offcut")
        self._state = ("--state", str(home / "state"))
        options = ("--cluster", "slurm", "--config", str(site), "--profiler", "oracle", *self._state)
        with (home / "log").open("wb") as log:
            self.process = subprocess.Popen((*self._offcut, "up", *options), stdout=log, stderr=log, **self._as)
        wait_for(lambda: self.run("status", "--json").returncode == 0)
        submitted = self.run("submit", str(root / "job.py"), "--sizes", f"1:{NODES}", "--mode", "restart")
        if submitted.returncode:
            sys.exit(f"slurm_shares: {submitted.stderr}")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        argv = (*self._offcut, *command, *self._state)
        return subprocess.run(argv, capture_output=True, text=True, check=False, **self._as)

    def interval_s(self) -> float:
        return float(json.loads(self.run("status", "--json").stdout)["cluster"]["interval_s"])


def wait_for(holds: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + START_LIMIT_S
    while not holds():
        if time.monotonic() > give_up_s:
            sys.exit("slurm_shares: a controller did not start.")
        time.sleep(0.2)


def holders(slurm: SlurmTestbed) -> dict[str, str]:
    """Return the user whose pilot runs on each node that is held."""
    shown = slurm.run("squeue", "--noheader", "--partition=idle", "--states=RUNNING", "--format=%N %u")
    return dict(line.split() for line in shown.splitlines())


def queries(slurm: SlurmTestbed) -> Counter[str]:
    """Return how many remote procedure calls slurmctld has counted for each user."""
    by_user = slurm.run("sdiag").partition("statistics by user")[2]
    return Counter({user: int(n) for user, n in re.findall(r"^\s*(\S+)\s*\(\s*\d+\)\s*count:(\d+)", by_user, re.M)})


def watch(slurm: SlurmTestbed, users: list[str], equal_for_s: float) -> tuple[float | None, Counter[str], int, int]:
    """Watch the nodes until shares have been equal for `equal_for_s`, or the limit is over.

    Returns:
        When shares became equal, who holds how many nodes at the end, moves, and ping-pong.
    """
    began_s = time.monotonic()
    equal_since_s: float | None = None
    #: The users that had each node, and when each got it, the last one at the end.
    owners: dict[str, list[tuple[float, str]]] = {}
    held: Counter[str] = Counter()
    while (now_s := time.monotonic() - began_s) < WATCH_LIMIT_S:
        found = holders(slurm)
        held = Counter(found.values())
        share = NODES / len(users)
        equal = all(abs(held[user] - share) <= TOLERANCE * share for user in users)
        equal_since_s = (now_s if equal_since_s is None else equal_since_s) if equal else None
        for node, user in found.items():
            had = owners.setdefault(node, [])
            if not had or had[-1][1] != user:
                had.append((now_s, user))
        if equal_since_s is not None and now_s - equal_since_s >= equal_for_s:
            break
        time.sleep(0.5)
    moves = sum(len(had) - 1 for had in owners.values())
    back = sum(
        had[i][1] == had[i + 2][1] and had[i + 2][0] - had[i + 1][0] <= PING_PONG_S
        for had in owners.values()
        for i in range(len(had) - 2)
    )
    return equal_since_s, held, moves, back


def measure(users: list[str], interval_s: float, equal_for_s: float, count_s: float) -> list[Step]:
    python = python_of_others()
    root = Path(tempfile.mkdtemp(prefix="slurm-shares-"))
    (root / "slurm").mkdir()
    (root / "job.py").write_text("import time\n\ntime.sleep(36000)\n")
    for path in (root, root / "slurm"):
        path.chmod(0o755)
    slurm = SlurmTestbed(root / "slurm", SlurmTestbedConfig.with_nodes(NODES))
    running: list[Controller] = []
    steps = []
    try:
        slurm.start()
        for count in sorted({1, 2, len(users)}):
            while len(running) < count:
                running.append(Controller(slurm, users[len(running)], root, python, interval_s))
            equal_s, held, moves, back = watch(slurm, users[:count], equal_for_s)
            slurm.run("sdiag", "--reset")
            time.sleep(count_s)
            asked = queries(slurm)
            steps.append(
                Step(
                    controllers=count,
                    equal_after_s=None if equal_s is None else round(equal_s, 1),
                    held=dict(held),
                    moves=moves,
                    ping_pong=back,
                    queries_per_minute=round(sum(asked[one.user] for one in running) / count * 60 / count_s, 1),
                    interval_s=running[0].interval_s(),
                )
            )
            sys.stderr.write(f"{steps[-1]}\n")
    finally:
        for one in running:
            one.process.terminate()
        for one in running:
            with suppress(subprocess.TimeoutExpired):
                one.process.wait(60)
            one.process.kill()
        slurm.stop()
        shutil.rmtree(root, ignore_errors=True)
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--users", default="nobody,games,daemon,bin,mail")
    parser.add_argument("--interval", type=float, default=30.0, metavar="S", help="interval_s of each controller")
    parser.add_argument("--quick", action="store_true", help="under four minutes, with looks every 5 s")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if os.geteuid():
        sys.exit("slurm_shares: needs root, to be other users.")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    users = given.users.split(",")
    interval_s = 5.0 if given.quick else given.interval
    made = setting.made_with(interval_s=interval_s, nodes=NODES)
    steps = measure(users, interval_s, *((20.0, 20.0) if given.quick else (60.0, 60.0)))
    alone, together = steps[0], steps[-1]
    shared = [step.equal_after_s for step in steps[1:]]
    summary = {
        "equal_after_s": None if None in shared else max(s for s in shared if s is not None),
        "ping_pong": sum(step.ping_pong for step in steps),
        "queries_per_minute_alone": alone.queries_per_minute,
        "queries_per_minute_together": together.queries_per_minute,
    }
    if given.json:
        print(json.dumps({"setting": made, "rows": [asdict(step) for step in steps], "summary": summary}, indent=2))
        return
    print(f"{'controllers':>11} {'equal after':>11} {'moves':>5} {'ping-pong':>9} {'queries/min':>11} {'interval':>8}")
    for step in steps:
        after = "never" if step.equal_after_s is None else f"{step.equal_after_s:.0f} s"
        row = f"{step.controllers:>11} {after:>11} {step.moves:>5} {step.ping_pong:>9}"
        print(f"{row} {step.queries_per_minute:>11.1f} {step.interval_s:>6.1f} s")
    print(f"{summary}\n{made}")


if __name__ == "__main__":
    main()
