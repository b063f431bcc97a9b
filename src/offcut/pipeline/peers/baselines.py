"""The step of two kinds of data parallelism, and PipeDream's optimiser."""

from __future__ import annotations

import numpy as np
from numba import njit

from offcut.pipeline.hardware import Link, all_reduce_s
from offcut.pipeline.layer_profile import Chain


def data_parallel_step_s(
    chain: Chain, micro_batches: int, devices: int, link: Link, *, sync_each_micro_batch: bool
) -> float:
    """Return the time of one data-parallel step of m micro-batches on n devices.

    It is that of ceil(m / n) micro-batches and of ring all-reduces that do not overlap with them.

    Args:
        chain: the layers.
        micro_batches: micro-batches of one step, m.
        devices: the number of devices, n.
        link: the slowest link of the ring.
        sync_each_micro_batch: True: gradients are reduced after every micro-batch; False: once per step.

    Returns:
        Seconds.
    """
    rounds = -(-micro_batches // devices)
    reduce_s = all_reduce_s(float(chain.parameter_bytes.sum()), devices, link)
    return rounds * chain.total_s + (rounds if sync_each_micro_batch else 1) * reduce_s


def pipedream_hybrid(
    chain: Chain, devices: int, bandwidth_bytes_s: float
) -> tuple[float, tuple[int, ...], tuple[int, ...]]:
    """Run PipeDream's optimiser (SOSP 2019, section 3.1) on a flat network, as its published code does.

    A stage of compute C and parameters w with r replicas takes (C + 4 (r - 1) w / (bandwidth r)) / r per micro-batch.
    Transfers between stages, memory and the filling of the pipeline are ignored.

    Args:
        chain: the layers.
        devices: the number of devices.
        bandwidth_bytes_s: bytes per second of every link.

    Returns:
        The period of the steady state (s per micro-batch), the cuts and the replicas of each stage.
    """
    work = np.append(0.0, np.cumsum(chain.forward_s + chain.backward_s))
    parameters = np.append(0.0, np.cumsum(chain.parameter_bytes))
    period, came, count = _pipedream(work, parameters, bandwidth_bytes_s, devices)
    cuts, replicas = [chain.layers], list[int]()
    used = devices
    while cuts[0] > 0:
        at = cuts[0]
        r = int(count[at, used])
        cuts.insert(0, int(came[at, used]))
        replicas.insert(0, r)
        used -= r
    return float(period), tuple(cuts), tuple(replicas)


@njit(cache=True)
def _pipedream(work, parameters, bandwidth, devices):  # type: ignore[no-untyped-def]
    n = len(work)
    best = np.full((n, devices + 1), np.inf)
    came = np.zeros((n, devices + 1), dtype=np.int64)
    count = np.zeros((n, devices + 1), dtype=np.int64)
    best[0, :] = 0.0
    for j in range(1, n):
        for d in range(1, devices + 1):
            for i in range(j - 1, -1, -1):
                c = work[j] - work[i]
                if c / d >= best[j, d]:
                    break
                w = parameters[j] - parameters[i]
                for r in range(1, d + 1):
                    value = max(best[i, d - r], (c + 4 * (r - 1) * w / (bandwidth * r)) / r)
                    if value < best[j, d]:
                        best[j, d], came[j, d], count[j, d] = value, i, r
    return best[n - 1, devices], came, count
