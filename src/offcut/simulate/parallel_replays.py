"""Several replays of one trace, each in its own process."""

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
    """Replay a trace under each of several options.

    With one replay, or one process, nothing is started: the replays run in this process.

    Args:
        windows: the idle windows.
        jobs: the job list.
        options: the assumptions of each replay.
        start_s: the start of the replayed time, in seconds; None: the first submission.
        end_s: its end, in seconds; None: the end of the last window.
        compare: True: also run the same jobs on a static machine, for the efficiency Us.
        processes: the largest number of processes; None: one per core.
        progress: called with the share that is done of all replays together.
        finished: called with the index and the metrics of each replay when it ends.

    Returns:
        The metrics, in the order of `options`.

    Raises:
        InputError: no node is idle in that time, or the job list is empty. Other exceptions of a replay are raised too.
    """
    workers = min(len(options), processes or os.cpu_count() or 1)
    if workers <= 1:
        results = []
        for i, one in enumerate(options):
            tell = None if progress is None else _share_of_all(progress, i, len(options))
            results.append(replay(windows, jobs, one, start_s=start_s, end_s=end_s, compare=compare, progress=tell))
            if finished is not None:
                finished(i, results[-1])
        return results
    trace = (windows, jobs, start_s, end_s, compare)
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_receive_trace, initargs=(trace,)) as pool:
        futures = {pool.submit(_replay_one, one): i for i, one in enumerate(options)}
        for done, future in enumerate(as_completed(futures), 1):
            if future.exception() is not None:
                pool.shutdown(cancel_futures=True)
                continue
            if finished is not None:
                finished(futures[future], future.result())
            if progress is not None:
                progress(done / len(futures))
        return [future.result() for future in futures]


def _share_of_all(progress: Callable[[float], None], number: int, of: int) -> Callable[[float], None]:
    """Return a callback that turns the progress of one replay into that of all."""
    return lambda share: progress((number + share) / of)


def _receive_trace(trace: tuple[Windows, Sequence[ListedJob], float | None, float | None, bool]) -> None:
    """Store the trace in a worker process."""
    global _trace  # noqa: PLW0603 - one trace per worker process, sent once
    _trace = trace


def _replay_one(options: ReplayOptions) -> ReplayMetrics:
    """Replay the stored trace in a worker process."""
    windows, jobs, start_s, end_s, compare = _trace
    return replay(windows, jobs, options, start_s=start_s, end_s=end_s, compare=compare)
