"""Several replays of one trace, each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from offcut.simulate.metrics import ReplayMetrics
from offcut.simulate.options import ReplayOptions
from offcut.simulate.replay import replay
from offcut.traces.job_list import ListedJob
from offcut.traces.windows import Windows

_trace: tuple[Windows, Sequence[ListedJob], float | None, float | None, bool]


def replay_each(
    windows: Windows,
    jobs: Sequence[ListedJob],
    options: Sequence[ReplayOptions],
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    compare: bool = True,
    processes: int | None = None,
    progress: Callable[[float], None] | None = None,
    finished: Callable[[int, ReplayMetrics], None] | None = None,
) -> list[ReplayMetrics]:
    """Replay under each of `options`, in their order. `progress` is told the share done of all replays together,
    `finished` the number and the outcome of each as it ends.

    One replay, or one process, runs in this process. Whatever a replay raises is raised here.
    """
    workers = min(len(options), processes or os.cpu_count() or 1)
    if workers <= 1:
        results = []
        for i, one in enumerate(options):
            tell = None if progress is None else _part(progress, i, len(options))
            results.append(replay(windows, jobs, one, start_s=start_s, end_s=end_s, compare=compare, progress=tell))
            if finished is not None:
                finished(i, results[-1])
        return results
    trace = (windows, jobs, start_s, end_s, compare)
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_keep, initargs=(trace,)) as pool:
        futures = {pool.submit(_one, one): i for i, one in enumerate(options)}
        for done, future in enumerate(as_completed(futures), 1):
            if future.exception() is not None:
                pool.shutdown(cancel_futures=True)
                continue
            if finished is not None:
                finished(futures[future], future.result())
            if progress is not None:
                progress(done / len(futures))
        return [future.result() for future in futures]


def _part(progress: Callable[[float], None], number: int, of: int) -> Callable[[float], None]:
    return lambda share: progress((number + share) / of)


def _keep(trace: tuple[Windows, Sequence[ListedJob], float | None, float | None, bool]) -> None:
    global _trace  # noqa: PLW0603 - one trace per worker process, sent once
    _trace = trace


def _one(options: ReplayOptions) -> ReplayMetrics:
    windows, jobs, start_s, end_s, compare = _trace
    return replay(windows, jobs, options, start_s=start_s, end_s=end_s, compare=compare)
