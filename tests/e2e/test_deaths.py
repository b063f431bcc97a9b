"""Everything but the controller dies, hangs or misbehaves."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from golden import SCRIPT, STEPS_PER_EPOCH, Pace, assert_same_training, undisturbed

from live import Running, prepare_nodes, shared_controller, wait_for
from offcut.wire.step_records import history

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-3")]

AWKWARD = Path(__file__).with_name("awkward.py")
EPOCHS = 24
NODES = ["n01", "n02"]


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A controller of two nodes with short waits after a failure, which the tests share that need no other settings."""
    config = tmp_path_factory.mktemp("config") / "offcut.toml"
    config.write_text("[settings]\nretry_wait_s = 0.1\n")
    with shared_controller(request, len(NODES), "--config", str(config)) as running:
        yield running


@pytest.fixture
def configured(state_dir: Path) -> Callable[..., tuple[str, str]]:
    """`configured(**settings)`: options of a controller with these settings, and short waits after a failure."""

    def write(**settings: float) -> tuple[str, str]:
        path = state_dir / "offcut.toml"
        lines = [f"{name} = {value}\n" for name, value in {"retry_wait_s": 0.1, **settings}.items()]
        path.write_text("".join(["[settings]\n", *lines]))
        return "--config", str(path)

    return write


def template(running, name: str) -> psutil.Process:
    """The fork server itself: the parent of what it forked."""
    servers = [p for p in running.processes() if name in " ".join(p.cmdline())]
    pids = {process.pid for process in servers}
    return next(process for process in servers if process.ppid() not in pids)


def start_training(running: Running, directory: Path) -> tuple[str, Pace]:
    """Start a training on two nodes."""
    prepare_nodes(running, NODES)
    pace = Pace(directory, EPOCHS * STEPS_PER_EPOCH)
    job = running.submit(SCRIPT, "--epochs", str(EPOCHS), *pace.options, sizes="1:2", checkpoint_age_s=1.0)
    running.until(job, "training", pace.awaiting(lambda shown: shown["size"] == 2 and shown["steps"] > 60))
    return job, pace


def assert_ends_as_undisturbed(running, job: str, pace: Pace) -> None:
    pace.to_the_end()
    running.until(job, "the end", lambda shown: shown["state"] == "finished")
    assert_same_training(history(running.paths.job(job) / "records"), undisturbed(EPOCHS))


def test_template_dies_and_all_workers_with_it(running: Running, tmp_path: Path) -> None:
    job, pace = start_training(running, tmp_path)
    template(running, "offcut.torch.programs.worker_template").kill()
    assert_ends_as_undisturbed(running, job, pace)


def test_rendezvous_store_dies_and_is_replaced(running: Running, tmp_path: Path) -> None:
    job, pace = start_training(running, tmp_path)
    psutil.Process(json.loads(running.paths.rendezvous.read_text())["pid"]).kill()
    running.client.post("/v1/nodes/want", {"nodes": ["n01"]})
    running.until(job, "one node", pace.awaiting(lambda shown: shown["size"] == 1))
    running.client.post("/v1/nodes/offer", {"nodes": ["n01"]})
    running.until(job, "two nodes again", pace.awaiting(lambda shown: shown["size"] == 2))
    assert_ends_as_undisturbed(running, job, pace)


@pytest.mark.ci
def test_all_nodes_die_at_once(running: Running, tmp_path: Path) -> None:
    job, pace = start_training(running, tmp_path)
    for agent in running.agents():
        agent.kill()
    assert_ends_as_undisturbed(running, job, pace)


def test_a_frozen_worker_is_killed_and_the_others_go_on(running: Running, tmp_path: Path) -> None:
    job, pace = start_training(running, tmp_path)
    running.workers()[0].send_signal(signal.SIGSTOP)
    running.until(job, "going on without it", lambda _: any("froze" in text for text in running.story(job)))
    assert_ends_as_undisturbed(running, job, pace)


def test_a_script_that_hangs_in_the_middle_fails_with_the_reason(running: Running) -> None:
    prepare_nodes(running, NODES)
    job = running.submit(AWKWARD, "stuck", sizes="1:2", max_failures=1, hang_limit_s=3.0)
    shown = running.until(job, "its failure", lambda shown: shown["state"] == "failed")
    assert "did not return to its session for 3 s" in shown["reason"]


def test_a_bad_node_is_set_aside_and_the_job_trains_on_the_others(up: Callable, configured: Callable) -> None:
    running = up(2, *configured())
    running.client.post("/v1/nodes/want", {"nodes": ["n02"]})
    job = running.submit(SCRIPT, "--epochs", "900", "--pace", "0.05", "--bad-node", "n02", sizes="1:2", max_failures=0)
    running.until(job, "training", lambda shown: shown["steps"] > 5)
    running.client.post("/v1/nodes/offer", {"nodes": ["n02"]})
    aside = wait_for("the bad node to be set aside", lambda: running.client.get("/v1/status")["aside"])
    assert [node["name"] for node in aside] == ["n02"]
    assert "3 starts in a row failed on it" in aside[0]["reason"]
    assert "there is no such device on n02" in aside[0]["reason"]
    assert any("n02 is set aside" in line for line in running.client.get(f"/v1/jobs/{job}/why")["words"])
    steps = running.job(job)["steps"]
    shown = running.until(job, "going on without it", lambda shown: shown["steps"] > steps + 5)
    assert (shown["nodes"], shown["failures"]) == (["n01"], 0)


def test_a_node_that_never_boots_is_released(up: Callable, configured: Callable) -> None:
    # The agent that boots in the end is under the same limit: on a busy machine it may take more than one start.
    running = up(1, *configured(boot_limit_s=5.0, forgiven_starts=100))
    template(running, "offcut.agent.template").send_signal(signal.SIGSTOP)
    job = running.submit(SCRIPT, sizes="1")
    running.until(job, "giving up", lambda _: any("did not boot" in text for text in running.story(job)))
    template(running, "offcut.agent.template").send_signal(signal.SIGCONT)
    running.until(job, "the end", lambda shown: shown["state"] == "finished")


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("early", "ended before its session did"),
        ("import", "No module named 'there_is_no_such_module'"),
    ],
)
def test_a_script_that_never_trains_fails_with_the_reason(running: Running, what: str, reason: str) -> None:
    prepare_nodes(running, NODES[:1])
    fails_and_another_trains(running, what, reason, max_failures=1)


@pytest.mark.ci
def test_a_script_that_is_never_ready_fails_with_the_reason(up: Callable, configured: Callable) -> None:
    fails_and_another_trains(up(1, *configured(ready_limit_s=20.0)), "hang", "not ready within 20 s", max_failures=0)


def fails_and_another_trains(running: Running, what: str, reason: str, max_failures: int) -> None:
    job = running.submit(AWKWARD, what, sizes="1", max_failures=max_failures)
    shown = running.until(job, "its failure", lambda shown: shown["state"] == "failed")
    assert reason in shown["reason"]
    other = running.submit(SCRIPT, sizes="1")
    running.until(other, "another job's end", lambda shown: shown["state"] == "finished")
