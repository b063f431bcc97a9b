"""Numbers and durations as people read them."""

from __future__ import annotations


def format_count(number: float) -> str:
    """Return a number with at least three significant digits: 1,234 or 12.3."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def format_duration(duration_s: float) -> str:
    """Return a duration in seconds, minutes or hours, whichever fits its length."""
    if duration_s < 120:
        return f"{duration_s:.0f} s"
    if duration_s < 7200:
        return f"{duration_s / 60:.0f} min"
    return f"{duration_s / 3600:.1f} h"
