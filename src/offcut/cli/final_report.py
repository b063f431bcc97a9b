"""The report at the end of `offcut up`, written within a time limit; a signal skips it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from offcut.cli.output import remark
from offcut.errors import OffcutError
from offcut.service.paths import StatePaths


class _SkippedError(Exception):
    pass


def write_at_the_end(paths: StatePaths, limit_s: float) -> Path | None:
    """Write the report and return its path; a signal or the time limit skips it.

    The jobs' results do not depend on it.
    """
    from offcut.report.run_report import write_report

    remark("Writing the report; Ctrl-C skips it.")
    try:
        with _skipped_by_signals(limit_s):
            report = write_report(paths)
    except _SkippedError:
        remark(f"The report was skipped. One is written each time that a controller of {paths.root} ends.")
    except OffcutError as error:
        remark(f"offcut: The report could not be written: {error}")
    except OSError as error:
        remark(f"offcut: The report could not be written in {paths.root}: {error.strerror}.")
    else:
        remark(f"The report is {report}")
        return report
    return None


@contextmanager
def _skipped_by_signals(limit_s: float) -> Iterator[None]:
    def skip(number: int, frame: FrameType | None) -> None:
        raise _SkippedError

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    before = {number: signal.signal(number, skip) for number in numbers}
    # 0 would be no limit, and what is too long for the clock an error.
    signal.setitimer(signal.ITIMER_REAL, min(max(limit_s, 0.001), 1e8))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
