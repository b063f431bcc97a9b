"""Job lists."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from offcut.errors import InputError
from offcut.model import ScalingCurve
from offcut.traces.job_list import ListedJob, read_job_list, write_job_list

GOOD: dict[str, Any] = {
    "curves": {"net": {"nodes": [0, 1, 2], "rate": [0, 10, 18]}},
    "jobs": [
        {"id": "a", "curve": "net", "submit_s": 5, "min_nodes": 1, "max_nodes": 2, "samples": 1e6, "grow_cost_s": 18}
    ],
}


def put(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps(document))
    return path


def test_a_list_is_read_and_survives_writing(tmp_path: Path):
    jobs = read_job_list(put(tmp_path, GOOD))
    assert jobs == (
        ListedJob(
            id="a", curve_name="net", curve=ScalingCurve((1, 2), (10, 18)), submit_s=5, min_nodes=1, max_nodes=2,
            samples=1e6, grow_cost_s=18, shrink_cost_s=0,
        ),
    )  # fmt: skip
    write_job_list(tmp_path / "again.json.gz", jobs)
    assert read_job_list(tmp_path / "again.json.gz") == jobs


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (("jobs", 0, "curve"), "vgg", "field jobs.0.curve: job a names the curve 'vgg', which is not in the list"),
        (("jobs", 0, "max_nodes"), 64, "field jobs.0.max_nodes: job a may have 64 nodes, but its curve ends at 2"),
        (("jobs", 0, "min_nodes"), 3, "field jobs.0.min_nodes"),
        (("jobs", 0, "samples"), 0, "field jobs.0.samples"),
        (("jobs", 0, "submit_s"), "noon", "field jobs.0.submit_s"),
        (("jobs", 0, "colour"), "red", "field jobs.0.colour"),
        (("jobs", 0), {"id": "a"}, "field jobs.0.curve: Field required"),
        (("curves", "net", "rate"), [0, 10], "field curves.net: curve: 3 node counts but 2 rates"),
        (("jobs",), GOOD["jobs"] * 2, "field jobs.1.id: the id a is used twice"),
    ],
)
def test_bad_lists_name_job_and_field(tmp_path: Path, place: tuple[Any, ...], value: Any, sentence: str):
    document = copy.deepcopy(GOOD)
    at: Any = document
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = value
    with pytest.raises(InputError, match=r"jobs\.json") as error:
        read_job_list(put(tmp_path, document))
    assert sentence in error.value.what


def test_a_job_list_that_is_not_json_is_refused(tmp_path: Path):
    path = tmp_path / "jobs.json"
    path.write_text('{"curves": {}\n,,')
    with pytest.raises(InputError, match="line 2: not JSON"):
        read_job_list(path)


def test_two_curves_of_one_name_are_refused(tmp_path: Path):
    jobs = read_job_list(put(tmp_path, GOOD))
    other = ListedJob(
        id="b", curve_name="net", curve=ScalingCurve((1,), (3,)), submit_s=0, min_nodes=1, max_nodes=1, samples=1
    )
    with pytest.raises(InputError, match="two curves are named 'net'"):
        write_job_list(tmp_path / "x.json", [*jobs, other])


def test_the_reference_lists(shared: Path):
    hpo = read_job_list(shared / "data/summit/jobs-hpo-shufflenet-1000.json.gz")
    diverse = read_job_list(shared / "data/summit/jobs-imagenet-1001.json.gz")
    assert (len(hpo), len(diverse)) == (1_000, 1_001)
    assert len({job.curve_name for job in diverse}) == 7
