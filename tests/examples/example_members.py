"""Runs an elastic example as members of a job, in processes of `real_members`, while members die and are replaced."""

from __future__ import annotations

import os
import random
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from example_pairs import EXAMPLES, Pair
from real_members import Cluster, Stage, alone

import rendezvous
from offcut.torch.elastic_parts import current_training
from offcut.torch.elastic_parts.elastic_loader import ElasticLoader
from offcut.wire.step_records import history
from offcut.wire.worker_env import ENV_JOB_DIR, ENV_RECORDS

WORLD = 3
#: How many steps lie between two gates, at which all members wait until there are `WORLD` of them again.
GATE_STEPS = 4
#: Points of a step at which a member is killed; a fault's step that makes it strike there first after a gate.
POINTS = {"before-reduce": 1, "inside-reduce": 1, "after-reduce": 1, "after-update": 2, "boundary": 2}


def run_example(stage: Stage, *, name: str, arguments: tuple[str, ...]) -> dict[str, Any]:
    """Run an elastic example as it is, in double precision, and return what it has trained.

    Args:
        stage: the test's side; the script stands at "step" before each batch.
        name: the example.
        arguments: its arguments.
    """
    os.environ[ENV_RECORDS] = "1"
    place = Path(os.environ[ENV_JOB_DIR])
    place.mkdir(exist_ok=True)
    os.chdir(place)
    torch.set_default_dtype(torch.float64)
    own_iter = ElasticLoader.__iter__

    def batches(loader: ElasticLoader) -> Iterator[Any]:
        yielded = own_iter(loader)
        try:
            for batch in yielded:
                stage.at("step", current_training.current("at").training)
                yield batch
        finally:
            yielded.close()

    ElasticLoader.__iter__ = batches  # type: ignore[method-assign]
    sys.argv = [name, *arguments]
    runpy.run_path(str(EXAMPLES / "elastic" / name), run_name="__main__")
    current_training.finish_at_end()
    state = current_training.current("the end").state
    return {
        "steps": state.step,
        "tensors": [item.detach().numpy() for item in (*state.model.parameters(), *state.model.buffers())],
    }


def check_under_events(pair: Pair, kills: int, seed: int, directory: Path) -> None:
    """Check that an example's losses and parameters are the undisturbed run's, though members die and are replaced.

    After every GATE_STEPS steps a member is killed, or once leaves instead because its node is wanted; the others wait
    at the next gate until a new worker has joined them.

    Args:
        pair: the example.
        kills: how many are killed, at ranks and points that `seed` chooses.
        seed: chooses.
        directory: where files are written.
    """
    choose = random.Random(seed)
    gates = [GATE_STEPS * (i + 1) for i in range(kills + 1)]
    assert pair.steps > gates[-1] + GATE_STEPS, "the training is too short"
    deaths = []
    for gate in gates[:-1]:
        point = choose.choice(list(POINTS))
        deaths.append({"point": point, "how": "kill", "rank": choose.randrange(WORLD), "step": gate + POINTS[point]})
    options = {"name": pair.name, "arguments": pair.long}
    if pair.preloads:
        rendezvous.preload(pair.preloads)
    with Cluster(run_example, faults=deaths, directory=directory / "job", **options) as cluster:
        cluster.form(cluster.start(WORLD))
        release = cluster.hold(cluster.members, "step", gates[0])
        for gate in gates[1:]:
            release_next = cluster.hold(cluster.members, "step", gate)
            release()
            cluster.until(lambda: len(cluster.members) < WORLD or cluster.failed())
            new = cluster.start()
            cluster.form([*cluster.members, *new])
            release = release_next
        leaving = choose.choice(cluster.members)
        cluster.leave(leaving)
        release()
        results = cluster.results()
        assert cluster.outcomes()[leaving].how == "left"
        assert len(list(cluster.directory.glob("fault-*"))) == kills
    undisturbed = _run_undisturbed(pair, directory=directory / "alone", **options)
    assert len(results) == WORLD - 1
    for result in results:
        assert result["steps"] == undisturbed["steps"] == pair.steps
        for found, expected in zip(result["tensors"], undisturbed["tensors"], strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    steps, reference = (history(directory / run / "records") for run in ("job", "alone"))
    assert sorted(steps) == sorted(reference)
    for step, record in steps.items():
        assert record.loss == pytest.approx(reference[step].loss, rel=1e-9, abs=1e-9), step
        assert sorted(record.samples) == sorted(reference[step].samples), step


def _run_undisturbed(pair: Pair, **options: Any) -> dict[str, Any]:
    """Run an example without offcut; one of a framework, which has no elastic training then, as a job of one member."""
    if not pair.framework:
        found: dict[str, Any] = alone(run_example, **options)
        return found
    with Cluster(run_example, **options) as cluster:
        cluster.form(cluster.start())
        (result,) = cluster.results()
        return result
