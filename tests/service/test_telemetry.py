"""The file of the jobs' progress is bounded, and its last line is found."""

from __future__ import annotations

from pathlib import Path

from offcut.control import JobState, Settings, State
from offcut.model import Job, Sizes
from offcut.service.telemetry import Telemetry

JOB = Job(id="a-1", name="a", command=("train.py",), sizes=Sizes((1, 2)))


def test_the_file_is_bounded_and_the_last_line_is_found_at_any_moment(tmp_path: Path) -> None:
    path, older = tmp_path / "t.jsonl", tmp_path / "t.older.jsonl"
    state = State(settings=Settings(telemetry_bytes=2000), jobs={"a-1": JobState(JOB, "running", 0.0)})
    telemetry = Telemetry(path, older)
    assert not list(telemetry.last())
    for step in range(1, 200):
        state.jobs["a-1"].progress.step = step
        telemetry.note(float(step), state)
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 2200
        (last,) = telemetry.last()
        assert (last.job, last.step) == ("a-1", step)
