"""The devices of the cluster in a fixed order, and the links between neighbours.

```toml
[[device]]
kind = "v100"
count = 4
memory_gb = 16
speed = 1.0                     # against the device of the profile; or: profile = "other.json"

[link]
bandwidth_gbit_s = 10
latency_us = 30
overlap = true                  # transfers go on while the device computes

[[link.between]]                # a slower or faster hop in the fixed order, devices counted from 0
devices = [3, 4]
bandwidth_gbit_s = 1

[memory]
state_factor = 2.0              # bytes kept per byte of parameters: weights, gradients, optimizer state
```
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offcut.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device.

    `speed` divides the times of the model's profile; `profile` is the file of this kind's own profile, if it has one.
    """

    kind: str
    memory_bytes: float = math.inf
    speed: float = 1.0
    profile: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One hop, full duplex: a message of n bytes takes `latency_s + n / bandwidth_bytes_s` in each direction."""

    bandwidth_bytes_s: float
    latency_s: float = 0.0

    def transfer_s(self, size_bytes: float) -> float:
        """Return the time of one message.

        Args:
            size_bytes: bytes of the message; a message of 0 bytes is not sent.

        Returns:
            Seconds.
        """
        return self.latency_s + size_bytes / self.bandwidth_bytes_s if size_bytes > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Devices in order, the link between any two, and exceptions by hop (device k to k + 1).

    `overlap` False: a device that sends or receives does not compute. A job of n nodes uses the first n devices.
    """

    devices: tuple[Device, ...]
    link: Link
    hops: dict[int, Link] = field(default_factory=dict)
    overlap: bool = True
    state_factor: float = 2.0

    def hop(self, device: int) -> Link:
        """Return the link between a device and the next one.

        Args:
            device: the number of the first of the two, from 0.
        """
        return self.hops.get(device, self.link)

    def slowest_link(self, first: int, count: int) -> Link:
        """Return the link that limits a ring over consecutive devices: least bandwidth, most latency.

        Args:
            first: the number of the first device.
            count: the number of devices.
        """
        if not self.hops:
            return self.link
        links = [self.hop(k) for k in range(first, first + count - 1)] or [self.link]
        return Link(
            bandwidth_bytes_s=min(link.bandwidth_bytes_s for link in links),
            latency_s=max(link.latency_s for link in links),
        )

    def uniform(self, devices: int) -> bool:
        """Return True if the first devices, and all hops between them, are equal.

        Args:
            devices: the number of devices to compare.
        """
        first = self.devices[0]
        return all(d == first for d in self.devices[:devices]) and not any(k < devices - 1 for k in self.hops)


def homogeneous(
    count: int,
    *,
    bandwidth_bytes_s: float,
    latency_s: float = 0.0,
    memory_bytes: float = math.inf,
    overlap: bool = True,
    state_factor: float = 2.0,
) -> Hardware:
    """Describe a cluster of equal devices of the profile's own kind.

    Args:
        count: the number of devices.
        bandwidth_bytes_s: the bandwidth of every link in each direction, in bytes per second.
        latency_s: the latency of every message, in seconds.
        memory_bytes: the memory of each device, in bytes.
        overlap: True if a device computes while it sends or receives.
        state_factor: bytes kept per byte of parameters (weights, gradients, optimizer state).

    Returns:
        The cluster.
    """
    return Hardware(
        devices=(Device(kind="device", memory_bytes=memory_bytes),) * count,
        link=Link(bandwidth_bytes_s=bandwidth_bytes_s, latency_s=latency_s),
        overlap=overlap,
        state_factor=state_factor,
    )


def all_reduce_s(size_bytes: float, members: int, link: Link) -> float:
    """Return the time of a ring all-reduce: `2 (r - 1) (size / r / bandwidth + latency)` for r members.

    Each member sends 2 (r - 1) / r of the bytes over its link, in 2 (r - 1) messages.

    Args:
        size_bytes: bytes of the reduced buffer.
        members: the number of members, r.
        link: the slowest link of the ring.

    Returns:
        Seconds; 0 for fewer than 2 members.
    """
    if members < 2:
        return 0.0
    return 2 * (members - 1) * (size_bytes / members / link.bandwidth_bytes_s + link.latency_s)


