"""Renders the templates of the page. Every value is escaped: nothing that comes from a job is read as markup."""

from __future__ import annotations

import math
import time
from typing import Any

import jinja2

from offcut.number_format import format_clock, format_count, format_duration, format_loss
from offcut.plaintext import visible


def _short_time(time_s: float | None) -> str:
    """Return the local time of an instant, with the date unless it is today."""
    if time_s is None:
        return ""
    then, today = time.localtime(time_s), time.localtime()
    same_day = then[:3] == today[:3]
    return format_clock(time_s) if same_day else time.strftime("%Y-%m-%d %H:%M", then)


def _loss(loss: float | None) -> str:
    return "" if loss is None or not math.isfinite(loss) else format_loss(loss)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("offcut.service.page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Control characters are written out, as everywhere that text from outside is shown.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters.update(
        count=format_count, duration=format_duration, loss=_loss, clock=_short_time, visible=visible
    )
    return environment


_templates = _environment()


def render(template: str, **values: Any) -> str:
    """Return the template, which is a file of `templates/`, with these values."""
    return _templates.get_template(template).render(values)
