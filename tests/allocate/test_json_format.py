"""The JSON format: what is read, and the sentence for everything that cannot be read."""

from __future__ import annotations

import contextlib
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.allocate import json_format
from offcut.errors import InputError
from offcut.model import Allocation

GOOD: dict[str, Any] = {
    "nodes": 53,
    "horizon_s": 120,
    "cost_model": "published",
    "jobs": [
        {
            "id": "a",
            "min_nodes": 1,
            "max_nodes": 64,
            "sizes": None,
            "current": 49,
            "weight": 1.0,
            "curve": {"nodes": [0, 1, 2, 4], "rate": [0, 1, 1.8, 3]},
            "grow_cost_s": 17.8,
            "shrink_cost_s": 11.3,
        }
    ],
}


def test_the_documented_form_is_read() -> None:
    p = json_format.load(GOOD)
    job = p.jobs[0]
    assert (p.nodes, p.horizon_s, p.cost_model, p.objective) == (53, 120.0, "published", "weighted")
    assert (job.id, job.min_nodes, job.max_nodes, job.sizes, job.current) == ("a", 1, 64, None, 49)
    assert job.curve.rate_at(3) == pytest.approx(2.4)


def test_only_id_and_curve_of_a_job_are_needed() -> None:
    p = json_format.load(
        {"nodes": 2, "horizon_s": 1.5, "jobs": [{"id": "a", "curve": {"nodes": [2, 8], "rate": [1, 2]}}]}
    )
    job = p.jobs[0]
    assert (job.min_nodes, job.max_nodes, job.current, job.weight, job.grow_cost_s) == (1, 8, 0, 1.0, 0.0)


def test_the_general_form_is_read() -> None:
    data = deepcopy(GOOD)
    data |= {"objective": "deadline", "max_resizes": 2, "groups": [{"id": "x", "max_nodes": 3, "share": 1}]}
    data["jobs"][0] |= {"group": "x", "current": 2, "deadline_s": 50, "samples_left": 10.0, "migration_cost_s": 3}
    data["jobs"][0]["type_curves"] = {"fast": {"nodes": [1], "rate": [9]}}
    data["classes"] = [{"id": "c", "nodes": 51}, {"id": "d", "nodes": 2, "held_by": "a", "until_s": 9, "switch": "s"}]
    p = json_format.load(data)
    assert p.needs_milp
    assert p.groups[0].share == 1.0
    assert p.classes[1].held_by == "a"
    assert dict(p.jobs[0].type_curves)["fast"].rate_at(1) == 9.0