def read_hardware(path: Path) -> Hardware:
    """Read a cluster from a TOML file.

    Args:
        path: the file; its form is shown in this module's docstring.

    Returns:
        The cluster.

    Raises:
        InputError: the file cannot be read or a field is wrong; it names the field.
    """
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}).", next_step="Check the path.") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not TOML ({error}).", next_step="Correct that line.") from None
    return parse_hardware(document, source=str(path))


def parse_hardware(document: dict[str, Any], *, source: str) -> Hardware:
    """Read a cluster from a parsed TOML document.

    Args:
        document: the parsed document.
        source: what messages call the document.

    Returns:
        The cluster.

    Raises:
        InputError: a field is missing, unknown or not valid; it names the field.
    """
    _known(document, {"device", "link", "memory"}, source)
    rows = document.get("device")
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{source}: no [[device]].", next_step="Describe at least one kind of device.")
    devices: list[Device] = []
    for i, row in enumerate(rows):
        where = f"{source}, device {i}"
        _known(row, {"kind", "count", "memory_gb", "speed", "profile"}, where)
        count = _positive(row, "count", where, default=1.0)
        if count != int(count):
            raise InputError(f"{where}: count is {count}.", next_step="Give a whole number.")
        device = Device(
            kind=str(row.get("kind", f"kind {i}")),
            memory_bytes=_positive(row, "memory_gb", where, default=math.inf) * 1e9,
            speed=_positive(row, "speed", where, default=1.0),
            profile=str(row["profile"]) if "profile" in row else None,
        )
        devices.extend([device] * int(count))
    link_row = document.get("link")
    if not isinstance(link_row, dict):
        raise InputError(f"{source}: no [link].", next_step="Give the bandwidth between devices.")
    where = f"{source}, link"
    _known(link_row, {"bandwidth_gbit_s", "latency_us", "overlap", "between"}, where)
    overlap = link_row.get("overlap", True)
    if not isinstance(overlap, bool):
        raise InputError(f"{where}: overlap is {overlap!r}.", next_step="Write true or false.")
    hops: dict[int, Link] = {}
    for i, row in enumerate(link_row.get("between", [])):
        hop_where = f"{where}.between {i}"
        _known(row, {"devices", "bandwidth_gbit_s", "latency_us"}, hop_where)
        pair = row.get("devices")
        if not (
            isinstance(pair, list)
            and len(pair) == 2
            and all(isinstance(k, int) for k in pair)
            and pair[1] == pair[0] + 1
            and 0 <= pair[0] < len(devices) - 1
        ):
            raise InputError(
                f"{hop_where}: devices is {pair!r}.",
                next_step=f"Name two neighbours in the fixed order, such as [0, 1], below {len(devices)}.",
            )
        hops[pair[0]] = _link(row, hop_where)
    memory = document.get("memory", {})
    _known(memory, {"state_factor"}, f"{source}, memory")
    return Hardware(
        devices=tuple(devices),
        link=_link(link_row, where),
        hops=hops,
        overlap=overlap,
        state_factor=_positive(memory, "state_factor", f"{source}, memory", default=2.0),
    )


def _link(row: dict[str, Any], where: str) -> Link:
    """Read a link's bandwidth and latency."""
    latency = row.get("latency_us", 0.0)
    if isinstance(latency, bool) or not isinstance(latency, int | float) or not 0 <= latency < math.inf:
        raise InputError(f"{where}: latency_us is {latency!r}.", next_step="Give a number that is not negative.")
    return Link(bandwidth_bytes_s=_positive(row, "bandwidth_gbit_s", where) * 1e9 / 8, latency_s=latency / 1e6)


def _positive(row: dict[str, Any], name: str, where: str, *, default: float | None = None) -> float:
    """Read a number above 0."""
    value = row.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InputError(f"{where}: {name} is {value!r}.", next_step="Give a number above 0.")
    return float(value)


def _known(row: Any, names: set[str], where: str) -> None:
    """Check that a table has no unknown fields."""
    if not isinstance(row, dict):
        raise InputError(f"{where}: not a table.", next_step="See docs/pipeline.md for the form of the file.")
    for name in row:
        if name not in names:
            raise InputError(f"{where}: unknown field '{name}'.", next_step=f"Known are {', '.join(sorted(names))}.")
