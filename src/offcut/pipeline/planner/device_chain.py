"""The model's chain of layers on the devices of a cluster, and the costs of stages made of it.

A stage with r replicas takes r consecutive devices in the fixed order and runs at the speed of the slowest of them.
Neighbouring stages communicate over the slowest hop between them, replicas reduce over the slowest hop among them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from offcut.errors import InputError
from offcut.pipeline.hardware import Hardware, Link, all_reduce_s
from offcut.pipeline.layer_profile import Chain, Floats, LayerProfile
from offcut.pipeline.planner.partition import Cuts, StageSlots
from offcut.pipeline.schedules.base import Schedule
from offcut.pipeline.stage_costs import StageCosts


class DeviceChain:
    """One profile at one micro-batch size on one cluster.

    Args:
        profile: the model's layers, measured on the device of speed 1.
        hardware: the devices and links.
        micro_batch: samples of one micro-batch.
        kinds: the profiles of device kinds that have their own, by kind.

    Raises:
        InputError: the profile of a kind has another number of layers than the model.
    """

    def __init__(
        self, profile: LayerProfile, hardware: Hardware, micro_batch: int, kinds: dict[str, LayerProfile]
    ) -> None:
        self.hardware = hardware
        self.micro_batch = micro_batch
        self.chain = profile.chain(micro_batch)
        self._least_memory = min((device.memory_bytes for device in hardware.devices), default=math.inf)
        by_kind: dict[tuple[str, float], Chain] = {}
        self._chains: list[Chain] = []
        for device in hardware.devices:
            key = (device.kind, device.speed)
            if key not in by_kind:
                own = kinds.get(device.kind, profile)
                if len(own.layers) != len(profile.layers):
                    raise InputError(
                        f"the profile of device kind '{device.kind}' has {len(own.layers)} layers, "
                        f"the model's has {len(profile.layers)}.",
                        next_step="Profile the same model on both.",
                    )
                by_kind[key] = _at_speed(own.chain(micro_batch), device.speed)
            self._chains.append(by_kind[key])
        #: Cumulative forward and backward seconds by layer, on the profile's device.
        self.work = np.append(0.0, np.cumsum(self.chain.forward_s + self.chain.backward_s))
        self._total_s = [chain.total_s for chain in self._chains]
        self._latest: tuple[tuple[object, ...], StageCosts] | None = None
        self._sums = {id(chain): _sums(chain) for chain in by_kind.values()}

    @property
    def bounded(self) -> bool:
        """True if the memory of any device is limited."""
        return math.isfinite(self._least_memory)

    def speeds(self, devices: int) -> list[float]:
        """Return the speed of each device on the whole model, relative to the profile's device.

        Args:
            devices: the number of devices, from the first.
        """
        return [self.chain.total_s / total_s for total_s in self._total_s[:devices]]

    def slowest(self, first: int, count: int) -> Chain:
        """Return the chain at the speed of the slowest of some consecutive devices.

        Args:
            first: the number of the first device.
            count: the number of devices.
        """
        return self._chains[max(range(first, first + count), key=self._total_s.__getitem__)]

    def fastest(self, devices: int) -> Chain:
        """Return the chain at the speed of the fastest of the first devices.

        Args:
            devices: the number of devices.
        """
        return self._chains[min(range(devices), key=self._total_s.__getitem__)]

    def links(self, replicas: Sequence[int]) -> list[Link]:
        """Return the slowest link between each stage and the next.

        Args:
            replicas: the devices of each stage, shape (S,).

        Returns:
            S - 1 links.
        """
        firsts = [0, *accumulate(replicas)]
        return [self.hardware.slowest_link(firsts[s], replicas[s] + replicas[s + 1]) for s in range(len(replicas) - 1)]

    def slots(self, stages: int, replicas: int, in_flight: Sequence[int], weight_copies: int = 1) -> StageSlots:
        """Describe places of equal numbers of devices to the partitioner.

        Args:
            stages: the number of places.
            replicas: devices of each place.
            in_flight: micro-batches that each place keeps, shape (stages,).
            weight_copies: stages whose weights each device holds.

        Returns:
            The places.
        """
        counts = [replicas] * stages
        return StageSlots(
            chains=[self.slowest(s * replicas, replicas) for s in range(stages)],
            links=self.links(counts),
            memory_bytes=[self.memory_bytes(s * replicas, replicas) for s in range(stages)],
            in_flight=in_flight,
            state_factor=self.hardware.state_factor * weight_copies,
            overlap=self.hardware.overlap,
        )

    def memory_bytes(self, first: int, count: int) -> float:
        """Return the smallest memory among some consecutive devices.

        Args:
            first: the number of the first device.
            count: the number of devices.

        Returns:
            Bytes; inf if memory is not limited.
        """
        if math.isinf(self._least_memory):
            return math.inf
        return min(device.memory_bytes for device in self.hardware.devices[first : first + count])

    def costs(self, cuts: Cuts, replicas: Sequence[int], schedule: Schedule) -> StageCosts:
        """Compute the costs of the stages of a split.

        Args:
            cuts: stage s has the layers `[cuts[s], cuts[s + 1])`.
            replicas: devices of each place.
            schedule: defines the place of each stage, and how many stages' weights a device holds.

        Returns:
            Seconds and bytes of each stage.
        """
        # Schedules are tried one after the other on the same split.
        key = (cuts, tuple(replicas), schedule.weight_copies, schedule.place_of)
        if self._latest is None or self._latest[0] != key:
            self._latest = (key, self._costs(cuts, replicas, schedule))
        return self._latest[1]

    def _costs(self, cuts: Cuts, replicas: Sequence[int], schedule: Schedule) -> StageCosts:
        """Compute the costs without the cache."""
        places, stages = len(replicas), len(cuts) - 1
        firsts = [0, *accumulate(replicas)]
        place = [schedule.place_of(s, places) for s in range(stages)]
        # (first device, number of devices) of each stage. Copies on several places (Chimera) count as spread over all.
        devices = [(firsts[q], replicas[q]) for q in place]
        if schedule.weight_copies > 1:
            devices = [(0, firsts[-1])] * stages
        low, high = np.array(cuts[:-1]), np.array(cuts[1:])
        if len(self._sums) == 1:
            sums = next(iter(self._sums.values()))
            totals = sums[:, high] - sums[:, low]
        else:
            totals = np.empty((5, stages))
            for s in range(stages):
                sums = self._sums[id(self.slowest(*devices[s]))]
                totals[:, s] = sums[:, high[s]] - sums[:, low[s]]
        crossing = self.chain.cut_bytes[high[:-1]]
        parameters = totals[4]
        slowest_link = self.hardware.slowest_link
        sync = [
            all_reduce_s(float(parameters[s]), replicas[place[s]] * schedule.weight_copies, slowest_link(*devices[s]))
            for s in range(stages)
        ]
        if schedule.weight_copies > 1:
            hop_s = [slowest_link(0, firsts[-1]).transfer_s(size) for size in crossing]
        else:
            hop_s = self._hops(place, self.links(replicas), crossing)
        return StageCosts(
            forward_s=totals[0],
            backward_s=totals[1],
            weight_grad_s=totals[2],
            hop_s=np.array(hop_s),
            sync_s=np.array(sync),
            stored_bytes=totals[3] + self.chain.cut_bytes[low],
            state_bytes=self.hardware.state_factor * parameters,
            parameter_bytes=parameters,
        )

    def _hops(self, place: Sequence[int], between: Sequence[Link], crossing: Floats) -> list[float]:
        """Return the seconds of a transfer from each stage to the next; 0 if both are on one place."""
        hops = []
        for a, b, size in zip(place[:-1], place[1:], crossing, strict=True):
            link = between[min(a, b)] if abs(a - b) == 1 else self.hardware.link
            hops.append(link.transfer_s(size) if a != b else 0.0)
        return hops


def _at_speed(chain: Chain, speed: float) -> Chain:
    """Divide a chain's times by a speed."""
    if speed == 1.0:
        return chain
    return Chain(
        micro_batch=chain.micro_batch,
        forward_s=chain.forward_s / speed,
        backward_s=chain.backward_s / speed,
        weight_grad_s=chain.weight_grad_s / speed,
        cut_bytes=chain.cut_bytes,
        stored_bytes=chain.stored_bytes,
        parameter_bytes=chain.parameter_bytes,
    )


def _sums(chain: Chain) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return cumulative sums, shape (5, L + 1): forward, backward, weight gradient, stored bytes, parameters."""
    rows = (chain.forward_s, chain.backward_s, chain.weight_grad_s, chain.stored_bytes, chain.parameter_bytes)
    return np.array([np.append(0.0, np.cumsum(row)) for row in rows])
