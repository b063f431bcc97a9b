"""Members of a pipeline that have the same layers have them to the last bit, or are told what differs."""

from __future__ import annotations

from pathlib import Path

import pipeline_scripts as scripts
import pytest
from real_members import Cluster, Outcome, alone

from offcut.torch.state import dcp_shards
from offcut.torch.state.checkpoint_layout import ByLayer

#: See tests/torch/idioms/test_events.py.
pytestmark = pytest.mark.xdist_group("members")


def train(what: str, rank: int = 3, **options: object) -> tuple[list[Outcome], list[str]]:
    """How four members end, two for each stage, and what they tell the job's owner."""
    with Cluster(scripts.trains_stages, plans=("1", "2x2"), what=what, rank=rank, **options) as cluster:
        cluster.form(cluster.start(4))
        outcomes = list(cluster.outcomes().values())
        return outcomes, [message["text"] for _, message in cluster.heard if message["kind"] == "note"]


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("parameter", "the model's 5.weight (rank"),
        pytest.param("optimizer", "optimizer 0's state of 5.bias['exp_avg'] (rank", marks=pytest.mark.ci),
        pytest.param("setting", "optimizer 0's group 0['lr'] (ranks 0 and 1 and 2: ", marks=pytest.mark.ci),
        ("registered", "registered object 0 (StepLR)['last_epoch'] (ranks 0 and 1 and 2: "),
    ],
)
def test_members_that_differ_all_fail_with_what_differs(what: str, named: str) -> None:
    outcomes, told = train(what)
    for outcome in outcomes:
        assert outcome.how == "raised"
        assert named in outcome.value
    assert any(named in text for text in told)


def test_a_difference_after_the_last_comparison_is_found_at_the_end() -> None:
    outcomes, _ = train("parameter", epochs=1, step=10)
    for outcome in outcomes:
        assert outcome.how == "raised"
        assert "after step 10" in outcome.value
        assert "the model's 5.weight (rank" in outcome.value


def test_members_that_are_the_same_come_to_the_end() -> None:
    outcomes, told = train("")
    assert [outcome.how for outcome in outcomes] == ["returned"] * 4
    assert len({str(outcome.value) for outcome in outcomes}) == 1
    assert not told


def test_a_difference_is_found_when_another_member_joins() -> None:
    """The first stage is on two of three members; one of the two goes its own way, and a fourth member comes."""
    with Cluster(scripts.trains_stages, plans=("1", "2-1", "2x2"), what="setting", rank=1, step=9) as cluster:
        names = cluster.start(3)
        cluster.form(names)
        with cluster.stopped(names[0], "step", 9):
            fourth = cluster.start()
            cluster.form([*names, *fourth])
        outcomes = cluster.outcomes()
    for name in names:
        assert outcomes[name].how == "raised"
        assert "optimizer 0's group 0['lr'] (rank" in outcomes[name].value


def written(checkpoint: Path) -> bool:
    """Whether all shares of a checkpoint of the script's six layers are there."""
    return checkpoint.name.startswith("step-") or dcp_shards.complete(checkpoint, ByLayer(6).names(2))


@pytest.mark.ci
def test_a_lost_stage_takes_all_back_to_a_checkpoint_of_an_earlier_data_epoch() -> None:
    """Steps of that data epoch are done again, and what the script does after the later one does not count."""
    plans = ("1", "2")
    undisturbed = alone(scripts.trains_stages, plans=plans, epochs=2)
    kill = {"point": "inside-reduce", "how": "kill", "rank": 1, "step": undisturbed["steps"] - 2}
    with Cluster(scripts.trains_stages, faults=[kill], plans=plans, epochs=2) as cluster:
        names = cluster.start(2)
        cluster.form(names)
        with cluster.stopped(names[0], "step", 4):
            # The first checkpoint is published when the first member goes on.
            cluster.until(lambda: any(written(path) for path in cluster.directory.glob("checkpoints/*")))
        (result,) = cluster.results()
        assert "all members go back to the checkpoint of step 1" in str(cluster.heard)
    assert result["steps"] == undisturbed["steps"]
    assert result["loss"] == pytest.approx(undisturbed["loss"], rel=1e-9)
