"""How a running controller logs: text for people, JSON lines for programs; always on standard error."""

from __future__ import annotations

import sys

import structlog


def configure(*, json_lines: bool) -> None:
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if json_lines else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            renderer,
        ],
        # Standard error as it is when something is logged: a command may run within another program.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        cache_logger_on_first_use=False,
    )
