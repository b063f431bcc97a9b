"""The description of a schedule, and of the pipeline that it lays out a program for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from offcut.pipeline.program import Program

#: `overlap`: a transfer delays its receiver and takes no computing time. `blocking`: sender and receiver meet, and
#: neither computes during the transfer. `streaming`: an accelerator sends a result while it computes it, so that only a
#: transfer longer than the computing delays the receiver.
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
        """The ranks of each stage, shape (ranks,)."""
        return self.replicas or (1,) * self.ranks

    @property
    def even(self) -> bool:
        """True if every stage has the same number of replicas."""
        return len(set(self.replica_counts)) == 1


def always(_: Shape) -> str:
    """Return the empty string: any shape is accepted. For `Schedule.refuses`.

    Args:
        _: the shape.
    """
    return ""


def pipeline_only(shape: Shape) -> str:
    """Refuse shapes whose stages have unequal numbers of replicas. For `Schedule.refuses`.

    Args:
        shape: the shape.

    Returns:
        The reason; empty if the shape is accepted.
    """
    return "" if shape.even else "its stages would have unequal numbers of replicas"


def one_version(ranks: int, stage: int) -> int:
    """Return 1: a synchronous schedule keeps one version of the weights. For `Schedule.weight_versions`.

    Args:
        ranks: the number of ranks.
        stage: the stage.
    """
    del ranks, stage
    return 1


def loop_place(stage: int, places: int) -> int:
    """Return the place of a stage where stages go round the places (interleaved). For `Schedule.place_of`.

    Args:
        stage: the stage.
        places: the number of places.
    """
    return stage % places


def v_place(stage: int, places: int) -> int:
    """Return the place of a stage where stages go along the places and back (ZB-V). For `Schedule.place_of`.

    Args:
        stage: the stage, below twice the number of places.
        places: the number of places.
    """
    return min(stage, 2 * places - 1 - stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A named schedule. `refuses(shape)` returns the reason why it cannot run a shape, or the empty string.

    Schedules of the 1F1B family have `depths`: the forwards of each stage ahead of its first backward, over all of its
    replicas. `in_flight(k, p, m)` bounds the micro-batches that the k-th stage from the end (1: the last) keeps of m
    in a pipeline of p; it never decreases in k. `weight_versions(p, s)` counts the copies of stage s's weights.
    `weight_copies` is 2 f where every rank holds the weights of 2 f stages (Chimera). `chunks` is the number of stages
    of a place, and `place_of(s, places)` the place of stage s. `synchronous` False: the optimizer steps without a
    flush, so a gradient may be older than the weights that it updates.
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
    place_of: Callable[[int, int], int] = loop_place
    chunks: int = 1
    splits_backward: bool = False
    synchronous: bool = True
