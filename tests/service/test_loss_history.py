"""The losses of jobs: a bounded file each, from which the curve of the training as it went in the end can be read."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest

from offcut.control import JobState, State
from offcut.model import Job, Sizes
from offcut.service import loss_history as module
from offcut.service.loss_history import LossHistory, LossPoint, describe, stable_points


def job(job_id: str = "a-1", phase: str = "running", mode: str = "session") -> JobState:
    spec = Job(id=job_id, name="a", command=("train.py",), sizes=Sizes((1, 2)), mode=mode)
    return JobState(spec, phase, 0.0)


class Training:
    """A job, and the history that looks at it once a second."""

    def __init__(self, directory: Path, *jobs: JobState) -> None:
        self.state = State(jobs={job.job.id: job for job in jobs or [job()]})
        self.history = LossHistory(directory)
        self.now_s = 1000.0

    def look(self) -> None:
        self.now_s += 1.0
        self.history.write(self.history.due(self.now_s, self.state))

    def train(self, step: int, loss: float, generation: int = 1, job_id: str = "a-1") -> None:
        progress = self.state.jobs[job_id].progress
        progress.generation, progress.step, progress.samples, progress.loss = generation, step, 10 * step, loss
        self.look()

    def steps(self, job_id: str = "a-1") -> list[int]:
        return [point.step for point in self.history.read(job_id)]


def test_a_point_for_each_look_at_which_a_job_had_trained_on(tmp_path: Path) -> None:
    training = Training(tmp_path / "losses")
    training.look()
    assert not (tmp_path / "losses" / "a-1.csv").exists(), "nothing is known before the first step"
    training.train(5, 0.1)
    training.look()
    training.train(9, math.nan)
    assert training.history.read("a-1")[0] == LossPoint(1002.0, 1, 5, 50, 0.1)
    assert training.steps() == [5, 9]
    assert describe(training.history.read("a-1"))["loss"] == [0.1, None]


def test_the_last_step_of_a_job_is_noted_after_its_end(tmp_path: Path) -> None:
    training = Training(tmp_path, job(), job("b-2"))
    training.look()
    training.state.jobs["a-1"].phase = "finished"
    training.train(3, 0.3)
    assert training.steps() == [3]
    del training.state.jobs["a-1"]
    training.look()
    assert training.steps() == [3], "what is in the history of jobs has its curve"
    training.history.forget("a-1")
    training.history.forget("a-1")
    assert training.steps() == []


def test_jobs_that_had_ended_and_scripts_that_report_no_loss_have_no_file(tmp_path: Path) -> None:
    training = Training(tmp_path, job("a-1", "finished"), job("b-2", mode="restart"))
    training.train(3, 0.3)
    training.train(1, 0.3, job_id="b-2")
    assert list(tmp_path.iterdir()) == []


def test_a_full_file_is_thinned_and_written_half_as_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_POINTS", 16)
    training = Training(tmp_path)
    for step in range(1, 201):
        training.train(step, 1.0 / step)
        assert len(training.steps()) < 16
        assert list(tmp_path.iterdir()) == [tmp_path / "a-1.csv"]
    steps = training.steps()
    assert steps[-1] > 180
    gaps = {after - before for before, after in pairwise(steps)}
    assert len(gaps) <= 2, f"the points are spread evenly: {steps}"


def test_the_next_controller_goes_on_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_POINTS", 16)
    first = Training(tmp_path)
    for step in range(1, 15):
        first.train(step, 1.0)
    with (tmp_path / "a-1.csv").open("a") as file:
        file.write("1015.0,1,15")  # it died while it wrote
    second = Training(tmp_path)
    for step in range(15, 25):
        second.train(step, 1.0)
    assert second.steps()[-1] == 24
    assert len(second.steps()) < 16


def test_steps_that_were_done_again_count_once() -> None:
    points = [LossPoint(float(i), g, s, s, 0.0) for i, (g, s) in enumerate([(1, 1), (1, 5), (1, 9), (2, 4), (2, 8)])]
    assert [(point.generation, point.step) for point in stable_points(points)] == [(1, 1), (2, 4), (2, 8)]
    assert describe([]) == {"time_s": [], "generation": [], "step": [], "samples": [], "loss": []}