def change(path: str, value: Any) -> dict[str, Any]:
    """Return GOOD with one thing changed; `path` is dotted, numbers index lists."""
    data: Any = deepcopy(GOOD)
    at = data
    *way, last = path.split(".")
    for step in way:
        at = at[int(step) if step.isdigit() else step]
    at[last] = value
    return data  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("nodes", 0, "field nodes"),
        ("nodes", -3, "field nodes"),
        ("nodes", 1.5, "field nodes"),
        ("nodes", "7", "field nodes"),
        ("nodes", 10**30, "field nodes"),
        ("horizon_s", 0, "field horizon_s"),
        ("horizon_s", -1.0, "field horizon_s"),
        ("horizon_s", float("nan"), "field horizon_s"),
        ("horizon_s", float("inf"), "field horizon_s"),
        ("jobs", [], "field jobs"),
        ("jobs", 3, "field jobs"),
        ("jobs", [7], "job number 1"),
        ("cost_model", "free", "field cost_model"),
        ("objective", "fun", "field objective"),
        ("extra", 1, "field extra: unknown"),
        ("jobs.0.size", 4, "job 'a', field size: unknown"),
        ("jobs.0.id", "", "field id"),
        ("jobs.0.current", -1, "job 'a', field current"),
        ("jobs.0.weight", float("nan"), "job 'a', field weight"),
        ("jobs.0.grow_cost_s", -2, "job 'a', field grow_cost_s"),
        ("jobs.0.min_nodes", 65, "job 'a', field min_nodes: 65 is above max_nodes (64)"),
        ("jobs.0.min_nodes", 5, "job 'a', field min_nodes: 5 lies outside the curve"),
        ("jobs.0.sizes", [2, 5], "job 'a', field sizes: 5 lies outside the curve"),
        ("jobs.0.sizes", [2, 1], "job 'a', field sizes: 1 follows 2"),
        ("jobs.0.sizes", [2, 2], "job 'a', field sizes: 2 follows 2"),
        ("jobs.0.sizes", [-2], "job 'a', field sizes.0"),
        ("jobs.0.max_nodes", 2, None),
        ("jobs.0.curve.nodes", [0, 2, 1, 4], "job 'a', field curve: node counts must increase, but 1 follows 2"),
        ("jobs.0.curve.nodes", [0, 1, 1, 4], "job 'a', field curve: node counts must increase, but 1 follows 1"),
        ("jobs.0.curve.nodes", [-1, 1, 2, 4], "job 'a', field curve.nodes.0"),
        ("jobs.0.curve.nodes", [0, 1, 2], "job 'a', field curve: 3 node counts but 4 rates"),
        ("jobs.0.curve.rate", [0, 1, float("nan"), 3], "job 'a', field curve.rate.2"),
        ("jobs.0.curve.rate", [0, 1, -1, 3], "job 'a', field curve: the rate at 2 nodes is -1.0"),
        ("jobs.0.curve", {"nodes": [], "rate": []}, "job 'a', field curve: no points"),
        ("jobs.0.curve", {"nodes": [0], "rate": [0]}, "job 'a', field curve: it has no point beyond 0 nodes"),
        ("jobs.0.group", "x", "job 'a', field group: unknown group 'x'"),
        ("classes", [{"id": "c", "nodes": 3}], "field classes: they have 3 nodes together, but nodes is 53"),
        ("classes", [{"id": "c", "nodes": 53}], "job 'a', field current: 49, but the classes it holds have 0"),
        ("classes", [{"id": "c", "nodes": 53, "held_by": "z"}], "class 'c', field held_by: unknown job 'z'"),
    ],
)
def test_an_invalid_field_is_reported_with_its_job(path: str, value: Any, said: str | None) -> None:
    data = change(path, value)
    if said is None:
        json_format.load(data)
        return
    with pytest.raises(InputError) as caught:
        json_format.load(data, where="p.json")
    assert caught.value.what.startswith("p.json: ")
    assert said in caught.value.what
    assert caught.value.next_step
    assert caught.value.exit_code == 2


def test_a_current_size_that_is_not_allowed_is_legal() -> None:
    assert json_format.load(change("jobs.0.sizes", [1, 4])).jobs[0].current == 49


def test_two_jobs_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="the job id 'a' is used twice"):
        json_format.load(change("jobs", GOOD["jobs"] * 2))


def test_files_are_read_whole_or_by_line(tmp_path: Path) -> None:
    whole, lines = tmp_path / "p.json", tmp_path / "p.jsonl"
    whole.write_text(json.dumps(GOOD, indent=2))
    lines.write_text(json.dumps(GOOD) + "\n\n" + json.dumps({"problem": GOOD, "objective": 3}) + "\n")
    assert [where for where, _ in json_format.read(whole)] == [str(whole)]
    read = list(json_format.read(lines))
    assert [where for where, _ in read] == [f"{lines}, line 1", f"{lines}, line 3"]
    assert read[0][1] == read[1][1] == json_format.load(GOOD)
    lines.write_text(json.dumps(GOOD) + "\n{\n")
    with pytest.raises(InputError, match=r"line 2: not JSON"):
        list(json_format.read(lines))


def test_an_invalid_problem_is_reported_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    for content in (b"", b"\n \n", b"\xff\xfe\x00", b"[]", b"7", b"{", b"[" * 100_000, b"x" * 5_000_000, b'{"a": 1}'):
        path.write_bytes(content)
        with pytest.raises(InputError) as caught:
            list(json_format.read(path))
        assert len(str(caught.value)) < 300
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError):
            list(json_format.read(missing))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*GOOD, *GOOD["jobs"][0]]), inner),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.sampled_from(["nodes", "horizon_s", "jobs", "classes", "groups", "jobs.0", "jobs.0.curve", "jobs.0.sizes"]),
    _JSON,
)
def test_anything_in_any_field_is_read_or_refused(path: str, value: Any) -> None:
    data: Any = deepcopy(GOOD)
    if path == "jobs.0":
        data["jobs"][0] = value
    else:
        data = change(path, value)
    with contextlib.suppress(InputError):  # any other exception fails
        assert json_format.load(data).jobs


def test_the_answer_has_the_documented_fields() -> None:
    out = json_format.answer(Allocation(nodes={"a": 26}, objective=1.5, bound=float("inf"), proven=False, solve_ms=0.5))
    assert out == {"nodes": {"a": 26}, "objective": 1.5, "bound": None, "proven": False, "solve_ms": 0.5, "price": 0.0}
