"""TeraPipe's planner (Li et al., ICML 2021, section 3.3): the slices of tokens with the shortest pass over a pipeline.

A batch of sequences is divided into parts of a few sequences, and the tokens of each part into slices. On p stages a
pass over slices that take t_1, ..., t_K on a stage takes

    T = sum_i t_i + (p - 1) max_i t_i.

For every value that max t may have, a dynamic programme over the tokens finds the least sum of slices that take no
longer, and one over the sequences the least sum of parts; the least T over all values is exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import numpy as np
from numba import njit

from offcut.errors import InputError
from offcut.pipeline.layer_profile import Floats
from offcut.pipeline.stage_costs import MicroBatchScale


class TokenLatency(Protocol):
    """The time of a slice on one stage."""

    def __call__(self, sequences: int, tokens: int, context: int) -> float:
        """Return the time of one slice.

        Args:
            sequences: the number of sequences that are computed together.
            tokens: the tokens of each sequence in the slice.
            context: the tokens of each sequence before the slice.

        Returns:
            Seconds.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSlice:
    """`tokens` tokens of each of `sequences` sequences, after `context` tokens; `time_s` on one stage."""

    sequences: int
    tokens: int
    context: int
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSlicePlan:
    """Slices in the order in which they pass through `stages` stages, and the seconds of one pass over all of them."""

    stages: int
    slices: tuple[TokenSlice, ...]
    pass_s: float

    @property
    def parts(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """The parts of the batch: the number of sequences, and the tokens of each slice."""
        found: list[tuple[int, list[int]]] = []
        for piece in self.slices:
            if piece.context == 0:
                found.append((piece.sequences, []))
            found[-1][1].append(piece.tokens)
        return tuple((sequences, tuple(tokens)) for sequences, tokens in found)

    def scale(self) -> MicroBatchScale:
        """Return the scale of each slice, against stages with a forward of 1 s and bytes of one token."""
        return MicroBatchScale(
            time=np.array([piece.time_s for piece in self.slices]),
            size=np.array([float(piece.sequences * piece.tokens) for piece in self.slices]),
        )


def plan_token_slices(
    latency: TokenLatency, *, sequences: int, tokens: int, stages: int, multiple_of: int = 8
) -> TokenSlicePlan:
    """Find the slices with the shortest pass over a pipeline of equal stages.

    Args:
        latency: the time of a slice on one stage, transfer to the next stage included.
        sequences: the sequences of a batch.
        tokens: the tokens of each sequence.
        stages: the number of stages, p.
        multiple_of: the tokens of a slice are a multiple of this.

    Returns:
        The slices; no others have a shorter pass.

    Raises:
        InputError: a number is below 1, or `multiple_of` does not divide `tokens`.
    """
    if min(sequences, tokens, stages, multiple_of) < 1 or tokens % multiple_of:
        raise InputError(
            f"{sequences} sequences of {tokens} tokens on {stages} stages in slices of multiples of {multiple_of}.",
            next_step="Give numbers above 0, and tokens that are such a multiple.",
        )
    units = tokens // multiple_of
    # times[k, n, c]: k + 1 sequences, n + 1 units of tokens after c units; not finite where it is longer than all.
    times = np.full((sequences, units, units), math.inf)
    for k in range(sequences):
        for n in range(units):
            for c in range(units - n):
                times[k, n, c] = latency(k + 1, (n + 1) * multiple_of, c * multiple_of)
    limits = np.unique(times[np.isfinite(times)])
    limit = _best_limit(times, limits, stages)
    slices: list[TokenSlice] = []
    for count, lengths in _slices_within(times, limit):
        starts = accumulate(lengths, initial=0)
        slices += [
            TokenSlice(
                sequences=count,
                tokens=n * multiple_of,
                context=c * multiple_of,
                time_s=float(times[count - 1, n - 1, c]),
            )
            for n, c in zip(lengths, starts, strict=False)
        ]
    return TokenSlicePlan(stages=stages, slices=tuple(slices), pass_s=pass_s([x.time_s for x in slices], stages))


def pass_s(times_s: Sequence[float], stages: int) -> float:
    """Return the time of one pass of slices over equal stages.

    Args:
        times_s: seconds of each slice on one stage.
        stages: the number of stages.

    Returns:
        Seconds: the sum, and the longest for every stage but one.
    """
    return math.fsum(times_s) + (stages - 1) * max(times_s)


@njit(cache=True)
def _least_sums(times, limit):  # type: ignore[no-untyped-def]
    """Return least sums and last slices, shape (sequences, units + 1), of slices that take `limit` at most."""
    sequences, units = times.shape[:2]
    least = np.full((sequences, units + 1), np.inf)
    last = np.zeros((sequences, units + 1), dtype=np.int64)
    for k in range(sequences):
        least[k, 0] = 0.0
        for end in range(1, units + 1):
            for n in range(1, end + 1):
                time = times[k, n - 1, end - n]
                if time <= limit and least[k, end - n] + time < least[k, end]:
                    least[k, end] = least[k, end - n] + time
                    last[k, end] = n
    return least, last


@njit(cache=True)
def _least_batch(whole):  # type: ignore[no-untyped-def]
    """Return least sums and last parts, shape (sequences + 1,); `whole[k]` is the sum of a part of k + 1 sequences."""
    sequences = len(whole)
    least = np.full(sequences + 1, np.inf)
    last = np.zeros(sequences + 1, dtype=np.int64)
    least[0] = 0.0
    for b in range(1, sequences + 1):
        for k in range(1, b + 1):
            if least[b - k] + whole[k - 1] < least[b]:
                least[b] = least[b - k] + whole[k - 1]
                last[b] = k
    return least, last


@njit(cache=True)
def _best_limit(times, limits, stages):  # type: ignore[no-untyped-def]
    """Return the limit of a slice's time with the shortest pass; `limits` increase."""
    best = np.inf
    chosen = limits[-1]
    for limit in limits:
        # The sum of the slices is at least the longest of them.
        if stages * limit >= best:
            break
        least, _ = _least_sums(times, limit)
        batch, _ = _least_batch(least[:, -1])
        if batch[-1] + (stages - 1) * limit < best:
            best = batch[-1] + (stages - 1) * limit
            chosen = limit
    return chosen


def _slices_within(times: Floats, limit: float) -> list[tuple[int, list[int]]]:
    """Return the parts with the least sum: sequences, and the units of tokens of each slice in order."""
    least, last = _least_sums(times, limit)
    _, last_part = _least_batch(least[:, -1])
    parts = []
    left = len(times)
    while left:
        count = int(last_part[left])
        lengths, end = [], times.shape[1]
        while end:
            lengths.append(int(last[count - 1, end]))
            end -= lengths[-1]
        parts.append((count, lengths[::-1]))
        left -= count
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedTokenLatency:
    """TeraPipe's latency model: t(b, l, c) = t(b, l, 0) + k_0 + k_1 b l + k_2 b c + k_3 b l c for c > 0.

    `without_context[b]` has pairs (tokens, seconds) in increasing order; between them t(b, l, 0) is interpolated, and
    beyond the last it grows in proportion. `coefficients` are k_0, ..., k_3 in seconds.
    """

    without_context: dict[int, tuple[tuple[int, float], ...]]
    coefficients: tuple[float, float, float, float]

    def __call__(self, sequences: int, tokens: int, context: int) -> float:
        """Return the time of one slice: see `TokenLatency`.

        Args:
            sequences: a number of sequences that was measured.
            tokens: the tokens of each sequence in the slice.
            context: the tokens of each sequence before the slice.

        Raises:
            InputError: this number of sequences was not measured.
        """
        rows = self.without_context.get(sequences)
        if rows is None:
            known = ", ".join(map(str, sorted(self.without_context)))
            raise InputError(f"{sequences} sequences were not measured.", next_step=f"Measured are {known}.")
        lengths, times = zip(*rows, strict=True)
        time_s = float(np.interp(tokens, lengths, times)) * max(1.0, tokens / lengths[-1])
        if context:
            time_s += float(np.dot(self.coefficients, _context_terms(sequences, tokens, context)))
        return float(time_s)


def fit_token_latency(measured: Iterable[tuple[int, int, int, float]]) -> FittedTokenLatency:
    """Fit TeraPipe's latency model to measured slices, by least squares.

    Args:
        measured: (sequences, tokens, context, seconds) of each measurement.

    Returns:
        The model; exact where there is no context.

    Raises:
        InputError: no measurement is without context.
    """
    rows = sorted(measured)
    without: dict[int, list[tuple[int, float]]] = {}
    for b, n, c, time_s in rows:
        if c == 0:
            without.setdefault(b, []).append((n, time_s))
    if not without:
        raise InputError("no slice was measured without context.", next_step="Measure slices at the sequence's begin.")
    base = FittedTokenLatency(
        without_context={b: tuple(times) for b, times in without.items()}, coefficients=(0.0, 0.0, 0.0, 0.0)
    )
    later = [row for row in rows if row[2] > 0 and row[0] in without]
    if not later:
        return base
    terms = np.array([_context_terms(b, n, c) for b, n, c, _ in later])
    extra = np.array([time_s - base(b, n, 0) for b, n, _, time_s in later])
    k = np.linalg.lstsq(terms, extra, rcond=None)[0].tolist()
    return FittedTokenLatency(without_context=base.without_context, coefficients=(k[0], k[1], k[2], k[3]))


def _context_terms(sequences: int, tokens: int, context: int) -> tuple[float, float, float, float]:
    """Return 1, b l, b c and b l c."""
    b, n, c = float(sequences), float(tokens), float(context)
    return 1.0, b * n, b * c, b * n * c
