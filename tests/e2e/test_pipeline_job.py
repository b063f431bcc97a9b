"""A pipeline job on nodes that come, go and die: layers move, nothing is lost, the loss stays the same."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden import assert_same_training
from pipeline_job import SCRIPT, STEPS_PER_EPOCH, undisturbed, write_plans

from live import Running, prepare_nodes, shared_controller, wait_for
from offcut.wire.step_records import history

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-3"), pytest.mark.timeout(300)]

BACK = "go back to the checkpoint"


NODES = ["n01", "n02", "n03", "n04"]


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    """A controller of four nodes, which all tests here share."""
    with shared_controller(request, len(NODES)) as running:
        yield running


def start(running: Running, directory: Path, nodes: int, names: tuple[str, ...], *, epochs: int, **fields) -> str:
    """Submit the job when `nodes` nodes are idle, and no others."""
    prepare_nodes(running, NODES[:nodes])
    options = ("--epochs", str(epochs), "--pace", "0.05", *fields.pop("options", ()))
    fields = {"plans": write_plans(directory, *names), "checkpoint_age_s": 1.0, **fields}
    return running.submit(SCRIPT, *options, **fields)


def assert_ends_as_undisturbed(running, job: str, epochs: int) -> dict:
    running.until(job, "the end", lambda shown: shown["state"] == "finished")
    steps = history(running.paths.job(job) / "records")
    assert len(steps) == epochs * STEPS_PER_EPOCH
    assert_same_training(steps, undisturbed(epochs))
    return steps


def redone(steps: dict) -> int:
    return sum(len(record.applied_in) - 1 for record in steps.values())


def fault(point: str, how: str, rank: int, step: int) -> dict:
    return {"point": point, "how": how, "rank": rank, "step": step}


@pytest.mark.ci
def test_grows_and_shrinks_and_every_layer_moves(running: Running, tmp_path: Path) -> None:
    prepare_nodes(running, ["n01"])
    epochs = 36
    plans = write_plans(tmp_path, "1", "2", "2-1", "4")
    job = running.submit(SCRIPT, "--epochs", str(epochs), "--pace", "0.05", plans=plans)
    running.until(job, "one node", lambda shown: shown["size"] == 1 and shown["steps"] > 5)
    running.client.post("/v1/nodes/offer", {"nodes": ["n02", "n03", "n04"]})
    running.until(job, "four nodes", lambda shown: shown["size"] == 4)
    steps = running.job(job)["steps"]
    running.until(job, "some steps", lambda shown: shown["steps"] > steps + 5)
    running.client.post("/v1/nodes/want", {"nodes": ["n01"]})
    running.until(job, "three nodes, without the first", lambda shown: shown["size"] == 3)
    running.client.post("/v1/nodes/want", {"nodes": ["n03"]})
    running.until(job, "two nodes", lambda shown: shown["size"] == 2)
    running.until(job, "the end", lambda shown: shown["state"] == "finished")
    steps = history(running.paths.job(job) / "records")
    assert len(steps) == epochs * STEPS_PER_EPOCH
    again = {step: record.applied_in for step, record in steps.items() if len(record.applied_in) > 1}
    assert not again, (again, running.story(job))
    assert_same_training(steps, undisturbed(epochs))


@pytest.mark.ci
def test_a_stage_with_a_replica_survives_a_kill(running: Running, tmp_path: Path) -> None:
    epochs = 20
    job = start(running, tmp_path, 4, ("2", "2x2"), epochs=epochs)
    running.until(job, "four nodes", lambda shown: shown["size"] == 4 and shown["steps"] > 60)
    running.workers()[-1].kill()
    steps = assert_ends_as_undisturbed(running, job, epochs)
    assert redone(steps) <= 1
    assert not any(BACK in text for text in running.story(job))


@pytest.mark.ci
def test_a_stage_without_a_replica_comes_back_from_the_checkpoint(running: Running, tmp_path: Path) -> None:
    epochs = 20
    job = start(running, tmp_path, 2, ("1", "2"), epochs=epochs)
    checkpoints = running.paths.job(job) / "checkpoints"
    running.until(job, "a checkpoint", lambda shown: shown["size"] == 2 and list(checkpoints.glob("step-*")))
    running.workers()[-1].kill()
    running.until(job, "going back", lambda _: any(BACK in text for text in running.story(job)))
    assert_ends_as_undisturbed(running, job, epochs)


@pytest.mark.ci
def test_a_checkpoint_of_which_one_member_cannot_read_its_layers_is_passed_over_by_all(
    running: Running, tmp_path: Path
) -> None:
    epochs = 20
    job = start(running, tmp_path, 2, ("1", "2"), epochs=epochs)
    checkpoints = running.paths.job(job) / "checkpoints"
    running.until(job, "two checkpoints", lambda _: len(list(checkpoints.glob("step-*"))) == 2)
    running.client.post(f"/v1/jobs/{job}/pause")
    running.until(job, "no members", lambda shown: shown["size"] == 0)
    wait_for("all to have written their layers", lambda: not running.workers())
    before, newest = sorted(checkpoints.glob("step-*"))
    (layer,) = newest.glob("__layer-1.*")
    layer.write_bytes(b"")
    running.client.post(f"/v1/jobs/{job}/resume")
    steps = assert_ends_as_undisturbed(running, job, epochs)
    told = running.story(job)
    assert any(f"step {int(newest.name[5:])} cannot be read" in text for text in told), (before, newest, told)
    again = [step for step, record in steps.items() if len(record.applied_in) > 1]
    assert again == list(range(int(before.name[5:]) + 1, int(newest.name[5:]) + 1)), running.story(job)
    assert int(max(path.name for path in checkpoints.glob("step-*"))[5:]) > int(newest.name[5:])


@pytest.mark.ci
def test_no_stage_is_a_step_ahead_where_the_vote_breaks_between_members(running: Running, tmp_path: Path) -> None:
    """Of stages held by ranks 0, 1 and 2, 3: one dies, one does not see the vote end and applies the step late."""
    epochs = 16
    faults = [fault("after-reduce", "kill", 3, 60), fault("after-reduce", "break", 0, 60)]
    env = {"OFFCUT_FAULTS": json.dumps(faults)}
    job = start(running, tmp_path, 4, ("2x2",), epochs=epochs, env=env)
    steps = assert_ends_as_undisturbed(running, job, epochs)
    assert len(list(running.paths.job(job).glob("fault-*"))) == 2
    assert redone(steps) == 0


@pytest.mark.ci
def test_where_nobody_saw_the_vote_end_the_step_is_done_again(running: Running, tmp_path: Path) -> None:
    epochs = 16
    faults = [fault("before-reduce", "kill", 1, 60), fault("inside-reduce", "break", 2, 90)]
    env = {"OFFCUT_FAULTS": json.dumps(faults)}
    job = start(running, tmp_path, 4, ("2", "2x2"), epochs=epochs, env=env)
    assert_ends_as_undisturbed(running, job, epochs)
    assert not any(BACK in text for text in running.story(job))


@pytest.mark.ci
def test_a_frozen_stage_is_given_up_and_its_replica_goes_on(running: Running, tmp_path: Path) -> None:
    epochs = 20
    job = start(running, tmp_path, 4, ("2", "2x2"), epochs=epochs)
    running.until(job, "four nodes", lambda shown: shown["size"] == 4 and shown["steps"] > 60)
    running.workers()[0].send_signal(signal.SIGSTOP)
    running.until(job, "going on without it", lambda _: any("froze" in text for text in running.story(job)))
    steps = assert_ends_as_undisturbed(running, job, epochs)
    assert redone(steps) <= 1


@pytest.mark.ci
def test_the_only_holder_dies_while_it_gives_and_there_is_no_checkpoint(running: Running, tmp_path: Path) -> None:
    """The joiner has let go of the script's first values: the job begins again with them, not without."""
    epochs = 20
    faults = [{**fault("giving", "kill", 0, 1), "generation": 2}]
    prepare_nodes(running, [])
    job = running.submit(
        SCRIPT, "--epochs", str(epochs), "--pace", "0.05", plans=write_plans(tmp_path, "1", "2"),
        max_failures=3, env={"OFFCUT_FAULTS": json.dumps(faults)},
    )  # fmt: skip
    nowhere = running.paths.job(job) / "checkpoints"
    nowhere.parent.mkdir(parents=True, exist_ok=True)
    nowhere.write_text("a file where checkpoints would go")
    running.client.post("/v1/nodes/offer", {"nodes": ["n01"]})
    running.until(job, "some steps", lambda shown: shown["steps"] > 20)
    running.client.post("/v1/nodes/offer", {"nodes": ["n02"]})
    running.until(job, "beginning again", lambda _: any("The job starts again" in text for text in running.story(job)))
    nowhere.unlink()
    steps = assert_ends_as_undisturbed(running, job, epochs)
    assert all(len(steps[step].applied_in) == 2 for step in range(1, 21)), running.story(job)


