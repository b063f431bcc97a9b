"""Lower bounds of a synchronous step's time, from which follows how far a plan is from optimal at most.

For stage b of a pipeline, with r_b replicas and q = ceil(m / r_b) micro-batches on the busiest of them:

* it starts when one micro-batch has come through the stages before it, sum_{s<b} (F_s + c_s);
* it works q (F_b + B_b), or F_b + R_b + q B_b, or q F_b + R_b + B_b, where R_b is the round trip of one micro-batch
  through the stages behind it, whichever is largest;
* it sends q (c_in + c_out) where a rank sends one message at a time;
* after its last backward one micro-batch's gradient still travels back, sum_{s<b} (B_s + c_s), and every stage on the
  way synchronises its gradients over its replicas.

`plan_bound` is the maximum over the stages of one plan. `ChainBound.least_s` minimises a relaxation of it (transfers
count only at a stage's own boundaries) over *all* contiguous partitions and all replications that use up to D devices:
for a given T the smallest number of replicas that keeps a stage within T is known per interval, so a shortest path over
the layers says how few devices can do it. No plan with one contiguous stage per device and whole backwards can beat it.
`ChainBound.tighten` counts all transfers in front of a stage as well, at the price of a state per device count.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from offcut.pipeline.hardware import Link
from offcut.pipeline.layer_profile import Chain
from offcut.pipeline.planner.bound_searches import ChainSums, Limits, fewest_devices, least_transfers
from offcut.pipeline.stage_costs import StageCosts

#: Cuts and replicas of a plan's stages.
Layout = tuple[tuple[int, ...], tuple[int, ...]]


def plan_bound(
    costs: StageCosts,
    micro_batches: int,
    replicas: tuple[int, ...],
    *,
    occupancy: bool = True,
    splits_backward: bool = False,
) -> float:
    """Bound the time of a synchronous step with overlapping transfers on given stages.

    Args:
        costs: the stages, S of them.
        micro_batches: micro-batches of one step.
        replicas: shape (S,): how many devices hold each stage.
        occupancy: a device sends one message at a time.
        splits_backward: only the input gradient has to travel back; a weight gradient may come later.

    Returns:
        Seconds; no schedule of these stages has a shorter step.
    """
    travels = costs.backward_s - costs.weight_grad_s if splits_backward else costs.backward_s
    return float(
        _plan_bound(
            costs.forward_s,
            costs.backward_s,
            travels,
            costs.hop_s,
            costs.sync_s,
            micro_batches,
            np.array(replicas, dtype=np.int64),
            occupancy,
        )
    )


@njit(cache=True)
def _plan_bound(  # type: ignore[no-untyped-def]
    forward, backward, travels, hop, sync, micro_batches, replicas, occupancy
):
    """Return the maximum of the bounds in this module's docstring over the stages."""
    stages = len(forward)
    trip = 0.0
    for s in range(1, stages):
        trip += forward[s] + travels[s] + 2 * hop[s - 1]
    before = 0.0
    best = 0.0
    for b in range(stages):
        q = (micro_batches + replicas[b] - 1) // replicas[b]
        f, g, t = forward[b], backward[b], travels[b]
        best = max(best, before + max(q * (f + g), f + trip + q * g, q * f + trip + g) + sync[b])
        # The time after the last input gradient; all the weight gradients may come after it.
        until = max(q * (f + t), f + trip + q * t, q * f + trip + t)
        if occupancy:
            into = hop[b - 1] if b > 0 else 0.0
            out = hop[b] if b < stages - 1 else 0.0
            until = max(until, q * (into + out) - into)
        way = 0.0
        for s in range(b - 1, -1, -1):
            way += travels[s] + hop[s]
            best = max(best, before + until + way + sync[s])
        best = max(best, before + until)
        if b < stages - 1:
            before += f + hop[b]
            trip -= forward[b + 1] + travels[b + 1] + 2 * hop[b]
    return best


