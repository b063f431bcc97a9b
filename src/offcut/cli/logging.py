"""Logging of a running controller to standard error: text for people, JSON lines for programs."""

from __future__ import annotations

import sys

import structlog

from offcut.wire.printer import Printer


def configure(*, json_lines: bool) -> Printer:
    """Log to standard error from now on. At the end, call `Printer.flush` to write what is left."""
    printer = Printer(2)
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if json_lines else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            renderer,
        ],
        logger_factory=lambda *_: printer,
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        cache_logger_on_first_use=False,
    )
    return printer
