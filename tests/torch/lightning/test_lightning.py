"""Lightning's Trainer under events of the membership: what it trains, logs and tells is that of the undisturbed run."""

from __future__ import annotations

import csv
import importlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from real_members import Cluster, alone, same, train, train_with_joiner

import rendezvous

pytestmark = [pytest.mark.frameworks, pytest.mark.xdist_group("members")]

#: Steps in a data epoch of 37 samples.
STEPS = 5
FAULTS = (
    {"point": "after-reduce", "how": "break", "rank": 1, "step": 3},
    {"point": "inside-reduce", "how": "kill", "rank": 0, "step": 12},
)


#: Points of a step at which a member is killed, and in which step after a gate they come first.
POINTS = {"before-reduce": 1, "inside-reduce": 1, "after-reduce": 1, "after-update": 2, "boundary": 2}


def script(name: str) -> Callable[..., Any]:
    """Return a function of `lightning_scripts`, which takes seconds to import."""
    found: Callable[..., Any] = getattr(importlib.import_module("lightning_scripts"), name)
    return found


@pytest.fixture(autouse=True, scope="module")
def _preloaded() -> None:
    rendezvous.preload("offcut.torch.lightning")


def broken(point: str, rank: int, step: int) -> dict[str, Any]:
    return {"point": point, "how": "break", "rank": rank, "step": step}


def under_events(trains: Callable[..., Any], **options: Any) -> list[dict[str, Any]]:
    """What is left of two members after two faults, a third's coming at step 6 and the second's leaving at step 9."""
    with Cluster(trains, faults=FAULTS, **options) as cluster:
        first, second = cluster.start(2)
        cluster.form([first, second])
        with cluster.stopped(first, "step", 6):
            (third,) = cluster.start()
            cluster.form([first, second, third])
        with cluster.stopped(second, "step", 9):
            cluster.leave(second)
        results = cluster.results()
        assert cluster.outcomes()[second].how == "left"
        assert cluster.outcomes()[first].how == "died"
        assert len(list(cluster.directory.glob("fault-*"))) == len(FAULTS)
        return results


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="schedule-per-step"),
        pytest.param({"schedule": "epoch", "options": {"val_check_interval": 2}}, id="validates-in-the-epoch"),
        pytest.param({"schedule": "plateau", "stops": True, "options": {"max_epochs": 30}}, id="plateau-stops-early"),
        pytest.param(
            {"options": {"max_epochs": 8, "accumulate_grad_batches": 2, "gradient_clip_val": 0.5}},
            id="accumulated-and-clipped",
        ),
        pytest.param({"options": {"max_epochs": -1, "max_steps": 23}}, id="limit-on-steps"),
        pytest.param({"options": {"max_epochs": 7, "limit_train_batches": 3}}, id="part-of-the-epochs"),
    ],
)
def test_the_result_is_the_undisturbed_one(options: dict[str, Any], tmp_path: Path) -> None:
    options = {**options, "folder": str(tmp_path)}
    same(under_events(script("trains"), **options), alone(script("trains"), **options))


def test_the_log_goes_on_when_another_member_writes_it(tmp_path: Path) -> None:
    """The first member's last row is lost with it, if it is killed after the others have all that the step needs."""
    under_events(script("trains"), folder=str(tmp_path))
    alone(script("trains"), folder=str(tmp_path))
    logs = [sorted((tmp_path / kind).rglob("metrics.csv")) for kind in ("job", "alone")]
    assert [len(found) for found in logs] == [1, 1]
    rows = [list(csv.DictReader(found[0].open())) for found in logs]
    for name in ("train_loss_step", "train_loss_epoch", "val_loss"):
        logged = [{int(row["step"]): float(row[name]) for row in of if row.get(name)} for of in rows]
        lost = logged[1].keys() - logged[0].keys()
        assert lost <= {FAULTS[1]["step"] - 1}, name
        assert logged[0] == pytest.approx({step: logged[1][step] for step in logged[0]}, rel=1e-9), name
    files = [{path.name for path in (tmp_path / kind).rglob("*.ckpt")} for kind in ("job", "alone")]
    assert files[0] == files[1]


