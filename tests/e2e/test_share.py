"""`--share` is what agents see, `--state` is the controller's own; and one controller at a time has the share."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from golden import SCRIPT, assert_same_training, undisturbed

from live import PATIENCE_S, wait_for
from offcut.wire.step_records import history

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-2")]

EPOCHS = 40


@pytest.fixture
def share() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="offcut-share-"))
    yield root
    shutil.rmtree(root, ignore_errors=True)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.ci
def test_training_over_a_share_goes_on_after_a_kill_and_ends_when_another_host_takes_over(
    up: Callable, share: Path, tmp_path: Path
) -> None:
    running = up(1, "--share", str(share))
    assert {"address.json", "agents", "jobs", "lease.json"} <= names(share)
    assert not {"address.json", "agents", "jobs", "lease.json"} & names(running.paths.root)
    assert not {"journal.sqlite", "lock", "control.sock", "agents.key", "rendezvous.secret"} & names(share)
    job = running.submit(SCRIPT, "--epochs", str(EPOCHS), "--pace", "0.01", sizes="1")
    running.until(job, "training", lambda shown: shown["steps"] > 10)

    another = [sys.executable, "-m", "offcut", "up", "--state", str(tmp_path / "another"), "--share", str(share)]
    refused = subprocess.run(another, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert f"{share} is used by the controller on" in refused.stderr
    elsewhere = [sys.executable, "-m", "offcut", "up", "--state", str(running.paths.root), "--share", str(tmp_path)]
    refused = subprocess.run(elsewhere, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert f"have their files in {share}, not in {tmp_path}" in refused.stderr

    running.process.kill()
    running.process.wait()
    running._options = ()  # --share need not be said again
    running.start()
    running.until(job, "the end", lambda shown: shown["state"] == "finished")
    assert running.paths.job(job).is_relative_to(share)
    assert_same_training(history(running.paths.job(job) / "records"), undisturbed(EPOCHS))

    lease = json.loads((share / "lease.json").read_text())
    other = {**lease, "id": "another", "host": "login2", "machine": "another"}

    def taken_over() -> bool:
        # A renewal may be under way: the one that takes over looks again, too.
        (share / "lease.new").write_text(json.dumps(other))
        (share / "lease.new").chmod(0o600)
        (share / "lease.new").replace(share / "lease.json")
        return running.process.poll() is not None

    wait_for("the end of the controller", taken_over)
    assert running.process.returncode == 1
    assert "has taken" in (running.paths.root / "controller.log").read_text()
    assert (share / "address.json").exists(), "it would be the other's"
    assert json.loads((share / "lease.json").read_text()) == other
    running.stop()


def test_the_lease_is_gone_when_the_controller_has_ended(up: Callable, share: Path) -> None:
    running = up(1, "--share", str(share))
    running.process.send_signal(signal.SIGTERM)
    running.process.wait(PATIENCE_S)
    assert "lease.json" not in names(share)
