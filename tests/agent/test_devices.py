"""Each rank sees its own accelerators. Only the environment is checked, because no test machine has several."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offcut.agent.devices import VISIBLE, of_node, of_rank, rank_env


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    return tmp_path


def test_ranks_share_the_granted_accelerators_or_else_all_of_the_node(dev: Path) -> None:
    assert of_node({}, dev) == ("0", "2", "10")
    assert of_node({VISIBLE: "3, 1"}, dev) == ("3", "1")
    assert of_node({VISIBLE: "MIG-5c8e,GPU-77"}, dev) == ("MIG-5c8e", "GPU-77")
    assert of_node({VISIBLE: ""}, dev) == (), "a grant of none is none"
    assert of_node({}, dev / "none") == ()


@pytest.mark.parametrize(
    ("devices", "ranks", "shares"),
    [
        ("0,1,2,3", 4, ["0", "1", "2", "3"]),
        ("4,6", 2, ["4", "6"]),
        ("0,1,2,3", 2, ["0,1", "2,3"]),
        ("0,1,2", 2, ["0", "1"]),
        ("0", 3, ["0", "0", "0"]),
        ("0,1", 3, ["0", "1", "0"]),
    ],
)
def test_every_rank_sees_its_own_accelerators(devices: str, ranks: int, shares: list[str]) -> None:
    assert [rank_env({VISIBLE: devices}, rank, ranks)[VISIBLE] for rank in range(ranks)] == shares


def test_a_node_without_accelerators_says_nothing_about_them(tmp_path: Path) -> None:
    assert rank_env({}, 0, 2, tmp_path) == {}
    assert rank_env({VISIBLE: ""}, 0, 2) == {}


@given(st.integers(1, 16), st.integers(1, 16))
def test_no_two_ranks_share_unless_there_are_too_few(count: int, ranks: int) -> None:
    shares = [of_rank(tuple(map(str, range(count))), rank, ranks) for rank in range(ranks)]
    given_out = [device for share in shares for device in share]
    assert len({len(share) for share in shares}) == 1
    if ranks <= count:
        assert len(set(given_out)) == len(given_out) == ranks * (count // ranks)
    else:
        assert set(given_out) == set(map(str, range(count)))