def test_a_trainer_with_all_that_scripts_have(tmp_path: Path) -> None:
    folder = str(tmp_path)
    same(under_events(script("full"), folder=folder), alone(script("full"), folder=folder))


def test_several_optimizers_and_manual_updates() -> None:
    same(under_events(script("adversarial")), alone(script("adversarial")))
    faults = [{**broken("before-reduce", 0, 3), "pass": 1}, {**broken("after-reduce", 1, 6), "pass": 1}]
    with Cluster(script("adversarial"), faults=faults) as cluster:
        cluster.form(cluster.start(2))
        same(cluster.results(), alone(script("adversarial")))
        assert len(list(cluster.directory.glob("fault-*"))) == len(faults)


@pytest.mark.parametrize("rank", [0, 1])
def test_an_epochs_end_is_run_once_where_only_one_member_has_its_last_step(rank: int, tmp_path: Path) -> None:
    options = {"folder": str(tmp_path), "schedule": "plateau", "options": {"max_epochs": 3}}
    results = train(script("trains"), 2, broken("after-reduce", rank, STEPS), **options)
    same(results, alone(script("trains"), **options))
    assert len(results) == 2


def test_a_member_that_dies_in_a_validation(tmp_path: Path) -> None:
    options = {"folder": str(tmp_path), "options": {"max_epochs": 3}}
    with Cluster(script("trains"), **options) as cluster:
        names = cluster.start(3)
        cluster.form(names)
        with cluster.stopped(names[0], "validation", STEPS):
            cluster.kill(names[0])
        results = cluster.results()
    assert len(results) == 2
    same(results, alone(script("trains"), **options))


#: The last two in the epoch in which all stop early.
JOINS = ("validation", 1), ("epoch end", 1), ("step", 2), ("validation", 4), ("epoch end", 4)


@pytest.mark.parametrize(("point", "epoch"), JOINS)
def test_a_joiner(point: str, epoch: int, tmp_path: Path) -> None:
    where = point, epoch * STEPS - (point == "step")
    options = {"folder": str(tmp_path), "schedule": "plateau", "stops": True, "options": {"max_epochs": 30}}
    results, undisturbed = train_with_joiner(script("trains"), *where, **options), alone(script("trains"), **options)
    if epoch == 4:
        # This joiner draws no samples any more.
        for result in (*results, undisturbed):
            del result["drawn"]
    same(results, undisturbed)


@pytest.mark.parametrize("where", [("step", STEPS + 2), ("epoch end", STEPS)])
def test_a_training_goes_on_by_samples_with_another_number_of_members(where: tuple[str, int], tmp_path: Path) -> None:
    """Three members leave in the middle of an epoch, or at its end; two others go on from the checkpoint."""
    options = {"folder": str(tmp_path), "schedule": "plateau", "options": {"max_epochs": 3}}
    with Cluster(script("trains"), **options) as cluster:
        names = cluster.start(3)
        cluster.form(names)
        with cluster.stopped(names[0], *where):
            for name in names:
                cluster.leave(name)
        cluster.until(lambda: all(cluster.outcome(name) is not None for name in names))
        assert {cluster.outcome(name).how for name in names} == {"left"}
        cluster.form(cluster.start(2))
        same(cluster.results(), alone(script("trains"), **options))


