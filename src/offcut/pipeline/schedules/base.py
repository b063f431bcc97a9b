"""What a schedule is, and what it needs to know to lay out a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from offcut.pipeline.program import Program

#: `overlap`: a transfer delays its receiver, nobody computes less for it. `blocking`: sender and receiver meet and
#: neither computes meanwhile. `streaming`: an accelerator sends a result while it computes it, so that only a transfer
#: longer than the computing shows.
Sends = Literal["overlap", "blocking", "streaming"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A pipeline of `ranks` stages in a row (times `chunks` where a rank holds several) and m micro-batches.

    `replicas[s]` ranks hold stage s and take its micro-batches in turn (all 1 where empty). `stage_s[s]` is forward
    plus backward of one micro-batch, `hop_s[b]` one transfer from stage b to b + 1 or back: only the schedules that
    look at times need them. `caps[s]` limits the micro-batches that one rank of stage s keeps in flight.
    """

    ranks: int
    micro_batches: int
    replicas: tuple[int, ...] = ()
    chunks: int = 1
    stage_s: tuple[float, ...] = ()
    hop_s: tuple[float, ...] = ()
    caps: tuple[int, ...] = ()

    @property
    def replica_counts(self) -> tuple[int, ...]:
        return self.replicas or (1,) * self.ranks

    @property
    def even(self) -> bool:
        """Whether every stage has the same number of replicas."""
        return len(set(self.replica_counts)) == 1


def always(_: Shape) -> str:
    """A schedule that any shape can run."""
    return ""


def pipeline_only(shape: Shape) -> str:
    """A schedule that needs as many replicas of one stage as of another."""
    return "" if shape.even else "its stages would have unequal numbers of replicas"


def one_version(ranks: int, stage: int) -> int:
    """Synchronous schedules keep one version of the weights."""
    del ranks, stage
    return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A named schedule. `refuses(shape)` says in words why it cannot run a shape; the empty string: it can.

    Schedules of the 1F1B family have `depths`: the forwards of each stage ahead of its first backward, over all of its
    replicas. `in_flight(k, p, m)` bounds the micro-batches that the k-th stage from the end (1: the last) keeps of m
    in a pipeline of p; it never decreases in k. `weight_versions(p, s)` counts the copies of stage s's weights.
    `weight_copies` is 2 where every rank holds two stages' weights (Chimera). `synchronous` False: the optimizer steps
    without a flush, so a gradient may be older than the weights that it updates.
    """

    name: str
    source: str
    program: Callable[[Shape], Program]
    depths: Callable[[Shape], list[int]] | None = None
    in_flight: Callable[[int, int, int], int]
    refuses: Callable[[Shape], str] = always
    sends: Sends = "overlap"
    weight_versions: Callable[[int, int], int] = one_version
    weight_copies: int = 1
    chunks: int = 1
    splits_backward: bool = False
    synchronous: bool = True
