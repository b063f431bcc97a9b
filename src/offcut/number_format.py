"""Numbers and durations as people read them."""

from __future__ import annotations

import time


def format_count(number: float) -> str:
    """Return a number with at least three significant digits: 1,234 or 12.3."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def format_loss(loss: float) -> str:
    """Return a loss with four decimals, or with four significant digits where that would hide it: 0.1077, 3.2e-06."""
    return f"{loss:.4f}" if 1e-3 <= abs(loss) < 1e6 or loss == 0 else f"{loss:.3g}"


def format_duration(duration_s: float) -> str:
    """Return a duration in seconds, minutes or hours, whichever fits its length."""
    if duration_s < 120:
        return f"{duration_s:.0f} s"
    if duration_s < 7200:
        return f"{duration_s / 60:.0f} min"
    return f"{duration_s / 3600:.1f} h"


def format_clock(time_s: float) -> str:
    """Return the local time of day of an instant, given in seconds since 1970."""
    return time.strftime("%H:%M:%S", time.localtime(time_s))