@pytest.mark.parametrize("epoch", [2, 4], ids=["then-more-epochs", "that-stops-early"])
def test_an_epochs_end_that_the_last_member_did_not_finish_is_run_again(epoch: int, tmp_path: Path) -> None:
    options = {"folder": str(tmp_path), "schedule": "plateau", "stops": True, "options": {"max_epochs": 30}}
    undisturbed = alone(script("trains"), **options)
    assert undisturbed["global step"] == 4 * STEPS
    with Cluster(script("trains"), **options) as cluster:
        (first,) = cluster.start()
        cluster.form([first])
        with cluster.stopped(first, "epoch end", epoch * STEPS):
            cluster.leave(first, limit_s=1.0)
            cluster.until(lambda: "left" in cluster.said(first))
        cluster.form(cluster.start(2))
        same(cluster.results(), undisturbed)


def test_members_die_and_are_replaced_over_and_over(tmp_path: Path) -> None:
    """Ten die, at points and ranks that a seed chooses, and are replaced; one leaves."""
    choose = random.Random(0)
    gates = [6 * i for i in range(1, 12)]
    deaths = []
    for gate in gates[:-1]:
        point = choose.choice(list(POINTS))
        deaths.append({"point": point, "how": "kill", "rank": choose.randrange(3), "step": gate + POINTS[point]})
    options = {"folder": str(tmp_path), "options": {"max_epochs": 15, "gradient_clip_val": 0.5}}
    with Cluster(script("trains"), faults=deaths, **options) as cluster:
        cluster.form(cluster.start(3))
        release = cluster.hold(cluster.members, "step", gates[0])
        for gate in gates[1:]:
            release_next = cluster.hold(cluster.members, "step", gate)
            release()
            cluster.until(lambda: len(cluster.members) < 3 or cluster.failed())
            cluster.form([*cluster.members, *cluster.start()])
            release = release_next
        cluster.leave(cluster.members[0])
        release()
        results = cluster.results()
        assert len(list(cluster.directory.glob("fault-*"))) == len(deaths)
    assert len(results) == 2
    same(results, alone(script("trains"), **options))


@pytest.mark.parametrize("frequency", [STEPS, 3], ids=["of-an-epochs-end", "of-the-middle-of-an-epoch"])
def test_a_checkpoint_of_lightnings_is_continued(frequency: int, tmp_path: Path) -> None:
    options = {"max_epochs": 2, "val_check_interval": frequency, "limit_val_batches": 2}
    alone(script("trains"), folder=str(tmp_path / "first"), options=options)
    saved = min((tmp_path / "first").rglob("*.ckpt"))
    settings = {"folder": str(tmp_path), "saved": str(saved), "options": {**options, "max_epochs": 6}}
    same(under_events(script("trains"), **settings), alone(script("trains"), **settings))


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ("metric", "logs a metric object ('accuracy')"),
        ("none", "training_step returned None"),
        ("several", "several training loaders"),
        ("clock", "a val_check_interval by the clock"),
        ("sharded", "Trainer(strategy='fsdp') is not supported in a job"),
        ("twice", "has an elastic training already"),
    ],
)
def test_what_members_cannot_do_together_is_one_error(mistake: str, told: str) -> None:
    with Cluster(script("mistaken"), mistake=mistake) as cluster:
        cluster.form(cluster.start(1))
        (outcome,) = cluster.outcomes().values()
    assert outcome.how == "raised"
    assert told in outcome.value, outcome.traceback


def test_the_strategy_can_be_given_by_its_name_and_the_rest_is_lightnings() -> None:
    elastic = importlib.import_module("offcut.torch.lightning")
    lightning = importlib.import_module("lightning")
    trainer = lightning.Trainer(strategy="offcut", accelerator="cpu", logger=False, enable_checkpointing=False)
    assert isinstance(trainer.strategy, elastic.OffcutStrategy)
    assert elastic.LightningModule is lightning.LightningModule
    assert elastic.callbacks is lightning.pytorch.callbacks
    with pytest.raises(AttributeError, match="no attribute 'Trainers'"):
        _ = elastic.Trainers


def test_fabric_with_the_elastic_parts() -> None:
    same(under_events(script("with_fabric")), alone(script("with_fabric")))
