"""Members that differ, and states that cannot move: all members get an error that says what it is."""

from __future__ import annotations

import idiom_scripts as scripts
import pytest
from real_members import Cluster, alone, same, train

#: See test_events.py.
pytestmark = pytest.mark.xdist_group("members")


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("parameter", "the model's 0.weight (rank 0: "),
        ("setting", "optimizer 0's group 0['lr'] (rank 0: 0.05, rank 1: 0.04)"),
        ("optimizer", "optimizer 0's state of 3.bias['exp_avg'] (rank 0: "),
        ("registered", "registered object 0 (Counted)['batches'] (rank 0: 0, rank 1: 1)"),
        ("buffer", "the model's 2.running_mean (rank 0: "),
        ("dataset", "samples in the dataset (rank 0: 40, rank 1: 41)"),
    ],
)
def test_members_that_differ_all_fail_with_what_differs(what: str, named: str) -> None:
    with Cluster(scripts.diverges, what=what) as cluster:
        names = cluster.start(2)
        cluster.form(names)
        outcomes = cluster.outcomes()
        told = [message["text"] for _, message in cluster.heard if message["kind"] == "note"]
    assert [outcome.how for outcome in outcomes.values()] == ["raised", "raised"]
    for outcome in outcomes.values():
        assert named in outcome.value
    assert any(named in text for text in told)


def test_members_that_differ_are_found_when_another_one_joins() -> None:
    with Cluster(scripts.diverges, what="registered", step=19) as cluster:
        names = cluster.start(2)
        cluster.form(names)
        with cluster.stopped(names[0], "step", 19):
            third = cluster.start()
            cluster.form([*names, *third])
        outcomes = cluster.outcomes()
    for name in names:
        assert outcomes[name].how == "raised"
        assert "registered object 0 (Counted)['batches'] (rank" in outcomes[name].value


@pytest.mark.parametrize("kind", ["longdouble", "float32"])
def test_numbers_of_numpys_that_python_has_not_are_refused(kind: str) -> None:
    with Cluster(scripts.keeps_the_best, kind=kind) as cluster:
        cluster.form(cluster.start(2))
        outcomes = cluster.outcomes().values()
    for outcome in outcomes:
        assert outcome.how == "raised"
        assert f"registered object 0 (Best): state['best'] is of the type numpy.{kind}" in outcome.value


def test_numbers_of_numpys_that_are_pythons_move_to_joiners_and_into_checkpoints() -> None:
    with Cluster(scripts.keeps_the_best, kind="float64") as cluster:
        first = cluster.start()
        cluster.form(first)
        with cluster.stopped(first[0], "step", 7):
            cluster.leave(first[0])
        assert cluster.outcomes()[first[0]].how == "left"
        second = cluster.start()
        cluster.form(second)
        with cluster.stopped(second[0], "step", 12):
            third = cluster.start()
            cluster.form([*second, *third])
        results = cluster.results()
    assert len(results) == 2
    same(results, alone(scripts.keeps_the_best, kind="float64"))


def test_an_optimizer_that_keeps_objects_is_refused_after_its_first_step() -> None:
    with Cluster(scripts.keeps_objects) as cluster:
        cluster.form(cluster.start(2))
        outcomes = cluster.outcomes().values()
    for outcome in outcomes:
        assert outcome.how == "raised"
        assert "['box'] is of the type idiom_scripts.Box" in outcome.value


@pytest.mark.parametrize(("samples", "options"), [(19, {}), (19, {"drop_last": True}), (17, {"drop_last": True})])
def test_batch_norm_never_has_a_share_of_one_sample(samples: int, options: dict[str, bool]) -> None:
    steps = 2 * (samples // 8 if options else -(-samples // 8))
    with Cluster(scripts.batch_norm, samples=samples, **options) as cluster:
        names = cluster.start(3)
        cluster.form(names)
        results = cluster.results()
        shares = [cluster.notes(name)[0][0] for name in names]
    assert len(results) == 3
    assert all(result == results[0] for result in results)
    assert results[0]["steps"] == steps == alone(scripts.batch_norm, samples=samples, **options)["steps"]
    assert min(min(share) for share in shares) >= 2


def test_training_without_batch_norm_is_the_same_with_any_smallest_share() -> None:
    undisturbed = alone(scripts.schedule_per_epoch)
    same(train(scripts.schedule_per_epoch, 3), undisturbed)
