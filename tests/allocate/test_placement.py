"""Counts to nodes: no migration, the right counts, the same answer for the same question, choices used well."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.allocate.placement import Placement, place
from offcut.errors import AllocationError


@st.composite
def situations(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, list[str]], list[str]]:
    nodes = [f"n{i}" for i in draw(st.permutations(range(24)))]
    held: dict[str, list[str]] = {}
    at = 0
    for j in range(draw(st.integers(1, 5))):
        count = draw(st.integers(0, 6))
        held[f"j{j}"] = nodes[at : at + count]
        at += count
    free = nodes[at : draw(st.integers(at, 24))] if at < 24 else []
    left = sum(map(len, held.values())) + len(free)
    counts = {}
    for job in [*held, "new"]:
        counts[job] = draw(st.integers(0, left))
        left -= counts[job]
    return counts, held, free


@settings(max_examples=300, deadline=None, derandomize=True)
@given(situations(), st.booleans(), st.booleans(), st.booleans())
def test_every_job_gets_its_count_without_migration(
    situation: tuple[dict[str, int], dict[str, list[str]], list[str]], ends: bool, switches: bool, cohorts: bool
) -> None:
    counts, held, free = situation
    every = sorted({*free, *(node for nodes in held.values() for node in nodes)})
    until_s = {node: float(i % 3) for i, node in enumerate(every) if i % 2} if ends else None
    switch = {node: str(i // 5) for i, node in enumerate(every) if i % 7} if switches else None
    cohort = {node: float(i % 4) for i, node in enumerate(every)} if cohorts else None
    found = place(counts, held, free, until_s=until_s, switch=switch, cohort=cohort)
    assert found == place(counts, held, free, until_s=until_s, switch=switch, cohort=cohort)
    after = {job: list(nodes) for job, nodes in held.items()}
    for job, nodes in found.dropped.items():
        assert nodes == tuple(held[job][counts[job] :]), "the nodes least worth keeping go"
        after[job] = after[job][: counts[job]]
    for job, nodes in found.gained.items():
        assert job not in found.dropped
        assert nodes
        after.setdefault(job, []).extend(nodes)
    assert {job: len(nodes) for job, nodes in after.items() if nodes} == {j: n for j, n in counts.items() if n}
    owned = [node for nodes in after.values() for node in nodes]
    assert len(owned) == len(set(owned))
    assert set(owned) <= set(every)


def test_free_nodes_are_taken_in_their_order_and_dropped_ones_after() -> None:
    found = place({"a": 1, "b": 3, "c": 1}, {"a": ["x", "y", "z"]}, ["f2", "f1"])
    assert found == Placement({"b": ("f2", "f1", "y"), "c": ("z",)}, {"a": ("y", "z")})


def test_a_job_without_a_count_drops_all_its_nodes() -> None:
    assert place({}, {"a": ["x"]}, []) == Placement({}, {"a": ("x",)})


def test_a_placement_without_changes_is_empty() -> None:
    assert place({"a": 2}, {"a": ["x", "y"]}, ["f"]) == Placement()


def test_nodes_that_became_idle_together_go_to_one_job() -> None:
    cohort = {"n1": 1.0, "n2": 2.0, "n3": 1.0, "n4": 2.0, "n5": 2.0}
    found = place({"a": 2, "b": 3}, {}, ["n1", "n2", "n3", "n4", "n5"], cohort=cohort)
    assert found.gained == {"a": ("n1", "n3"), "b": ("n2", "n4", "n5")}


def test_a_job_gains_nodes_that_leave_with_its_own() -> None:
    cohort = {"h": 2.0, "n1": 1.0, "n2": 2.0}
    assert place({"a": 2}, {"a": ["h"]}, ["n1", "n2"], cohort=cohort).gained == {"a": ("n2",)}


def test_nodes_known_to_end_soonest_stay_free_or_go_to_the_same_job() -> None:
    until_s = {"n1": 10.0, "n2": 500.0, "n3": 10.0, "n4": 500.0}
    found = place({"a": 2, "b": 2}, {}, ["n1", "n2", "n3", "n4"], until_s=until_s)
    assert sorted(map(set, found.gained.values()), key=min) == [{"n1", "n3"}, {"n2", "n4"}]
    assert place({"a": 2}, {}, ["n1", "n2", "n3", "n4"], until_s=until_s).gained == {"a": ("n2", "n4")}
    assert set(place({"a": 3}, {}, ["n1", "n2", "n3", "n5"], until_s=until_s).gained["a"]) == {"n1", "n2", "n5"}


def test_whole_switches_stay_together() -> None:
    switch = {f"n{i}": "left" if i % 2 else "right" for i in range(8)}
    found = place({"a": 4, "b": 4}, {}, [f"n{i}" for i in range(8)], switch=switch)
    assert [{switch[n] for n in nodes} for nodes in found.gained.values()] == [{"right"}, {"left"}]
    # A job that sits on a switch already grows there.
    assert place({"a": 2}, {"a": ["n1"]}, ["n0", "n2", "n3"], switch=switch).gained == {"a": ("n3",)}


def test_too_few_nodes_are_reported() -> None:
    with pytest.raises(AllocationError, match="need 3 nodes more, but only 2"):
        place({"a": 3}, {}, ["x", "y"])
