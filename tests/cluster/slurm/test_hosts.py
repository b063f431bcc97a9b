"""Training across hosts with names, addresses and routes of their own, and a network that does not connect them all.

See `hosts.py` for what they are like. No one sets GLOO_SOCKET_IFNAME here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest
from golden import SCRIPT, STEPS_PER_EPOCH, Pace, assert_same_training, undisturbed

import host_templates
from hosts import LOGIN, Hosts, lacking
from live import kept_if_failed
from offcut.cluster.slurm.testbed import SlurmTestbed, missing
from offcut.cluster.slurm.testbed_config import CONTROLLER, DaemonHost, SlurmTestbedConfig
from offcut.process.parent_death import die_with_parent
from offcut.wire import certificate
from offcut.wire.step_records import StepHistory, history
from slurmed import MARKS, Harvesting

pytestmark = [*MARKS, pytest.mark.timeout(300)]

NODES = ("n01", "n02", "n03")
EPOCHS = 24


@dataclass
class Cluster:
    hosts: Hosts
    slurm: SlurmTestbed
    root: Path

    @property
    def state(self) -> Path:
        return self.root / "state"


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A Slurm whose daemons run on hosts of their own, with a worker template on each."""
    if lacks := missing() or lacking():
        if os.environ.get("CI") == "true":
            pytest.fail(lacks)
        pytest.skip(lacks)
    with kept_if_failed(request, "offcut-hosts-") as root:
        local, state = root / "local", root / "state"
        state.mkdir(mode=0o700)
        hosts = Hosts(root, NODES, hidden=[state], private=[local])
        places = {
            name: DaemonHost(name=host.name, address=host.management, enter=host.enter)
            for name, host in hosts.all.items()
        }
        places[CONTROLLER] = places.pop(LOGIN)
        slurm = SlurmTestbed(root / "slurm", SlurmTestbedConfig(names=NODES, hosts=places))
        pids = [str(hosts.all[name].pid) for name in NODES]
        templates = subprocess.Popen(
            [sys.executable, host_templates.__file__, str(local / "workers.sock"), *pids],
            preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509
        )
        try:
            slurm.start()
            yield Cluster(hosts, slurm, root)
        finally:
            slurm.stop()
            templates.kill()
            templates.wait()
            hosts.stop()


@pytest.fixture(scope="module")
def running(cluster: Cluster) -> Iterator[Harvesting]:
    """A controller on the login node: its state is on a disk of its own, agents dial in over TLS."""
    login = cluster.hosts.login
    certificate.create(cluster.state / "tls", [LOGIN, login.management])
    found = Harvesting(
        cluster.state,
        cluster.slurm,
        *("--share", str(cluster.root / "share"), "--listen", login.management),
        node_dir=str(cluster.root / "local"),
        worker_template=str(cluster.root / "local" / "workers.sock"),
        worker_env={},
    )
    try:
        yield found
        found.stop()
        found.nothing_left()
    finally:
        found.kill_everything()


@pytest.fixture(scope="module")
def reference() -> dict[int, StepHistory]:
    """The steps of a training that nothing disturbs."""
    return undisturbed(EPOCHS)


@dataclass
class Training:
    """A job on up to three nodes, at a pace that leaves time to disturb it."""

    running: Harvesting
    job: str
    pace: Pace

    def until_size(self, size: int) -> None:
        self.running.until(self.job, f"size {size}", self.pace.awaiting(lambda shown: shown["size"] == size))

    def story(self) -> list[str]:
        return self.running.story(self.job)

    def until_story(self, said: str) -> None:
        holds = self.pace.awaiting(lambda _: any(said in told for told in self.story()))
        self.running.until(self.job, said, holds)

    def until_steps(self, more: int) -> None:
        to = self.running.job(self.job)["steps"] + more
        self.running.until(self.job, "progress", self.pace.awaiting(lambda shown: shown["steps"] >= to))

    def check_end(self, reference: dict[int, StepHistory]) -> None:
        """Wait for the end; the steps and losses are those of an undisturbed run."""
        self.pace.to_the_end()
        shown = self.running.until(self.job, "the end", lambda shown: shown["state"] == "finished")
        assert shown["steps"] == EPOCHS * STEPS_PER_EPOCH
        assert_same_training(history(self.running.paths.job(self.job) / "records"), reference)


@pytest.fixture
def start_training(cluster: Cluster, running: Harvesting, tmp_path: Path) -> Iterator[Callable[[], Training]]:
    """`start_training()` submits the job; at the end every host has its links, and no job is left."""
    started = []

    def start() -> Training:
        pace = Pace(tmp_path, EPOCHS * STEPS_PER_EPOCH)
        fields = {"sizes": "1:3", "checkpoint_age_s": 2.0}
        started.append(running.submit(SCRIPT, "--epochs", str(EPOCHS), *pace.options, **fields))
        return Training(running, started[-1], pace)

    yield start
    for host in cluster.hosts.all.values():
        host.set_links("up")
    for job in started:
        if running.job(job)["state"] != "finished":
            running.client.post(f"/v1/jobs/{job}/cancel")


