"""The compiled searches behind the lower bounds of a step's time: shortest paths over the cuts of a chain of layers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray


class ChainSums(NamedTuple):
    """A chain of L layers in the form that the compiled searches take: sums over the layers before a cut.

    Arrays have the shape (L + 1,), one entry per cut; layers i to j - 1 take `forward_s[j] - forward_s[i]`.
    """

    forward_s: NDArray[np.float64]
    backward_s: NDArray[np.float64]
    parameter_bytes: NDArray[np.float64]
    stored_bytes: NDArray[np.float64]
    #: Not sums: what crosses the cut for one micro-batch, in bytes and as a transfer's seconds.
    cut_bytes: NDArray[np.float64]
    hop_s: NDArray[np.float64]


class Limits(NamedTuple):
    """The limits of a stage: the micro-batches of a step, the link, and a device's memory."""

    micro_batches: int
    bandwidth_bytes_s: float
    latency_s: float
    memory_bytes: float
    #: Bytes kept per byte of parameters: weights, gradients, optimizer state.
    state_factor: float


@njit(cache=True)
def fewest_devices(limit, max_devices, sums, limits):  # type: ignore[no-untyped-def]
    """Find the fewest devices that do every stage within a limit.

    Args:
        limit: the most seconds of one stage.
        max_devices: the most devices; with more the search stops.
        sums: the chain of L layers.
        limits: what limits a stage.

    Returns:
        The fewest devices for the whole chain (2**40 if there is no way), and two arrays of shape (L + 1,): per cut,
        the next cut and the replicas of the stage between.
    """
    forward, backward, parameters, stored, cut_bytes, hop = sums
    m, bandwidth, latency, memory, state_factor = limits
    n = len(forward)
    layers = n - 1
    huge = 1 << 40
    fewest = np.full(n, huge, dtype=np.int64)
    came = np.full(n, -1, dtype=np.int64)
    count = np.zeros(n, dtype=np.int64)
    fewest[layers] = 0
    for i in range(layers - 1, -1, -1):
        before = forward[i] + hop[i]
        way_back = backward[i] + hop[i]
        for j in range(i + 1, n):
            if fewest[j] >= huge:
                continue
            f = forward[j] - forward[i]
            b = backward[j] - backward[i]
            room = limit - before
            if before + f + b + way_back > limit:
                break
            w = parameters[j] - parameters[i]
            if state_factor * w + stored[j] - stored[i] + cut_bytes[i] > memory:
                break
            trip = forward[layers] - forward[j] + backward[layers] - backward[j] + 2 * hop[j]
            # Fewer replicas than this cannot do the work even with nothing to synchronise.
            q = min(m, int(room / (f + b))) if f + b > 0 else m
            r = max(1, (m + q - 1) // max(q, 1))
            while r <= max_devices and r + fewest[j] < fewest[i]:
                q = (m + r - 1) // r
                work = max(q * (f + b), f + trip + q * b, q * f + trip + b)
                sent = q * (hop[i] + hop[j]) - hop[i]
                sync = 2 * (r - 1) * (w / r / bandwidth + latency)
                if before + max(work + max(sync, way_back), sent + way_back) <= limit:
                    fewest[i] = r + fewest[j]
                    came[i] = j
                    count[i] = r
                    break
                if q == 1:
                    break
                r = (m + q - 2) // (q - 1)
    return fewest[0], came, count


@njit(cache=True)
def least_transfers(limit, devices, sums, limits):  # type: ignore[no-untyped-def]
    """Compute the least seconds of transfers in front of each cut, by number of devices, with stages within a limit.

    Fewer devices and less in front are each better, and the fewest replicas that keep a stage within the limit never
    cost a later one. So the smallest value per (cut, devices) is enough.

    Args:
        limit: the most seconds of one stage.
        devices: the most devices.
        sums: the chain of L layers.
        limits: what limits a stage.

    Returns:
        The least seconds in front of the last cut, shape (devices + 1,), and two arrays of shape (L + 1, devices + 1):
        per cut and devices, the cut before and the replicas of the stage between.
    """
    forward, backward, parameters, stored, cut_bytes, hop = sums
    m, bandwidth, latency, memory, state_factor = limits
    n = len(forward)
    layers = n - 1
    front = np.full((n, devices + 1), np.inf)
    came = np.full((n, devices + 1), -1, dtype=np.int64)
    count = np.zeros((n, devices + 1), dtype=np.int64)
    front[0, 0] = 0.0
    for i in range(layers):
        least = np.inf
        for d in range(devices):
            if front[i, d] >= least:
                continue
            least = front[i, d]
            before = forward[i] + least
            way_back = backward[i] + least
            for j in range(i + 1, n):
                f = forward[j] - forward[i]
                b = backward[j] - backward[i]
                if before + f + b + way_back > limit:
                    break
                w = parameters[j] - parameters[i]
                if state_factor * w + stored[j] - stored[i] + cut_bytes[i] > memory:
                    break
                trip = forward[layers] - forward[j] + backward[layers] - backward[j] + 2 * hop[j]
                q = min(m, int((limit - before) / (f + b))) if f + b > 0 else m
                r = max(1, (m + q - 1) // max(q, 1))
                while d + r <= devices:
                    q = (m + r - 1) // r
                    work = max(q * (f + b), f + trip + q * b, q * f + trip + b)
                    sent = q * (hop[i] + hop[j]) - hop[i]
                    sync = 2 * (r - 1) * (w / r / bandwidth + latency)
                    if before + max(work + max(sync, way_back), sent + way_back) <= limit:
                        if least + hop[j] < front[j, d + r]:
                            front[j, d + r] = least + hop[j]
                            came[j, d + r] = i
                            count[j, d + r] = r
                        break
                    if q == 1:
                        break
                    r = (m + q - 2) // (q - 1)
    return front[layers], came, count