class ChainBound:
    """Least bounds of one chain on equal devices, for any number of them; answers are cached between sizes.

    Args:
        chain: the layers, at the pace of the fastest device.
        micro_batches: micro-batches of one step.
        link: the fastest link.
        memory_bytes: the largest memory of a device.
        state_factor: bytes kept per byte of parameters.
        max_devices: the most devices that a stage may have.
    """

    def __init__(
        self,
        chain: Chain,
        *,
        micro_batches: int,
        link: Link,
        memory_bytes: float = math.inf,
        state_factor: float = 2.0,
        max_devices: int,
    ) -> None:
        self._sums = ChainSums(
            forward_s=np.append(0.0, np.cumsum(chain.forward_s)),
            backward_s=np.append(0.0, np.cumsum(chain.backward_s)),
            parameter_bytes=np.append(0.0, np.cumsum(chain.parameter_bytes)),
            stored_bytes=np.append(0.0, np.cumsum(chain.stored_bytes)),
            cut_bytes=chain.cut_bytes,
            hop_s=np.where(chain.cut_bytes > 0, link.latency_s + chain.cut_bytes / link.bandwidth_bytes_s, 0.0),
        )
        self._limits = Limits(
            micro_batches,
            float(link.bandwidth_bytes_s),
            float(link.latency_s),
            float(memory_bytes),
            float(state_factor),
        )
        self._max_devices = max_devices
        self._alone_s = micro_batches * chain.total_s
        self._known: list[tuple[float, int]] = []

    def _devices_needed(self, limit_s: float) -> int:
        """Return the fewest devices for a step within `limit_s`, and remember the answer."""
        needed, _, _ = fewest_devices(limit_s, self._max_devices, self._sums, self._limits)
        self._known.append((limit_s, int(needed)))
        return int(needed)

    def least_s(self, devices: int, *, tolerance: float = 1e-4) -> float:
        """Find the largest lower bound of a step.

        Args:
            devices: the most devices that a plan may use.
            tolerance: the bound is within this share of the least step that the relaxation allows.

        Returns:
            Seconds; no plan is as fast. inf if no plan fits the memory.
        """
        low, high = self._bracket(devices)
        if math.isinf(high):
            high = self._alone_s + 4 * sum(self._sums.hop_s) + 1.0
            while self._devices_needed(high) > devices:
                if high > 64 * self._alone_s + 1e6:
                    return math.inf
                high *= 4
        while high - low > tolerance * high:
            middle = 0.5 * (low + high)
            if self._devices_needed(middle) <= devices:
                high = middle
            else:
                low = middle
        return low

    def loose_splits(self, devices: int, least_s: float) -> list[Layout]:
        """Return splits that the relaxation allows at a step of `least_s` seconds or a little more.

        Args:
            devices: the most devices that a split may use.
            least_s: a lower bound of the step, in seconds.

        Returns:
            Pairs of cuts, shape (S + 1,), and replicas, shape (S,).
        """
        found = []
        for slack in (1.0005, 1.02, 1.06, 1.15):
            needed, came, count = fewest_devices(least_s * slack, self._max_devices, self._sums, self._limits)
            if needed > devices:
                continue
            cuts, replicas = [0], []
            while cuts[-1] < len(came) - 1:
                replicas.append(int(count[cuts[-1]]))
                cuts.append(int(came[cuts[-1]]))
            found.append((tuple(cuts), tuple(replicas)))
        return list(dict.fromkeys(found))

    def tighten(
        self, devices: int, low_s: float, high_s: float, *, tolerance: float = 1e-3
    ) -> tuple[float, list[Layout]]:
        """Raise a bound by counting every transfer in front of a stage.

        Args:
            devices: how many devices a plan may use.
            low_s: a bound that is known (s).
            high_s: a step that is known to be possible (s).
            tolerance: how near to the best bound is enough, as a share.

        Returns:
            The bound (s), at least `low_s`, and splits (cuts, replicas) that come near it.
        """
        splits = []
        high = high_s
        while high - low_s > tolerance * high:
            middle = 0.5 * (low_s + high)
            found = self._splits_within(middle, devices)
            if found:
                high = middle
                splits += found
            else:
                low_s = middle
        for slack in (1.02, 1.05, 1.1, 1.2, 1.35):
            splits += self._splits_within(low_s * slack, devices)
        return low_s, list(dict.fromkeys(splits))

    def _splits_within(self, limit_s: float, devices: int) -> list[Layout]:
        """Return the split with the fewest devices and the one with the fewest transfers, if any keeps within the
        limit.
        """
        front, came, count = least_transfers(limit_s, devices, self._sums, self._limits)
        possible = np.flatnonzero(np.isfinite(front))
        if not len(possible):
            return []
        ends = {int(possible[0]), int(np.argmin(front))}
        return [self._trace_back(end, came, count) for end in sorted(ends)]

    @staticmethod
    def _trace_back(used: int, came: NDArray[np.int64], count: NDArray[np.int64]) -> Layout:
        """Follow the choices back from the last cut, with `used` devices, to the first."""
        at = len(came) - 1
        cuts, replicas = [at], list[int]()
        while at > 0:
            r = int(count[at, used])
            at, used = int(came[at, used]), used - r
            cuts.insert(0, at)
            replicas.insert(0, r)
        return tuple(cuts), tuple(replicas)

    def _bracket(self, devices: int) -> tuple[float, float]:
        """Return the known limits (s) below and above the least step on `devices` devices."""
        low = max((t for t, needed in self._known if needed > devices), default=0.0)
        high = min((t for t, needed in self._known if needed <= devices), default=math.inf)
        return low, high


def any_plan_bound(chain: Chain, micro_batches: int, total_speed: float, best_speed: float) -> float:
    """Bound the step of *any* synchronous plan, interleaved or with split backwards.

    Args:
        chain: the layers on the profile's device.
        micro_batches: micro-batches of one step.
        total_speed: the sum of the devices' speeds against the profile's device.
        best_speed: the speed of the fastest of them.

    Returns:
        Seconds: all the work divided among all devices, or one micro-batch on the fastest.
    """
    return max(micro_batches * chain.total_s / total_speed, chain.total_s / best_speed)
