"""The costs of each stage of a pipeline, in seconds and bytes: the simulator's input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from offcut.pipeline.layer_profile import Floats
from offcut.pipeline.schedules.base import Sends


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """Per stage (S of them), for one micro-batch: seconds, and bytes per device.

    `backward_s` includes `weight_grad_s`. `hop_s[b]` is one transfer over the boundary behind stage b, in either
    direction (S - 1 of them). `sync_s` is the all-reduce of the stage's gradients over its replicas, once per step.
    `stored_bytes` are kept per micro-batch in flight; `state_bytes` (weights, gradients, optimizer) and
    `parameter_bytes` do not depend on it.
    """

    forward_s: Floats
    backward_s: Floats
    weight_grad_s: Floats
    hop_s: Floats
    sync_s: Floats
    stored_bytes: Floats
    state_bytes: Floats
    parameter_bytes: Floats

    @property
    def stages(self) -> int:
        """The number of stages."""
        return len(self.forward_s)

    @property
    def stage_s(self) -> Floats:
        """Forward and backward of one micro-batch, per stage."""
        return self.forward_s + self.backward_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchScale:
    """How micro-batches differ from the one that `StageCosts` describes, shape (m,) each.

    `time[i]` multiplies the computing times of micro-batch i, `size[i]` its transfers and stored bytes.
    """

    time: Floats
    size: Floats


def plain_costs(
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    *,
    hop_s: float | Sequence[float] = 0.0,
    weight_grad_s: Sequence[float] | None = None,
    stored_bytes: Sequence[float] | None = None,
) -> StageCosts:
    """Make costs from times alone, for S uniform or uneven stages.

    Nothing has to be synchronised, and there is no state.

    Args:
        forward_s: seconds of a micro-batch's forward, shape (S,).
        backward_s: seconds of its backward, shape (S,).
        hop_s: seconds of a transfer, one for all or shape (S - 1,).
        weight_grad_s: seconds of the weight gradient within the backward, shape (S,); None: half of it.
        stored_bytes: activations kept per micro-batch, shape (S,); None: 1 each.
    """
    stages = len(forward_s)
    backward = np.array(backward_s, dtype=float)
    hops = np.full(max(0, stages - 1), hop_s, dtype=float) if isinstance(hop_s, int | float) else np.array(hop_s, float)
    return StageCosts(
        forward_s=np.array(forward_s, dtype=float),
        backward_s=backward,
        weight_grad_s=backward / 2 if weight_grad_s is None else np.array(weight_grad_s, dtype=float),
        hop_s=hops,
        sync_s=np.zeros(stages),
        stored_bytes=np.ones(stages) if stored_bytes is None else np.array(stored_bytes, dtype=float),
        state_bytes=np.zeros(stages),
        parameter_bytes=np.zeros(stages),
    )


def as_sent(costs: StageCosts, sends: Sends, *, shared: bool) -> StageCosts:
    """Return the costs under a way of sending.

    With streaming, a transfer counts only if it takes longer than the computing during which it is sent (link demand a
    / F). If forward and backward share a device, both take F + B, and the link carries both: 2 a / (F + B).

    Args:
        costs: the costs of the stages.
        sends: how results are sent.
        shared: True if forward and backward share a device.

    Returns:
        Costs whose computing times include the streamed transfers and whose `hop_s` is 0; other ways of sending leave
        them unchanged.
    """
    if sends != "streaming":
        return costs
    out = np.append(costs.hop_s, 0.0)
    back = np.insert(costs.hop_s, 0, 0.0)
    if shared:
        both = np.maximum(costs.stage_s, 2 * np.maximum(out, back))
        return replace(costs, forward_s=both, backward_s=both, hop_s=np.zeros_like(costs.hop_s))
    return replace(
        costs,
        forward_s=np.maximum(costs.forward_s, out),
        backward_s=np.maximum(costs.backward_s, back),
        hop_s=np.zeros_like(costs.hop_s),
    )
