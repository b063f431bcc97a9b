"""Scripts with transformers' Trainer under events of the membership: all end as the undisturbed run does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from real_members import Cluster, alone, train, train_with_joiner
from replacements import train_with_replacements

import rendezvous

pytestmark = pytest.mark.xdist_group("members")

#: Steps in a data epoch of 37 samples.
STEPS = 5


@pytest.fixture(scope="module", autouse=True)
def _preloaded() -> None:
    rendezvous.preload("transformers.models.gpt2.modeling_gpt2", "trainer_scripts")


@pytest.fixture(scope="module")
def trains() -> Callable[..., Any]:
    """The script; importing it imports transformers, which takes seconds."""
    import trainer_scripts

    return trainer_scripts.trains


def broken(point: str, rank: int, step: int) -> dict[str, Any]:
    return {"point": point, "how": "break", "rank": rank, "step": step}


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in (key, *leaves(tree[key]))]
    return [leaf for item in tree for leaf in leaves(item)] if isinstance(tree, list) else [tree]


@cache
def _undisturbed(script: Callable[..., Any], options: str) -> dict[str, Any]:
    return alone(script, **json.loads(options))


def same(results: list[Any], script: Callable[..., Any], **options: Any) -> None:
    """Check that all members have the losses, metrics and parameters of the undisturbed run."""
    undisturbed = _undisturbed(script, json.dumps({key: value for key, value in options.items() if key != "out"}))
    tolerance = {"rel": 1e-5, "abs": 1e-6} if options.get("text") else {"rel": 1e-9, "abs": 1e-12}
    assert results
    for result in results:
        for name, value in undisturbed.items():
            wanted, found = leaves(value), leaves(result[name])
            kinds = [isinstance(leaf, str) for leaf in wanted]
            assert kinds == [isinstance(leaf, str) for leaf in found], name
            assert [leaf for leaf in found if isinstance(leaf, str)] == [
                leaf for leaf in wanted if isinstance(leaf, str)
            ]
            assert [leaf for leaf in found if not isinstance(leaf, str)] == [
                leaf if leaf is None else pytest.approx(leaf, **tolerance)
                for leaf in wanted
                if not isinstance(leaf, str)
            ], name


#: At step 3 the second member does not see the reduce end; later the first of those that are left is killed.
FAULTS = (broken("after-reduce", 1, 3), {"point": "inside-reduce", "how": "kill", "rank": 0, "step": 12})


def under_events(script: Callable[..., Any], **options: Any) -> list[Any]:
    """What is left of two members after the faults, a third's coming at step 6 and the second's leaving at step 9."""
    with Cluster(script, faults=FAULTS, **options) as cluster:
        first, second = cluster.start(2)
        cluster.form([first, second])
        with cluster.stopped(first, "step", 6):
            (third,) = cluster.start()
            cluster.form([first, second, third])
        with cluster.stopped(second, "step", 9):
            cluster.leave(second)
        results = cluster.results()
        assert cluster.outcomes()[second].how == "left"
        assert len(list(cluster.directory.glob("fault-*"))) == len(FAULTS)
        # A joiner begins in the middle of an epoch, and no member counts a step twice.
        (seen,) = [note[1] for note in cluster.notes(third) if note[0] == "steps"]
        assert seen == list(range(seen[0], 4 * STEPS + 1))
        assert 7 <= seen[0] <= 9
        return results


def test_the_log_and_the_parameters_are_those_of_the_undisturbed_run(trains: Callable[..., Any]) -> None:
    """Losses, learning rates, gradient norms and evaluations, through four events; see `under_events`."""
    same(under_events(trains), trains)


@pytest.mark.frameworks
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"gradient_accumulation_steps": 2, "max_grad_norm": 0.1}, id="accumulated-and-clipped"),
        pytest.param({"max_grad_norm": 0.0, "lr_scheduler_type": "cosine", "warmup_steps": 4}, id="cosine"),
        pytest.param({"max_steps": 13, "eval_strategy": "steps", "eval_steps": 3}, id="ends-within-an-epoch"),
        pytest.param({"measured": True, "eval_on_start": True, "logging_steps": 4}, id="metrics"),
        pytest.param({"lr_scheduler_type": "reduce_lr_on_plateau", "metric_for_best_model": "loss"}, id="plateau"),
        pytest.param({"text": True, "gradient_accumulation_steps": 2}, id="tokens"),
        pytest.param(
            {
                "text": True,
                "train_sampling_strategy": "group_by_length",
                "include_num_input_tokens_seen": "non_padding",
            },
            id="group-by-length",
        ),
        pytest.param({"dataloader_num_workers": 1, "dataloader_drop_last": True}, id="loading-processes"),
    ],
)
def test_settings_mean_the_same_in_a_job(trains: Callable[..., Any], options: dict[str, Any]) -> None:
    same(train(trains, 3, broken("before-reduce", 1, 2), broken("after-reduce", 2, 4), **options), trains, **options)


@pytest.mark.frameworks
def test_one_member_saves_and_all_load_the_best(trains: Callable[..., Any], tmp_path: Path) -> None:
    options = {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_strategy": "steps",
        "save_steps": 2,
        "save_total_limit": 2,
        "load_best_model_at_end": True,
        "patience": 2,
        "learning_rate": 0.3,
        "num_train_epochs": 20,
    }
    with Cluster(trains, faults=[broken("after-reduce", 1, 3)], out=str(tmp_path / "job"), **options) as cluster:
        names = cluster.start(2)
        cluster.form(names)
        results = cluster.results()
        saved = [note[1] for name in names for note in cluster.notes(name) if note[0] == "saved"]
    assert saved == sorted(set(saved))
    undisturbed = alone(trains, out=str(tmp_path / "alone"), **options)
    assert undisturbed["steps"] < 20 * STEPS, "it stops early"
    assert undisturbed["best_checkpoint"] != f"checkpoint-{undisturbed['steps']}"
    for result in results:
        assert {name: result[name] for name in ("steps", "best_checkpoint")} == {
            name: undisturbed[name] for name in ("steps", "best_checkpoint")
        }
        assert leaves(result["parameters"]) == pytest.approx(leaves(undisturbed["parameters"]), rel=1e-9, abs=1e-12)
    kept = sorted(path.name for path in (tmp_path / "alone").iterdir())
    assert sorted(path.name for path in (tmp_path / "job").iterdir()) == kept


@pytest.mark.frameworks
def test_a_joiner_while_the_other_evaluates_runs_what_follows_the_epoch_once(trains: Callable[..., Any]) -> None:
    same(train_with_joiner(trains, "step", STEPS), trains)
    same(train_with_joiner(trains, "step", 2 * STEPS - 1), trains)


@pytest.mark.frameworks
@pytest.mark.parametrize("options", [{}, {"text": True, "lora": True, "gradient_accumulation_steps": 2}])
def test_members_die_and_are_replaced_over_and_over(trains: Callable[..., Any], options: dict[str, Any]) -> None:
    """Ten are killed and ten join, five generations break besides, and one member leaves."""
    options = {**options, "num_train_epochs": 18, "learning_rate": 0.005}
    same(train_with_replacements(trains, 10, len(options), **options), trains, **options)


@pytest.mark.frameworks
def test_frozen_weights_of_lora_are_neither_sent_nor_saved(trains: Callable[..., Any]) -> None:
    """A worker that joins has the adapter from the other; one that starts from the checkpoint has it from there."""
    options = {"text": True, "lora": True}
    with Cluster(trains, **options) as cluster:
        (first,) = cluster.start()
        cluster.form([first])
        with cluster.stopped(first, "step", 3):
            (second,) = cluster.start()
            cluster.form([first, second])
        with cluster.stopped(second, "step", 7):
            cluster.kill(first)
        with cluster.stopped(second, "step", 9):
            cluster.leave(second)
        assert cluster.outcomes()[second].how == "left"
        (third,) = cluster.start()
        cluster.form([third])
        same(cluster.results(), trains, **options)
        (sent,) = [note[1] for note in cluster.notes(third) if note[0] == "sent"]
    assert sent
    assert all("lora_" in name for name in sent)


@pytest.mark.frameworks
def test_a_checkpoint_of_two_processes_under_torchrun_continues_at_three_members(
    trains: Callable[..., Any], tmp_path: Path
) -> None:
    """The samples, updates and learning rates from step 6 on are those of the run under torchrun."""
    options = {"save_strategy": "steps", "save_steps": 3, "eval_strategy": "no", "dataloader_drop_last": True}
    alone = {**options, "out": str(tmp_path), "per_device_train_batch_size": 4}
    script = Path(__file__).with_name("trainer_scripts.py")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    path = os.pathsep.join(str(place) for place in (script.parent, script.parents[2]))
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    subprocess.run([*torchrun, str(script), json.dumps(alone)], env=env, check=True, capture_output=True)
    whole = json.loads((tmp_path / "checkpoint-16" / "trainer_state.json").read_text())["log_history"]
    for result in train(trains, 3, broken("after-reduce", 1, 3), resume=str(tmp_path / "checkpoint-6"), **options):
        for name in ("loss", "grad_norm", "learning_rate", "epoch", "step"):
            assert [entry[name] for entry in result["log"][:16]] == pytest.approx([e[name] for e in whole], rel=1e-9)


@pytest.mark.frameworks
def test_a_checkpoint_whose_writer_dies_is_written_by_another(trains: Callable[..., Any], tmp_path: Path) -> None:
    options = {"out": str(tmp_path), "save_strategy": "steps", "save_steps": 4, "dies_saving": 8}
    with Cluster(trains, **options) as cluster:
        cluster.form(cluster.start(3))
        results = cluster.results()
    assert len(results) == 2
    for step in (4, 8, 12, 16, 20):
        saved = json.loads((tmp_path / f"checkpoint-{step}" / "trainer_state.json").read_text())
        assert saved["global_step"] == step


@pytest.mark.frameworks
def test_what_a_member_cannot_share_out_is_an_error(trains: Callable[..., Any]) -> None:
    with Cluster(trains, auto_find_batch_size=True) as cluster:
        cluster.form(cluster.start(1))
        (outcome,) = cluster.outcomes().values()
    assert "auto_find_batch_size cannot be used in a job of mode session" in outcome.value


@pytest.mark.frameworks
def test_a_member_that_becomes_the_first_goes_on_with_the_progress_bar(trains: Callable[..., Any]) -> None:
    kill = {"point": "before-reduce", "how": "kill", "rank": 0, "step": 7}
    with Cluster(trains, faults=[kill], disable_tqdm=False) as cluster:
        cluster.form(cluster.start(2))
        same(cluster.results(), trains)
