"""The hardware description."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from offcut.errors import InputError
from offcut.pipeline.hardware import Link, all_reduce_s, read_hardware

GOOD = """
[[device]]
kind = "fast"
count = 2
memory_gb = 16
speed = 2.0
[[device]]
kind = "slow"
count = 3
[link]
bandwidth_gbit_s = 10
latency_us = 50
overlap = false
[[link.between]]
devices = [1, 2]
bandwidth_gbit_s = 1
[memory]
state_factor = 4
"""


def read(tmp_path: Path, text: str):
    path = tmp_path / "h.toml"
    path.write_text(text)
    return read_hardware(path)


def test_a_full_description(tmp_path: Path) -> None:
    hardware = read(tmp_path, GOOD)
    assert [d.kind for d in hardware.devices] == ["fast", "fast", "slow", "slow", "slow"]
    assert [d.memory_bytes for d in hardware.devices[1:3]] == [16e9, math.inf]
    assert (hardware.overlap, hardware.state_factor) == (False, 4.0)
    assert hardware.hop(0) == Link(bandwidth_bytes_s=1.25e9, latency_s=50e-6)
    assert hardware.slowest_link(0, 2).bandwidth_bytes_s == 1.25e9
    assert hardware.slowest_link(0, 3) == Link(bandwidth_bytes_s=1.25e8, latency_s=50e-6)
    assert hardware.uniform(2)
    assert not hardware.uniform(3)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("count = 2", "count = 0", "device 0: count is 0"),
        ("count = 2", "count = 1.5", "device 0: count is 1.5"),
        ("memory_gb = 16", "memory_gb = -1", "memory_gb is -1"),
        ("speed = 2.0", 'speed = "x"', "speed is 'x'"),
        ("speed = 2.0", "sped = 2.0", "unknown field 'sped'"),
        ("bandwidth_gbit_s = 10", "bandwidth_gbit_s = 0", "link: bandwidth_gbit_s is 0"),
        ("latency_us = 50", "latency_us = -1", "latency_us is -1"),
        ("overlap = false", "overlap = 1", "overlap is 1"),
        ("devices = [1, 2]", "devices = [1, 3]", r"devices is \[1, 3\]"),
        ("devices = [1, 2]", "devices = [4, 5]", r"devices is \[4, 5\]"),
        ("[link]", "[lonk]", "unknown field 'lonk'"),
        ("[memory]", "[memory", "not TOML"),
    ],
)
def test_invalid_hardware_files_are_reported_with_the_field(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, GOOD.replace(old, new, 1))


def test_missing_sections_are_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no \[\[device\]\]"):
        read(tmp_path, "[link]\nbandwidth_gbit_s = 1\n")
    with pytest.raises(InputError, match=r"no \[link\]"):
        read(tmp_path, "[[device]]\ncount = 1\n")
    with pytest.raises(InputError, match="cannot be read"):
        read_hardware(tmp_path / "none.toml")


def test_ring_all_reduce() -> None:
    link = Link(bandwidth_bytes_s=100.0, latency_s=0.5)
    assert all_reduce_s(800.0, 1, link) == 0
    assert all_reduce_s(800.0, 4, link) == 2 * 3 * (2.0 + 0.5)