@pytest.mark.ci
def test_all_nodes_go_with_warning_and_nothing_is_done_again(running: Running, tmp_path: Path) -> None:
    """The size afterwards differs: a checkpoint has layers, not members."""
    epochs = 16
    job = start(running, tmp_path, 3, ("2", "3"), epochs=epochs, checkpoint_age_s=1000.0)
    running.until(job, "three nodes", lambda shown: shown["size"] == 3 and shown["steps"] > 60)
    running.client.post("/v1/nodes/want", {"nodes": ["n01", "n02", "n03"]})
    running.until(job, "no node", lambda shown: shown["size"] == 0)
    running.client.post("/v1/nodes/offer", {"nodes": ["n01", "n03"]})
    steps = assert_ends_as_undisturbed(running, job, epochs)
    assert redone(steps) == 0


@pytest.mark.ci
def test_a_node_that_goes_in_the_middle_of_a_long_step_writes_its_layers_down(running: Running, tmp_path: Path) -> None:
    epochs = 20
    job = start(running, tmp_path, 2, ("1", "2"), epochs=epochs, options=("--slow-at", "60"))
    running.until(job, "the long step", lambda shown: shown["size"] == 2 and shown["steps"] >= 59)
    running.client.post("/v1/nodes/want", {"nodes": ["n02"]})
    steps = assert_ends_as_undisturbed(running, job, epochs)
    assert redone(steps) == 0
    assert not any(BACK in text for text in running.story(job))
