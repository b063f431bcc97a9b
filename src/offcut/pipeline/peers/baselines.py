"""The step of two kinds of data parallelism, and PipeDream's optimiser."""

from __future__ import annotations

import numpy as np
from numba import njit

from offcut.pipeline.hardware import Link, all_reduce_s
from offcut.pipeline.layer_profile import Chain


def data_parallel_step_s(
    chain: Chain, micro_batches: int, devices: int, link: Link, *, sync_each_micro_batch: bool
) -> float:
    """Seconds of one data-parallel step of m micro-batches on n devices, with a ring all-reduce that overlaps nothing.

    Args:
        chain: the model's layers.
        micro_batches: micro-batches of one step; a device has ceil(m / n) of them.
        devices: how many devices.
        link: the link between neighbours.
        sync_each_micro_batch: gradients are reduced after every micro-batch; else once per step (accumulation).
    """
    rounds = -(-micro_batches // devices)
    reduce_s = all_reduce_s(float(chain.parameter_bytes.sum()), devices, link)
    return rounds * chain.total_s + (rounds if sync_each_micro_batch else 1) * reduce_s


def pipedream_hybrid(
    chain: Chain, devices: int, bandwidth_bytes_s: float
) -> tuple[float, tuple[int, ...], tuple[int, ...]]:
    """PipeDream's optimiser (SOSP 2019, section 3.1) on a flat network, as its code does it: (period, cuts, replicas).

    A stage of compute C and parameters w with r replicas takes (C + 4 (r - 1) w / (bandwidth r)) / r per micro-batch;
    transfers between stages, memory and the pipeline's filling are not looked at. The period is the steady state's.
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