def worker_on(cluster: Cluster, node: str) -> psutil.Process:
    """Return the worker on the node: the child of the worker template there."""
    namespace = os.stat(f"/proc/{cluster.hosts.all[node].pid}/ns/net").st_ino

    def is_there(pid: int) -> bool:
        return os.stat(f"/proc/{pid}/ns/net").st_ino == namespace

    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if host_templates.__file__ in process.cmdline() and is_there(process.pid) and is_there(process.ppid()):
                return process
    raise AssertionError(f"no worker on {node}")


def test_hosts_are_like_a_site_s(cluster: Cluster) -> None:
    """The other tests prove nothing if the hosts are not what they are meant to be."""
    hosts = cluster.hosts
    for name, host in hosts.all.items():
        assert host.run("hostname").strip() == name
        assert host.run("getent", "ahostsv4", name).split()[0] == "127.0.1.1"
    first, second = hosts.all["n01"], hosts.all["n02"]
    (port,) = re.findall(r"^NodeName=n02 .* Port=(\d+)", cluster.slurm.conf.read_text(), re.MULTILINE)
    assert first.reaches(second.data, port), "slurmd listens at all addresses"
    assert hosts.login.reaches(second.management, port)
    assert not first.reaches(second.management, port)
    assert first.run("ls", str(cluster.state)) == ""
    assert first.run("ls", str(cluster.slurm.directory))


def test_grows_gives_way_survives_a_kill_and_finishes_as_if_undisturbed(
    cluster: Cluster, start_training: Callable[[], Training], reference: dict[int, StepHistory]
) -> None:
    training = start_training()
    training.until_size(3)
    training.until_steps(5)
    main = cluster.slurm.submit("exec sleep 600", "--partition=main", "--nodes=2")
    given_way = training.pace.awaiting(lambda _: cluster.slurm.state(main) == "RUNNING")
    training.running.until(training.job, "the main job to run", given_way)
    training.until_size(1)
    cluster.slurm.run("scancel", str(main))
    training.until_size(3)
    training.until_steps(5)
    worker_on(cluster, "n02").kill()
    training.until_steps(20)
    training.until_size(3)
    training.check_end(reference)


def test_a_node_whose_links_are_down_for_a_while_costs_no_step(
    cluster: Cluster, start_training: Callable[[], Training], reference: dict[int, StepHistory]
) -> None:
    training = start_training()
    training.until_size(3)
    training.until_steps(5)
    host = cluster.hosts.all["n03"]
    host.set_links("down")
    training.until_size(2)
    training.until_steps(20)
    host.set_links("up")
    training.until_size(3)
    training.until_steps(5)
    training.check_end(reference)


def test_a_job_goes_on_without_a_node_that_the_others_cannot_reach(
    cluster: Cluster, start_training: Callable[[], Training], reference: dict[int, StepHistory]
) -> None:
    host = cluster.hosts.all["n03"]
    host.set_links("down", "data")
    training = start_training()
    training.until_story("goes on without n03")
    training.until_steps(20)
    host.set_links("up", "data")
    # A slow machine may have tried it three times by now, and set it aside.
    training.running.client.post("/v1/forgive", {"nodes": ["n03"]})
    training.until_size(3)
    training.until_steps(5)
    training.check_end(reference)
    # Whichever of the three speaks first.
    assert any("cannot connect to" in told and "No route to host" in told for told in training.story())


@pytest.mark.ci
def test_a_script_without_offcut_meets_over_the_interface_that_is_set(cluster: Cluster, running: Harvesting) -> None:
    script = SCRIPT.with_name("ddp_train.py")
    env = {"GLOO_SOCKET_IFNAME": "data"}
    job = running.submit(script, "--steps", "30", mode="restart", sizes="3", step_records=False, env=env)
    running.until(job, "the end", lambda shown: shown["state"] == "finished")
    (trail, *_) = (running.paths.job(job) / "trail").glob("*-0.jsonl")
    lines = [json.loads(line) for line in trail.read_text().splitlines()]
    assert lines[0]["world"] == 3
    assert lines[-1]["step"] == 30


@pytest.mark.ci
def test_agents_find_a_controller_that_was_killed_and_started_again(
    running: Harvesting, start_training: Callable[[], Training], reference: dict[int, StepHistory]
) -> None:
    training = start_training()
    training.until_size(3)
    training.until_steps(5)
    pilots = running.pilots()
    running.process.kill()
    running.process.wait()
    running.start()
    training.until_steps(5)
    assert running.pilots() == pilots, "the same pilots"
    training.check_end(reference)
