"""A pipeline job's sizes and curve are its plans', unless the job says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from pipeline_job import plan, write_plans

from offcut.errors import InputError
from offcut.model import Sizes
from offcut.service.pipeline_jobs import check_sizes, with_plans
from offcut.wire.jobspec import parse_job


def job(plans: str | None, **fields):
    return with_plans(
        parse_job({"name": "a", "command": ["t.py"]} | ({"plans": plans} if plans else {}) | fields, where="here")
    )


def test_sizes_curve_and_environment_come_from_the_plans(tmp_path: Path):
    path = write_plans(tmp_path, "1", "2", "4")
    made = job(path).to_job("a-1")
    assert str(made.sizes) == "1,2,4"
    assert made.curve is not None
    assert made.curve.rate_at(2) == pytest.approx(plan("2").samples_per_s)
    assert ("OFFCUT_PLANS", path) in made.env


def test_two_ranks_a_node_halve_the_sizes(tmp_path: Path):
    assert str(job(write_plans(tmp_path, "1", "2", "4"), ranks_per_node=2).to_job("a-1").sizes) == "1:2"


def test_a_curve_and_sizes_of_its_own_stay(tmp_path: Path):
    made = job(write_plans(tmp_path, "1", "2", "4"), sizes="1,4", curve={"nodes": [1, 4], "rate": [1, 3]}).to_job("a-1")
    assert (str(made.sizes), made.curve and made.curve.rate_at(4)) == ("1,4", 3)


def test_a_size_without_a_plan_is_named(tmp_path: Path):
    with pytest.raises(InputError, match="has no plan for 3 nodes"):
        job(write_plans(tmp_path, "1", "2", "4"), sizes="1:4")


def test_a_running_pipeline_job_is_not_changed_to_a_size_without_a_plan(tmp_path: Path):
    made = job(write_plans(tmp_path, "1", "2", "4")).to_job("a-1")
    check_sizes(made, Sizes.parse("2,4"))
    with pytest.raises(InputError, match="has no plan for 3 nodes"):
        check_sizes(made, Sizes.parse("2:4"))


def test_a_file_that_is_not_a_plan_is_named(tmp_path: Path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InputError, match=r"x\.json: no plans"):
        job(str(tmp_path / "x.json"))


def test_other_jobs_stay_as_they_are():
    assert str(job(None).to_job("a-1").sizes) == "1:8"
