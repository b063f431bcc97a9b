"""Logging of a running controller to standard error: text for people, JSON lines for programs."""

from __future__ import annotations

import sys

import structlog

from offcut.process.nonblocking_log import NonblockingLog


def configure(*, json_lines: bool) -> NonblockingLog:
    """Log to standard error from now on. At the end, call `NonblockingLog.flush` to write what is left."""
    log_writer = NonblockingLog(2)
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if json_lines else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            renderer,
        ],
        logger_factory=lambda *_: log_writer,
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        cache_logger_on_first_use=False,
    )
    return log_writer
